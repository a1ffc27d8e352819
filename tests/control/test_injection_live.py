"""Injection where the API server's own rules decide: who is asked at all, dry runs, other
injectors, defaults and quotas of a namespace, Pod Security, names, upgrades."""

import copy
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

TEAM = "team-i"
STATUS = "onggi.dev/status"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
SECURE_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
SECURE = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def pods(namespace: str = TEAM) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def pools(namespace: str = TEAM) -> str:
    return f"/apis/onggi.dev/v1alpha1/namespaces/{namespace}/kvcachepools"


def pool(name: str = "chat", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "onggi.dev/v1alpha1",
        "kind": "KVCachePool",
        "metadata": {"name": name},
        "spec": spec,
    }


def disk_pool(name: str, **disk: Any) -> dict[str, Any]:
    local = {"type": "LocalDisk", "localDisk": {"max": "1Gi", **disk}}
    return pool(name, tiers=[{"type": "Memory", "memory": {}}, local])


def pod(pool: str | None = "chat", **spec: Any) -> dict[str, Any]:
    annotations = {"onggi.dev/pool": pool} if pool is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "chat-6d5f7c-", "annotations": annotations},
        "spec": {
            "serviceAccountName": "default",
            "containers": [{"name": "vllm", "image": "vllm/vllm-openai:v1"}],
            **spec,
        },
    }


def inits(made: dict[str, Any]) -> list[str]:
    return [one["name"] for one in made["spec"].get("initContainers", ())]


def status(made: dict[str, Any]) -> str:
    return str(made["metadata"].get("annotations", {}).get(STATUS, ""))


@pytest.fixture(scope="module")
def cluster(installed: Any, apiserver: Any) -> Iterator[Any]:
    installed.namespace(TEAM)
    installed.refused = apiserver.Refused
    with installed.process("webhook") as part:
        installed.part = part
        installed.server.request("POST", pools(), pool())
        until(lambda: status(installed.server.request("POST", f"{pods()}?dryRun=All", pod())))
        yield installed


def until(seen: Any, *, within_s: float = 30) -> Any:
    """What is followed by watches, and configurations of webhooks, take a moment."""
    deadline = time.monotonic() + within_s
    while not (found := seen()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.1)
    return found


def asked(cluster: Any) -> int:
    return int(cluster.part.histogram("onggi_webhook_admission_seconds", above_s=1.0)[1])


def test_who_does_not_ask_is_never_brought_before_the_webhook(cluster: Any) -> None:
    before = asked(cluster)
    server = cluster.server
    server.request("POST", pods(), pod(None))
    opted_out = pod()
    opted_out["metadata"]["annotations"]["onggi.dev/inject"] = "false"
    server.request("POST", pods(), opted_out)
    other = pod(None)
    other["metadata"]["annotations"] = {"example.com/onggi.dev": "x", "onggi.development/pool": "y"}
    server.request("POST", pods(), other)
    server.request("POST", pods("kube-system"), pod())
    server.request("POST", pods("onggi-system"), pod())
    named = server.request("POST", pods(), pod(None))["metadata"]["name"]
    server.request(
        "PATCH",
        f"{pods()}/{named}",
        {"metadata": {"annotations": {"onggi.dev/pool": "chat"}}},
        kind="application/merge-patch+json",
    )
    assert asked(cluster) == before
    server.request("POST", pods(), pod())
    assert asked(cluster) > before


@pytest.mark.parametrize("key", ["onggi.dev/poool", "onggi.dev/colour"])
def test_a_key_that_nobody_knows_is_told_even_alone(cluster: Any, key: str) -> None:
    body = pod(None)
    body["metadata"]["annotations"] = {key: "chat"}
    made, warnings = cluster.server.request_with_warnings("POST", pods(), body)
    assert status(made).startswith(f"skipped: UnknownAnnotation: annotation {key} does not exist")
    assert inits(made) == []
    assert len(warnings) == 1


def test_a_dry_run_shows_what_would_be_and_leaves_nothing(cluster: Any) -> None:
    body = pod()
    body["metadata"] = {**body["metadata"], "name": "dry"}
    shown = [cluster.server.request("POST", f"{pods()}?dryRun=All", body) for _ in range(2)]
    assert inits(shown[0]) == ["onggi-agent", "onggi-client"]
    assert shown[0]["spec"] == shown[1]["spec"]
    listed = cluster.server.request("GET", pods())["items"]
    assert "dry" not in {one["metadata"]["name"] for one in listed}


