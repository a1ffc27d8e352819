"""What a pool may ask for beyond sizes: other ids, claims, flags of the user's own, a revision."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onggi_operator.inject.revision import revision_of
from onggi_operator.kube.client import Unreachable
from onggi_operator.lifecycle import WarmGate, WarmUntil
from onggi_operator.webhook.kubernetes import read_version
from onggi_operator.webhook.revisions import KEPT_MAX, Record, changes, read_records

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MI = 1024**2


def test_memory_is_asked_for_by_min_and_may_grow_to_max(kit: Any) -> None:
    """What a node's agents start with is what the scheduler gave them; more is granted."""
    env = kit.env_of(kit.agent(kit.inject(kit.pod(), memory=kit.MemoryTier(256 * MI, kit.GI))))
    assert env["ONGGI_AGENT_MEMORY"] == str(256 * MI)
    assert env["ONGGI_AGENT_MEMORY_MAX"] == str(kit.GI)


def test_ids_are_the_pools(kit: Any) -> None:
    """Where a namespace allows only a range of ids, the fixed ones would be refused."""
    after = kit.inject(kit.pod(), security=kit.Security(1000650000, 1000650001))
    for container in after["spec"]["initContainers"]:
        assert container["securityContext"]["runAsUser"] == 1000650000
        assert container["securityContext"]["runAsGroup"] == 1000650001
    assert after["spec"]["securityContext"]["supplementalGroups"] == [1000650001]


@pytest.mark.parametrize("storage_class", [None, "local-nvme"])
def test_a_disk_may_be_a_claim_of_its_own(kit: Any, storage_class: str | None) -> None:
    body = kit.pod(securityContext={"fsGroup": 2000})
    after = kit.inject(body, disk=replace(kit.CLAIM, storage_class=storage_class))
    volumes = {volume["name"]: volume for volume in after["spec"]["volumes"]}
    claim = volumes["onggi-disk"]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["accessModes"] == ["ReadWriteOnce"]
    assert claim["resources"]["requests"]["storage"] == "4791572889"
    assert claim.get("storageClassName") == storage_class
    assert after["spec"]["securityContext"]["fsGroup"] == 2000
    assert "ephemeral-storage" not in kit.agent(after)["resources"]["requests"]


def test_a_claim_that_the_agent_could_not_write_is_told(kit: Any) -> None:
    """A new volume belongs to root; `fsGroup` would make it ours, and with it every volume of the
    pod, so it is the user's to set."""
    assert kit.skipped(kit.pod(), disk=kit.CLAIM) == (
        "ClaimNotWritable",
        "the disk of pool main is a claim, which belongs to root unless the pod sets"
        ' securityContext.fsGroup; set it, or onggi.dev/disk: "0"',
    )
    kit.inject(kit.pod(annotations={"onggi.dev/disk": "0"}), disk=kit.CLAIM)


@pytest.mark.parametrize(
    ("bound", "word"),
    [({"maximum": {"storage": "4Gi"}}, "at most 4Gi"), ({"minimum": {"storage": "9Gi"}}, "9Gi")],
)
def test_a_claim_that_a_limit_range_refuses_is_told(
    kit: Any, bound: dict[str, Any], word: str
) -> None:
    limit = {"source": "small", "minimum": {}, "maximum": {}, "ratio": {}, **bound}
    limits = (kit.Limits(scope=kit.Scope.CLAIM, **limit),)
    body = kit.pod(securityContext={"fsGroup": 2000})
    reason, message = kit.skipped(body, disk=kit.CLAIM, limits=limits)
    assert reason == "LimitRange"
    assert word in message
    kit.inject(body, kit.POOL, limits)


@pytest.mark.parametrize("name", ["requests.storage", "persistentvolumeclaims"])
def test_a_claim_counts_in_a_quota(kit: Any, name: str) -> None:
    hard = {name: "1" if name.startswith("persistent") else "5Gi"}
    used = {name: "1" if name.startswith("persistent") else "2Gi"}
    quota = {"metadata": {"name": "q"}, "status": {"hard": hard, "used": used}}
    body = kit.pod(securityContext={"fsGroup": 2000})
    quotas = (kit.read_quota(quota),)
    reason, message = kit.skipped(body, disk=kit.CLAIM, quotas=quotas)
    assert reason == "Quota"
    assert name in message
    kit.inject(body, quotas=quotas)


FLAG = ["--kv-transfer-config", "{}"]


def test_with_manual_the_flags_are_the_users(kit: Any) -> None:
    env = [{"name": "VLLM_PLUGINS", "value": ""}]
    command = ["python", "-I", "-m", "vllm.entrypoints.openai.api_server", *FLAG]
    body = kit.pod(kit.engine(command=command, env=env))
    outcome = kit.plan(body, engine=kit.manual())
    after = kit.patched(body, outcome)["spec"]["containers"][0]
    assert after["command"] == command
    assert kit.env_of(after) == {
        "VLLM_PLUGINS": "",
        "PYTHONPATH": "/opt/onggi",
        "ONGGI_SOCKET": "/run/onggi/agent.sock",
        "ONGGI_CONFIGURE": "Manual",
    }
    assert "starts Python with -I" in outcome.warnings[0]


def test_an_engine_without_plugins_needs_flags(kit: Any) -> None:
    body = kit.pod({"name": "e", "image": "lmsysorg/sglang:v1"})
    sglang = replace(kit.POOL.engine, kind=kit.EngineKind.SGLANG)
    assert kit.skipped(body, engine=sglang) == (
        "EngineNeedsFlags",
        "sglang has no plugin that could switch Onggi's client on; set spec.engine.configure of"
        " the pool to Manual and give the engine its flags",
    )
    # With Manual its backend finds all but the flags in the environment.
    known = replace(kit.POOL.identity, model_revision="r7", tenant="t")
    after = kit.inject(
        body, engine=replace(kit.manual(), kind=kit.EngineKind.SGLANG), identity=known
    )
    assert kit.env_of(after["spec"]["containers"][0]) == {
        "PYTHONPATH": "/opt/onggi",
        "ONGGI_SOCKET": "/run/onggi/agent.sock",
        "ONGGI_CONFIGURE": "Manual",
        "ONGGI_MODEL_REVISION": "r7",
        "ONGGI_TENANT": "t",
    }


