"""docs/security.md lists every right that the chart gives, and no other."""

import re
from pathlib import Path
from typing import Any

from onggi_operator.heartbeat.identity import BELIEVED_FOR_S, KNOWN_FOR_S, UNSEEN_FOR_S
from onggi_operator.names import HTTP_PORT, ONGGI_GID
from onggi_operator.tls.certificates import (
    AUTHORITY_LIFE,
    AUTHORITY_RENEW_BEFORE,
    LEAF_LIFE,
    LEAF_RENEW_BEFORE,
)
from onggi_operator.tls.keeper import CHECK_PERIOD_S

PAGE = Path(__file__).resolve().parents[2] / "docs/security.md"
PEOPLE = {"onggi-view": "who has `view`", "onggi-edit": "who has `edit`"}

Right = tuple[str, str, str, str]
"""Whose, verb, resource, name."""


OPTIONAL = re.compile(r"only with `(operator\.\w+)`")
"""What a value of the chart has to ask for."""


def told(*asked: str) -> tuple[set[Right], list[str]]:
    section = PAGE.read_text().partition("## Rights, rule by rule")[2].partition("\n## ")[0]
    rights: set[Right] = set()
    reasons = []
    for line in section.splitlines()[1:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 5 or cells[0] == "whose" or set(cells[0]) <= {"-"}:
            continue
        whose, verbs, resource, name, why = cells
        wanted = OPTIONAL.match(why)
        if wanted and wanted[1] not in asked:
            continue
        reasons.append(why)
        rights |= {
            (who, verb, resource, name) for who in whose.split(", ") for verb in verbs.split(", ")
        }
    return rights, reasons


def given(documents: list[dict[str, Any]]) -> set[Right]:
    """By who is bound to each role; those without bindings are added to the cluster's own."""
    holders: dict[str, list[str]] = {}
    for one in documents:
        if one["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            names = [subject["name"].removeprefix("onggi-") for subject in one["subjects"]]
            holders.setdefault(one["roleRef"]["name"], []).extend(names)
    rights: set[Right] = set()
    for role in documents:
        if role["kind"] not in ("ClusterRole", "Role"):
            continue
        name = role["metadata"]["name"]
        for who in holders.get(name) or [PEOPLE[name]]:
            rights |= {(who, *right) for rule in role["rules"] for right in _of(rule)}
    return rights


def _of(rule: dict[str, Any]) -> list[tuple[str, str, str]]:
    assert not rule.keys() - {"apiGroups", "resources", "resourceNames", "verbs"}
    return [
        (verb, f"{resource}.{group}".strip("."), name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
        for verb in rule["verbs"]
    ]


def test_every_right_is_in_the_table_and_every_line_of_it_is_a_right(render: Any) -> None:
    rights, reasons = told()
    assert rights == given(render())
    for value, right in (
        ("operator.restartMissed", ("operator", "create", "pods/eviction", "")),
        ("operator.warmGates", ("operator", "patch", "pods/status", "")),
        ("operator.resizeRequests", ("operator", "patch", "pods/resize", "")),
    ):
        more, _ = told(value)
        assert more == given(render(f"{value}=true"))
        assert more - rights == {right}
    assert all(len(why.split()) > 3 for why in reasons)


def test_nothing_is_given_by_a_star(render: Any) -> None:
    assert not [right for right in given(render()) if "*" in " ".join(right)]


def test_the_page_names_tests_that_are_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE.read_text())
    assert len(named) >= 5
    assert [path for path in named if not (PAGE.parents[1] / path).is_file()] == []


def test_the_page_tells_times_as_the_code_has_them() -> None:
    text = " ".join(PAGE.read_text().split())
    assert (KNOWN_FOR_S, UNSEEN_FOR_S, BELIEVED_FOR_S) == (1800, 30, 3600)
    assert (
        "for half an hour at most while the pod is seen to be there and half a minute once" in text
    )
    assert "who was vouched for within the hour is believed" in text
    assert (LEAF_LIFE.days, LEAF_RENEW_BEFORE * 3) == (90, LEAF_LIFE)
    assert "after two thirds of its 90 days" in text
    assert (AUTHORITY_LIFE.days, AUTHORITY_RENEW_BEFORE.days) == (3650, 365)
    assert "the CA in the last of its ten years" in text
    assert CHECK_PERIOD_S == 60
    assert "the other serves it within a minute" in text
    assert (ONGGI_GID, HTTP_PORT) == (64646, 9464)
    assert "| agents | 9464 |" in text
    assert "of group 64646" in text


def test_a_network_policy_only_when_asked_for(render: Any) -> None:
    assert not [one for one in render() if one["kind"] == "NetworkPolicy"]
    made = render(
        "networkPolicy.enabled=true",
        "networkPolicy.apiServer.cidrs={10.1.2.3/32}",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
    )
    policies = {
        one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "NetworkPolicy"
    }
    assert policies.keys() == {"onggi-webhook", "onggi-operator"}
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]
        for one in made
        if one["kind"] == "Deployment"
    }
    for name, spec in policies.items():
        labels = pods[name]["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
        (container,) = pods[name]["spec"]["containers"]
        assert {port["name"] for port in container["ports"]} == {"https", "health"}
        monitoring = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
        assert spec["ingress"] == [
            {"ports": [{"port": "https", "protocol": "TCP"}]},
            {"from": [monitoring], "ports": [{"port": "health", "protocol": "TCP"}]},
        ]
        assert spec["egress"] == [
            {
                "ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443)],
                "to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}],
            }
        ]


def test_the_api_server_takes_the_policies(server: Any, render: Any) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies?dryRun=All"
    policies = [
        one for one in render("networkPolicy.enabled=true") if one["kind"] == "NetworkPolicy"
    ]
    assert len(policies) == 2
    for one in policies:
        one["metadata"]["namespace"] = "default"
        made = server.request("POST", path, one)
        assert len(made["spec"]["ingress"]) == len(made["spec"]["egress"]) == 1