def test_the_yaml_of_a_running_pod_makes_the_same_pod_again(cluster: Any) -> None:
    first = cluster.server.request("POST", pods(), pod())
    again = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "again",
            "annotations": first["metadata"]["annotations"],
            "labels": first["metadata"]["labels"],
        },
        "spec": copy.deepcopy(first["spec"]),
    }
    made = cluster.server.request("POST", pods(), again)
    assert made["spec"] == first["spec"]
    assert status(made) == status(first)


def test_applying_a_pod_twice_changes_nothing(cluster: Any) -> None:
    body = pod()
    body["metadata"] = {"name": "applied", "annotations": {"onggi.dev/pool": "chat"}}
    first = cluster.server.apply(pods(), body)
    second = cluster.server.apply(pods(), body)
    assert inits(first) == ["onggi-agent", "onggi-client"]
    assert second["spec"] == first["spec"]


MESH = [
    {"op": "add", "path": "/spec/containers/0", "value": {"name": "mesh-proxy", "image": "envoy"}},
    {
        "op": "add",
        "path": "/spec/initContainers",
        "value": [{"name": "mesh-init", "image": "iptables"}],
    },
]


@pytest.mark.parametrize("name", ["aa-mesh", "zz-mesh"])
def test_beside_a_mesh_in_either_order_there_is_one_agent_and_the_engine_has_it(
    cluster: Any, second_injector: Any, tmp_path: Path, name: str
) -> None:
    namespace = f"{name}-team"
    cluster.namespace(namespace)
    cluster.server.request("POST", pools(namespace), pool())
    patch = copy.deepcopy(MESH)
    if name == "zz-mesh":  # called after us, it puts its own in front of ours
        patch[1] = {**patch[1], "path": "/spec/initContainers/0", "value": patch[1]["value"][0]}
    with second_injector.running(cluster.server, tmp_path, name, patch, namespace=namespace):
        made = until(lambda: _with_mesh(cluster, namespace))
    expected = {
        "aa-mesh": ["onggi-agent", "onggi-client", "mesh-init"],
        "zz-mesh": ["mesh-init", "onggi-agent", "onggi-client"],
    }
    assert inits(made) == expected[name]
    proxy, engine = made["spec"]["containers"]
    assert [one["name"] for one in (proxy, engine)] == ["mesh-proxy", "vllm"]
    assert "env" not in proxy
    variables = [entry["name"] for entry in engine["env"]]
    assert variables == ["PYTHONPATH", "ONGGI_SOCKET"]
    agent = next(one for one in made["spec"]["initContainers"] if one["name"] == "onggi-agent")
    # A probe over the network would be sent to a proxy that is not there yet.
    assert set(agent["startupProbe"]) & {"httpGet", "tcpSocket", "grpc"} == set()


def _with_mesh(cluster: Any, namespace: str) -> dict[str, Any] | None:
    made: dict[str, Any] = cluster.server.request("POST", f"{pods(namespace)}?dryRun=All", pod())
    there = {one["name"] for one in made["spec"]["containers"]}
    return made if "mesh-proxy" in there and status(made) else None


def test_an_engine_that_another_injector_adds_after_us_is_found(
    cluster: Any, second_injector: Any, tmp_path: Path
) -> None:
    namespace = "late-team"
    cluster.namespace(namespace)
    cluster.server.request("POST", pools(namespace), pool())
    late = {"name": "mesh-proxy", "image": "vllm/vllm-openai:v1"}
    patch = [{"op": "add", "path": "/spec/containers/-", "value": late}]
    two = [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]
    with second_injector.running(cluster.server, tmp_path, "zz-late", patch, namespace=namespace):
        made = until(
            lambda: _injected(cluster.server.request("POST", pods(namespace), pod(containers=two)))
        )
    assert [bool(one.get("env")) for one in made["spec"]["containers"]] == [False, False, True]


def _injected(made: dict[str, Any]) -> dict[str, Any] | None:
    return made if status(made).startswith("injected: ") else None