def test_new_pods_get_the_latest_unless_their_pool_is_pinned(kit: Any) -> None:
    """An upgrade of an operator must not change what pods get before somebody says so."""
    old = revision_of("onggi/agent:0")
    install = replace(kit.INSTALL, revisions={old.name: old.agent_image})
    latest = kit.inject(kit.pod(), install=install)
    assert kit.agent(latest)["image"] == "onggi/agent:1"
    pinned = kit.injection(update_policy=kit.UpdatePolicy.PINNED, revision=old.name)
    after = kit.inject(kit.pod(), install=install, injection=pinned)
    assert [one["image"] for one in after["spec"]["initContainers"]] == ["onggi/agent:0"] * 2
    stamp = kit.read_status(after["metadata"]["annotations"]["onggi.dev/status"])
    assert stamp.word == old.name
    # And back again: the pin names what is the latest now.
    newest = kit.read_status(latest["metadata"]["annotations"]["onggi.dev/status"]).word
    pinned = kit.injection(update_policy=kit.UpdatePolicy.PINNED, revision=newest)
    assert kit.agent(kit.inject(kit.pod(), injection=pinned))["image"] == "onggi/agent:1"


def test_a_pin_to_what_nobody_knows_is_told(kit: Any) -> None:
    pinned = kit.injection(update_policy=kit.UpdatePolicy.PINNED, revision="0123456789")
    known = revision_of("onggi/agent:1").name
    assert kit.skipped(kit.pod(), injection=pinned) == (
        "UnknownRevision",
        "pool main pins revision 0123456789, which this installation never injected; it knows"
        f" {known}",
    )


def test_a_pool_may_pin_an_image_of_its_own(kit: Any) -> None:
    own = revision_of("mine/agent:7")
    pinned = kit.injection(
        update_policy=kit.UpdatePolicy.PINNED, revision=own.name, agent_image="mine/agent:7"
    )
    assert kit.agent(kit.inject(kit.pod(), injection=pinned))["image"] == "mine/agent:7"


def test_a_revision_is_written_down_once_and_the_oldest_go() -> None:
    current = revision_of("onggi/agent:1")
    written = changes({}, current, NOW)
    records = read_records({name: text for name, text in written.items() if text})
    assert records == {current.name: Record("onggi/agent:1", "2026-01-01T00:00:00Z")}
    assert changes(records, current, NOW + timedelta(days=1)) == {}
    full = {f"r{i:03}": Record("x", f"2025-01-01T00:{i:02}:00Z") for i in range(KEPT_MAX)}
    more = changes(full, current, NOW)
    assert [name for name, text in more.items() if text is None] == ["r000"]


def test_what_somebody_else_put_there_is_left_out() -> None:
    assert read_records({"a": "nope", "b": "{}", "c": "[]"}) == {}


@pytest.mark.parametrize("restart", ["Always", "Never", "OnFailure"])
def test_before_native_sidecars_no_pod_gets_an_agent(kit: Any, restart: str) -> None:
    """It would be an init container that never ends."""
    install = replace(kit.INSTALL, kubernetes=(1, 28))
    reason, message = kit.skipped(kit.pod(restartPolicy=restart), install=install)
    assert reason == "OldKubernetes"
    assert "1.28" in message
    kit.inject(kit.pod(), install=replace(kit.INSTALL, kubernetes=(1, 29)))


def warm(kit: Any, until: WarmUntil = WarmUntil.DISK_ADOPTED) -> dict[str, Any]:
    return {"lifecycle": replace(kit.POOL.lifecycle, warm_gate=WarmGate(until, 300))}


def test_a_warm_gate_is_put_beside_what_the_pod_waits_for_already(kit: Any) -> None:
    install = replace(kit.INSTALL, warm_gates=True)
    ours = {"conditionType": "onggi.dev/warm"}
    after = kit.inject(kit.pod(), install=install, **warm(kit))
    assert after["spec"]["readinessGates"] == [ours]
    other = {"conditionType": "example.com/other"}
    for present in ([other], [other, ours]):
        after = kit.inject(kit.pod(readinessGates=present), install=install, **warm(kit))
        assert after["spec"]["readinessGates"] == [other, ours]
    after = kit.inject(kit.pod(), install=install, **warm(kit, WarmUntil.OFF))
    assert "readinessGates" not in after["spec"]


def test_a_warm_gate_that_nobody_would_open_is_left_out_and_told(kit: Any) -> None:
    after = kit.inject(kit.pod(), **warm(kit))
    assert "readinessGates" not in after["spec"]
    assert after["metadata"]["annotations"]["onggi.dev/status"].endswith(
        "; note: the pool's lifecycle.warmGate is left out, since this installation opens none:"
        " operator.warmGates of the chart allows it"
    )


class Answers:
    """An API server that answers one thing."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def get(self, path: str) -> Any:
        assert path == "/version"
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"major": "1", "minor": "33"}, (1, 33)),
        ({"major": "1", "minor": "28+"}, (1, 28)),
        ({"major": "1"}, None),
        (Unreachable("away"), None),
    ],
)
async def test_the_version_is_read_where_it_can_be(answer: Any, version: Any) -> None:
    assert await read_version(Answers(answer)) == version  # type: ignore[arg-type]
