"""What the chart renders: nothing outside what Pod Security `restricted` allows, no right that is
not used, a webhook that bystanders never meet."""

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from onggi_operator import names

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/onggi"
NOTES = "charts/onggi/templates/NOTES.txt"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module")
def documents(render: Any) -> list[dict[str, Any]]:
    rendered: list[dict[str, Any]] = render()
    return rendered


def of_kind(documents: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def pod_specs(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = of_kind(documents, "Deployment").values()
    return [one["spec"]["template"]["spec"] for one in found]


def test_two_programs_run_twice_each(documents: list[dict[str, Any]]) -> None:
    found = of_kind(documents, "Deployment")
    assert {name: one["spec"]["replicas"] for name, one in found.items()} == {
        "onggi-operator": 2,
        "onggi-webhook": 2,
    }
    assert {
        one["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] for one in found.values()
    } == {0}


def test_operators_keep_apart_and_one_of_them_leads(render: Any) -> None:
    documents = render()
    assert of_kind(documents, "Lease")["onggi-operator"].keys() == {
        "apiVersion",
        "kind",
        "metadata",
    }
    operator = of_kind(documents, "Deployment")["onggi-operator"]["spec"]["template"]
    env = {one["name"]: one["value"] for one in operator["spec"]["containers"][0]["env"]}
    assert env["ONGGI_LEASE"] == "onggi-operator"
    (term,) = operator["spec"]["affinity"]["podAntiAffinity"][PREFERRED]
    chosen = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert chosen.items() <= operator["metadata"]["labels"].items()
    own = render("operator.affinity.nodeAffinity.x=y")
    asked = of_kind(own, "Deployment")["onggi-operator"]["spec"]["template"]["spec"]["affinity"]
    assert asked == {"nodeAffinity": {"x": "y"}}


def test_every_pod_is_restricted_and_writes_to_mounts_only(
    documents: list[dict[str, Any]],
) -> None:
    for spec in pod_specs(documents):
        assert spec["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert all("emptyDir" in volume for volume in spec["volumes"])
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            for kind in ("requests", "limits"):
                assert {"cpu", "memory"} == container["resources"][kind].keys()


def test_variables_of_our_own_services_are_kept_out(documents: list[dict[str, Any]]) -> None:
    """Seen on a cluster: ONGGI_OPERATOR_PORT=tcp://... came from the Service of that name, was read
    as a setting, and the webhook did not start."""
    assert [spec["enableServiceLinks"] for spec in pod_specs(documents)] == [False, False]


def test_the_webhook_is_asked_about_pods_that_mention_us_and_no_others(
    documents: list[dict[str, Any]],
) -> None:
    (hook,) = of_kind(documents, "MutatingWebhookConfiguration")["onggi"]["webhooks"]
    assert hook["failurePolicy"] == "Ignore"
    assert hook["timeoutSeconds"] <= 5
    assert hook["reinvocationPolicy"] == "IfNeeded"
    assert hook["rules"] == [
        {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ]
    (left_out,) = hook["namespaceSelector"]["matchExpressions"]
    assert left_out == {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "onggi-system"],
    }
    assert [one["name"] for one in hook["matchConditions"]] == [
        "mentions-onggi",
        "does-not-opt-out",
        "is-no-mirror",
    ]
    assert "caBundle" not in hook["clientConfig"]


def test_further_namespaces_can_be_left_out(render: Any) -> None:
    found = of_kind(
        render("webhook.excludedNamespaces={a,kube-system}"), "MutatingWebhookConfiguration"
    )
    (left_out,) = found["onggi"]["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert left_out["values"] == ["kube-system", "onggi-system", "a"]


def _is_for_people(role: dict[str, Any]) -> bool:
    return any("aggregate-to" in label for label in role["metadata"]["labels"])


def test_people_get_pools_with_the_roles_that_they_have(
    documents: list[dict[str, Any]], render: Any
) -> None:
    def roles(found: list[dict[str, Any]]) -> dict[str, tuple[list[str], list[str]]]:
        return {
            name: (
                sorted(word.rpartition("-")[2] for word in role["metadata"]["labels"]
                       if "aggregate-to" in word),
                role["rules"][0]["verbs"],
            )
            for name, role in of_kind(found, "ClusterRole").items()
            if _is_for_people(role)
        }  # fmt: skip

    assert roles(documents) == {
        "onggi-view": (["admin", "edit", "view"], ["get", "list", "watch"]),
        "onggi-edit": (
            ["admin", "edit"], ["create", "update", "patch", "delete", "deletecollection"],
        ),
    }  # fmt: skip
    for name in ("onggi-view", "onggi-edit"):
        for rule in of_kind(documents, "ClusterRole")[name]["rules"]:
            assert (rule["apiGroups"], rule["resources"]) == (["onggi.dev"], ["kvcachepools"])
    assert roles(render("userRoles.aggregate=false")) == {}
    bound = {one["roleRef"]["name"] for one in of_kind(documents, "ClusterRoleBinding").values()}
    assert bound == {"onggi-webhook", "onggi-operator"}


def test_rights_are_these_and_no_more(documents: list[dict[str, Any]]) -> None:
    roles = {**of_kind(documents, "ClusterRole"), **of_kind(documents, "Role")}
    found = {name: role for name, role in roles.items() if not _is_for_people(role)}
    rights = {
        name: sorted(
            (f"{verb} {resource}", *rule.get("resourceNames", ()))
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        )
        for name, role in found.items()
    }
    assert rights == {
        "onggi-webhook": [
            ("get kvcachepools",),
            ("get mutatingwebhookconfigurations", "onggi"),
            ("list kvcachepools",),
            ("list limitranges",),
            ("list namespaces",),
            ("list pods",),
            ("list resourcequotas",),
            ("patch mutatingwebhookconfigurations", "onggi"),
            ("watch kvcachepools",),
            ("watch limitranges",),
            ("watch namespaces",),
            ("watch pods",),
            ("watch resourcequotas",),
        ],
        "onggi-operator": [
            ("create events",),
            ("create kvcachenodes",),
            ("create tokenreviews",),
            ("get kvcachepools",),
            ("list kvcachenodes",),
            ("list kvcachepools",),
            ("list nodes",),
            ("list pods",),
            ("patch kvcachenodes",),
            ("patch kvcachenodes/status",),
            ("patch kvcachepools/status",),
            ("watch kvcachenodes",),
            ("watch kvcachepools",),
            ("watch nodes",),
            ("watch pods",),
        ],
        "onggi-operator-lease": [
            ("get leases", "onggi-operator"),
            ("patch leases", "onggi-operator"),
        ],
        "onggi-revisions": [
            ("get configmaps", "onggi-revisions"),
            ("patch configmaps", "onggi-revisions"),
        ],
        "onggi-tls": [("get secrets", "onggi-tls"), ("patch secrets", "onggi-tls")],
    }


def test_the_secret_is_made_empty_so_that_an_upgrade_leaves_it_alone(
    documents: list[dict[str, Any]],
) -> None:
    secret = of_kind(documents, "Secret")["onggi-tls"]
    assert not {"data", "stringData"} & secret.keys()
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_schema_is_the_one_in_crds_and_stays_on_uninstall(
    documents: list[dict[str, Any]],
) -> None:
    rendered = of_kind(documents, "CustomResourceDefinition")["kvcachepools.onggi.dev"]
    source = yaml.safe_load((ROOT / "crds/v1alpha1/kvcachepools.yaml").read_text())
    assert rendered["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert rendered["spec"] == source["spec"]


def test_a_budget_only_where_there_is_more_than_one(render: Any) -> None:
    both = of_kind(render(), "PodDisruptionBudget")
    assert {name: one["spec"]["maxUnavailable"] for name, one in both.items()} == {
        "onggi-operator": 1,
        "onggi-webhook": 1,
    }
    alone = render("webhook.replicas=1", "operator.podDisruptionBudget=false")
    assert of_kind(alone, "PodDisruptionBudget") == {}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("webhook.timeoutSeconds=30", "/webhook/timeoutSeconds"),
        ("operator.replicas=6", "/operator/replicas"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("image.repository=a:b", "/image/repository"),
        ("webhok.replicas=2", "webhok"),
        ("webhook.resources.limits.memory=1GB", "/webhook/resources/limits/memory"),
        ("webhook.logLevel=verbose", "/webhook/logLevel"),
        ("fullnameOverride=Onggi", "/fullnameOverride"),
        ("fullnameOverride=2onggi", "/fullnameOverride"),
        ("fullnameOverride=onggi_kv", "/fullnameOverride"),
        ("nameOverride=kv-", "/nameOverride"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(render: Any, value: str, path: str) -> None:
    with pytest.raises(RuntimeError) as refused:
        render(value)
    assert path in str(refused.value).replace("'", "").replace(".", "/")


@pytest.mark.parametrize("size", ["17179869184", "16Gi", "16G"])
def test_large_numbers_stay_numbers(render: Any, size: str) -> None:
    """Integers of seven digits or more come out in scientific notation (helm/helm#12195)."""
    rendered = render(f"webhook.resources.limits.memory={size}")
    assert "e+" not in re.sub(r'"description".*', "", json.dumps(rendered))
    limits = pod_specs(rendered)[-1]["containers"][0]["resources"]["limits"]
    assert str(limits["memory"]) == size


def test_images_are_the_charts_own_version_unless_said_otherwise(render: Any) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert {spec["containers"][0]["image"] for spec in pod_specs(render())} == {
        f"onggi/operator:{version}"
    }
    changed = render("image.repository=localhost/x", "image.tag=dev", "agent.image.tag=dev")
    assert {spec["containers"][0]["image"] for spec in pod_specs(changed)} == {"localhost/x:dev"}
    (webhook,) = [
        one["spec"]["template"]["spec"]["containers"][0]
        for name, one in of_kind(changed, "Deployment").items()
        if name == "onggi-webhook"
    ]
    env = {entry["name"]: entry["value"] for entry in webhook["env"]}
    assert env["ONGGI_AGENT_IMAGE"] == "onggi/agent:dev"


def test_every_setting_that_the_chart_writes_is_one_that_the_program_reads(
    documents: list[dict[str, Any]],
) -> None:
    from onggi_operator.settings import read_controller_settings, read_webhook_settings

    for name, read, kind in (
        ("onggi-webhook", read_webhook_settings, "WebhookSettings"),
        ("onggi-operator", read_controller_settings, "ControllerSettings"),
    ):
        spec = of_kind(documents, "Deployment")[name]["spec"]["template"]["spec"]
        env = {entry["name"]: entry["value"] for entry in spec["containers"][0]["env"]}
        settings = read(env)
        assert type(settings).__name__ == kind
        known = {f"ONGGI_{field.upper()}" for field in type(settings).model_fields}
        assert env.keys() <= known


def test_the_version_is_the_distributions(documents: list[dict[str, Any]]) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_every_value_has_a_schema(render: Any) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    for part in ("webhook", "operator", "agent"):
        assert values[part].keys() == schema["properties"][part]["properties"].keys()


def test_lint_is_clean(helm: str) -> None:
    done = subprocess.run(
        [helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


def test_the_readmes_command_installs_the_images_that_it_built(render: Any) -> None:
    text = (ROOT / "README.md").read_text()
    (command,) = re.findall(r"^    helm install (?:.*\\\n)*.*", text, re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))
    assert words[:4] == ["helm", "install", "onggi", "charts/onggi"]
    given = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    rendered = render(*",".join(given).split(","))
    images = {spec["containers"][0]["image"] for spec in pod_specs(rendered)}
    assert images == {"localhost/onggi-operator:dev"}  # which `make images` names, as e2e does
    assert "localhost/onggi-agent:dev" in json.dumps(rendered)


@pytest.mark.parametrize("page", ["README.md", "docs/operator.md", NOTES])
def test_the_patch_of_a_page_asks_for_the_pool_of_the_page(page: str) -> None:
    text = (ROOT / page).read_text()
    (patch,) = re.findall(r"--patch(?: \\\n)?\s+'(\{.*\})'", text)
    annotations = json.loads(patch)["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {names.POOL: "chat"}
    pool = text if page != "README.md" else (ROOT / "examples/pool.yaml").read_text()
    assert re.search(r"metadata:(?: \{|\n  )name: chat\b", pool)


def test_the_notes_say_where_images_are_missing(helm: str) -> None:
    def notes(*values: str) -> str:
        given = [f"--set={value}" for value in values]
        done = subprocess.run(
            [helm, "install", "onggi", str(CHART), "--dry-run=client", *given],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.partition("NOTES:")[2]

    assert "names that no public registry has" in notes()
    named = notes("image.repository=r/o", "agent.image.repository=r/a")
    assert "onggi doctor" in named
    assert "registry" not in named