def test_defaults_of_the_namespace_are_not_the_agents(cluster: Any) -> None:
    namespace = "defaults"
    cluster.namespace(namespace)
    cluster.server.request("POST", pools(namespace), disk_pool("chat"))
    default = {"memory": "128Mi", "cpu": "250m", "ephemeral-storage": "512Mi"}
    cluster.server.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/limitranges",
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "usual"},
            "spec": {"limits": [{"type": "Container", "default": default}]},
        },
    )
    made = until(lambda: _injected(cluster.server.request("POST", pods(namespace), pod())))
    agent = made["spec"]["initContainers"][0]["resources"]
    assert agent["limits"] == {"cpu": "1", "memory": "1216Mi", "ephemeral-storage": "1088Mi"}
    assert made["spec"]["containers"][0]["resources"]["limits"] == default
    for one in made["spec"]["initContainers"]:
        assert {"cpu", "memory"} <= set(one["resources"]["requests"])


def test_a_quota_charges_the_sum_and_never_costs_a_pod(cluster: Any) -> None:
    """In a cluster quotas are counted first by a controller; the API server goes on from there."""
    namespace = "quota"
    cluster.namespace(namespace)
    cluster.server.request("POST", pools(namespace), pool())
    hard = {
        "limits.memory": "6Gi",
        "requests.memory": "6Gi",
        "limits.cpu": "9",
        "requests.cpu": "9",
    }
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team"},
        "spec": {"hard": hard},
    }
    quota = cluster.server.request("POST", path, body)
    quota["status"] = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    cluster.server.request("PUT", f"{path}/team/status", quota)
    fixed = {"cpu": "1", "memory": "2Gi"}
    engine = {"name": "vllm", "image": "vllm", "resources": {"limits": fixed}}
    first = until(
        lambda: _accepted(cluster, namespace, pod(containers=[copy.deepcopy(engine)]), but="quota")
    )
    assert status(first).startswith("injected: ")
    used = cluster.server.request("GET", f"{path}/team")["status"]["used"]
    assert used == {
        "limits.cpu": "2",
        "limits.memory": "3264Mi",
        "requests.cpu": "2",
        "requests.memory": "3264Mi",
    }
    # 2880Mi are left: enough for the engine, and not for an agent beside it.
    second = until(
        lambda: _accepted(cluster, namespace, pod(containers=[copy.deepcopy(engine)]), but="quota")
    )
    assert status(second) == (
        "skipped: Quota: the pod with its agent needs 3.1Gi of limits.memory, and 2.8Gi are left"
        " (ResourceQuota team)"
    )
    assert inits(second) == []


def _accepted(
    cluster: Any, namespace: str, body: dict[str, Any], *, but: str
) -> dict[str, Any] | None:
    """None for the refusal that is expected until what is new was heard of: a controller would ask
    again as well."""
    try:
        made: dict[str, Any] = cluster.server.request("POST", pods(namespace), body)
    except cluster.refused as refusal:
        if but not in str(refusal):
            raise
        return None
    return made


def test_pod_security_restricted_takes_injected_pods_and_no_pod_is_lost(cluster: Any) -> None:
    namespace = "strict-i"
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": RESTRICTED},
    }
    cluster.server.apply("/api/v1/namespaces", body)
    for one in (
        disk_pool("inside"),
        disk_pool("claimed", medium="ClaimTemplate", claimTemplate={}),
        disk_pool("node", medium="HostPath", path="/var/lib/onggi"),
        pool("ids", security={"runAsUser": 1000650000, "group": 1000650000}),
    ):
        cluster.server.request("POST", pools(namespace), one)
    security = {**SECURE_POD, "fsGroup": 2000}
    engine = {"name": "vllm", "image": "vllm", "securityContext": SECURE}
    made = {
        name: until(lambda name=name: _stamped(cluster, namespace, name, security, engine))
        for name in ("inside", "claimed", "node", "ids")
    }
    for name in ("inside", "claimed", "ids"):
        assert status(made[name]).startswith("injected: "), name
        assert made[name]["spec"]["securityContext"]["fsGroup"] == 2000
    assert status(made["node"]).startswith(
        "skipped: PodSecurity: namespace strict-i enforces Pod Security restricted"
    )


def _stamped(
    cluster: Any, namespace: str, name: str, security: Any, engine: Any
) -> dict[str, Any] | None:
    body = pod(name, securityContext=security, containers=[copy.deepcopy(engine)])
    return _accepted(cluster, namespace, body, but="hostPath")


@pytest.mark.parametrize("restart", ["Never", "OnFailure", "Always"])
def test_pods_that_end_have_an_agent_that_does_not_hold_them_up(cluster: Any, restart: str) -> None:
    """A container-level restart rule has effect only among init containers
    (RedHatInsights/clowder#1783)."""
    made = cluster.server.request("POST", pods(), pod(restartPolicy=restart))
    assert made["spec"]["restartPolicy"] == restart
    agent, client = made["spec"]["initContainers"]
    assert agent["restartPolicy"] == "Always"
    assert "restartPolicy" not in client


def test_long_names_are_taken_and_differ(cluster: Any) -> None:
    names = ["a" * 62 + ".one", "a" * 62 + ".two", "b" * 200]
    labels = []
    for name in names:
        cluster.server.request("POST", pools(), pool(name))
        body = pod(name)
        body["metadata"]["generateName"] = "g" * 240
        made = cluster.server.request("POST", f"{pods()}?dryRun=All", body)
        assert status(made).startswith("injected: ")
        assert made["metadata"]["annotations"]["onggi.dev/pool"] == name
        labels.append(made["metadata"]["labels"]["onggi.dev/pool"])
    assert len(set(labels)) == 3


def test_a_pool_that_comes_after_its_pod_helps_the_next_one(cluster: Any) -> None:
    early = cluster.server.request("POST", pods(), pod("later"))
    assert status(early).startswith("skipped: UnknownPool: ")
    cluster.server.request("POST", pools(), pool("later"))
    assert status(cluster.server.request("POST", pods(), pod("later"))).startswith("injected: ")


def test_a_pin_outlives_an_upgrade(cluster: Any) -> None:
    """The webhook of another version takes over; who is pinned gets what was before, who is not
    gets what is new, and pods that run are not touched."""
    path = "/api/v1/namespaces/onggi-system/configmaps/onggi-revisions"
    before = cluster.server.request("POST", pods(), pod())
    old = status(before).split(": ")[1]
    assert old in cluster.server.request("GET", path)["data"]
    cluster.server.request(
        "POST", pools(), pool("pinned", injection={"updatePolicy": "Pinned", "revision": old})
    )
    image = before["spec"]["initContainers"][0]["image"]
    assert cluster.part.stop() == 0
    cluster.part.overrides = {"ONGGI_AGENT_IMAGE": "onggi/agent:next"}
    cluster.part.start()
    try:
        new = until(lambda: _injected(cluster.server.request("POST", pods(), pod())))
        pinned = cluster.server.request("POST", pods(), pod("pinned"))
    finally:
        cluster.part.overrides = {}
    assert new["spec"]["initContainers"][0]["image"] == "onggi/agent:next"
    assert status(new).split(": ")[1] != old
    assert pinned["spec"]["initContainers"][0]["image"] == image
    assert status(pinned).split(": ")[1] == old
    after = cluster.server.request("GET", f"{pods()}/{before['metadata']['name']}")
    assert after["spec"] == before["spec"]
    assert len(cluster.server.request("GET", path)["data"]) >= 2


def test_the_webhook_runs_as_a_user_that_has_no_name(cluster: Any) -> None:
    """As in a namespace that gives each of its pods an id of its own. The image sets LOGNAME and
    HOME; nothing else may ask who this is."""
    another = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    try:
        works = subprocess.run([*another, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        works = False
    if not works:
        pytest.skip("no user namespaces here")
    assert cluster.part.stop() == 0
    cluster.part.prefix = another
    cluster.part.overrides = {"LOGNAME": "onggi", "HOME": "/nonexistent"}
    cluster.part.start()
    try:
        made = until(lambda: _injected(cluster.server.request("POST", pods(), pod())))
    finally:
        cluster.part.prefix, cluster.part.overrides = [], {}
    assert inits(made) == ["onggi-agent", "onggi-client"]
