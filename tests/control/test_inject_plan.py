"""What an injected pod looks like."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_operator.names import label_value

MI = 1024**2
LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"


def test_the_agent_is_first_and_the_users_own_follow(kit: Any) -> None:
    mine = {"name": "download-model", "image": "x"}
    inits = kit.inject(kit.pod(initContainers=[mine]))["spec"]["initContainers"]
    assert [c["name"] for c in inits] == ["onggi-agent", "onggi-client", "download-model"]
    assert inits[0]["restartPolicy"] == "Always"
    assert inits[0]["command"] == ["onggi", "agent"]
    assert inits[0]["startupProbe"]["exec"] == {"command": ["test", "-S", "/run/onggi/agent.sock"]}
    assert inits[1]["command"] == ["onggi", "install-client", "/opt/onggi"]
    assert "restartPolicy" not in inits[1]
    assert inits[2] == mine


def test_the_agent_is_told_what_it_needs(kit: Any) -> None:
    container = kit.agent(kit.inject(kit.pod(), disk=kit.EMPTY_DIR))
    fields = {e["name"]: e["valueFrom"]["fieldRef"] for e in container["env"] if "valueFrom" in e}
    assert {k: v for k, v in kit.env_of(container).items() if k not in fields} == {
        "ONGGI_AGENT_POOL": "main",
        "ONGGI_AGENT_MODE": "Active",
        "ONGGI_AGENT_MEMORY": "1073741824",
        "ONGGI_AGENT_MEMORY_MAX": "1073741824",
        "ONGGI_AGENT_HUGEPAGES": "Auto",
        "ONGGI_AGENT_POLICY": "adaptive",
        "ONGGI_AGENT_DISK": "4294967296",
        "ONGGI_AGENT_DISK_PATH": "/var/lib/onggi",
        "ONGGI_AGENT_SOCKET": "/run/onggi/agent.sock",
        "ONGGI_AGENT_HTTP_HOST": "0.0.0.0",
        "ONGGI_AGENT_HTTP_PORT": "9464",
        "ONGGI_AGENT_LOG_LEVEL": "info",
        "ONGGI_AGENT_OPERATOR_URL": "https://onggi-operator.onggi-system.svc:8443",
        "ONGGI_AGENT_OPERATOR_CA": "PEM",
        "ONGGI_AGENT_TOKEN_FILE": "/var/run/secrets/onggi/token",
        "ONGGI_AGENT_SHUTDOWN_DEADLINE_S": "10",
        "ONGGI_AGENT_IO_DEADLINE_S": "2",
    }
    assert {name: field["fieldPath"] for name, field in fields.items()} == {
        "ONGGI_AGENT_NAMESPACE": "metadata.namespace",
        "ONGGI_AGENT_POD_NAME": "metadata.name",
        "ONGGI_AGENT_POD_UID": "metadata.uid",
        "ONGGI_AGENT_NODE_NAME": "spec.nodeName",
    }


def test_the_agents_settings_are_ones_that_the_agent_knows(kit: Any) -> None:
    """Two programs that meet only in a pod: a name that one writes and the other ignores would
    show nowhere else."""
    config = pytest.importorskip("onggi_sidecar.config")
    body = kit.inject(kit.pod(), disk=kit.HOST_PATH)
    env = kit.env_of(kit.agent(body))
    known = {f"ONGGI_AGENT_{field.upper()}" for field in config.AgentConfig.model_fields}
    assert env.keys() <= known
    values = {name: value or "x" for name, value in env.items()}
    read = config.load_config({}, {**values, "ONGGI_AGENT_POD_UID": "u"})
    assert (read.memory, read.disk) == (1024 * MI, 4096 * MI)


def test_engine_and_agent_share_the_run_folder_and_a_group(kit: Any) -> None:
    after = kit.inject(kit.pod())["spec"]
    assert after["containers"][0]["volumeMounts"] == [
        {"name": "onggi-run", "mountPath": "/run/onggi"},
        {"name": "onggi-client", "mountPath": "/opt/onggi", "readOnly": True},
    ]
    volumes = {volume["name"]: volume for volume in after["volumes"]}
    assert volumes["onggi-run"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1088Mi"}
    assert after["securityContext"] == {"supplementalGroups": [64646]}


@pytest.mark.parametrize(
    "security",
    [
        {"runAsUser": 1001, "runAsGroup": 1001, "fsGroup": 2000, "runAsNonRoot": True},
        {"runAsUser": 1001, "supplementalGroups": [5]},
        {"supplementalGroups": [64646]},
    ],
)
def test_only_a_group_is_added_to_the_pods_security(kit: Any, security: dict[str, Any]) -> None:
    own = {"runAsUser": 3000, "readOnlyRootFilesystem": True}
    after = kit.inject(kit.pod(kit.engine(securityContext=own), securityContext=security))["spec"]
    groups = after["securityContext"].pop("supplementalGroups")
    assert groups == sorted({*security.get("supplementalGroups", []), 64646})
    security.pop("supplementalGroups", None)
    assert after["securityContext"] == security
    assert after["containers"][0]["securityContext"] == own


@pytest.mark.parametrize("disk", ["EMPTY_DIR", "HOST_PATH"])
def test_injected_containers_are_restricted_and_name_their_resources(kit: Any, disk: str) -> None:
    after = kit.inject(kit.pod(), disk=getattr(kit, disk))["spec"]
    for container in after["initContainers"]:
        security = container["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == 64646
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= container["resources"][kind].keys()


def test_the_agents_memory_is_the_arena_and_the_overhead(kit: Any) -> None:
    tier = kit.MemoryTier(512 * MI, 3 * 1024 * MI)
    resources = kit.agent(kit.inject(kit.pod(), memory=tier))["resources"]
    assert resources == {
        "requests": {"cpu": "100m", "memory": "704Mi"},
        "limits": {"cpu": "1", "memory": "3264Mi"},
    }


def test_a_disk_in_the_pod_is_its_ephemeral_storage(kit: Any) -> None:
    """Pod evicted for ephemeral storage that nobody had asked for (LMCache/LMCache#1399)."""
    after = kit.inject(kit.pod(), disk=kit.EMPTY_DIR)
    resources = kit.agent(after)["resources"]
    assert resources["requests"]["ephemeral-storage"] == "4160Mi"
    assert "ephemeral-storage" not in resources["limits"]
    volumes = {volume["name"]: volume for volume in after["spec"]["volumes"]}
    assert volumes["onggi-disk"] == {"name": "onggi-disk", "emptyDir": {"sizeLimit": "4160Mi"}}


def test_a_disk_in_a_pod_whose_disk_is_limited_is_in_its_limit(kit: Any) -> None:
    """The kubelet holds a pod to the sum of its containers' limits: one of the agent's alone would
    be the engine's as well, downloads included."""
    limited = {"limits": {"ephemeral-storage": "20Gi"}}
    resources = kit.agent(kit.inject(kit.pod(kit.engine(resources=limited)), disk=kit.EMPTY_DIR))
    assert resources["resources"]["limits"]["ephemeral-storage"] == "4160Mi"
    body = kit.pod(kit.engine(resources=limited), {"name": "logs", "image": "x"})
    resources = kit.agent(kit.inject(body, disk=kit.EMPTY_DIR))["resources"]
    assert "ephemeral-storage" not in resources["limits"]
    assert resources["requests"]["ephemeral-storage"] == "4160Mi"


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_disk_that_pod_security_refuses_does_not_cost_the_pod(kit: Any, level: str) -> None:
    assert kit.skipped(kit.pod(), disk=kit.HOST_PATH, pod_security=level) == (
        "PodSecurity",
        f"namespace team-a enforces Pod Security {level}, which refuses the HostPath disk of pool"
        ' main; use another medium, or onggi.dev/disk: "0"',
    )
    without = kit.pod(annotations={"onggi.dev/disk": "0"})
    assert isinstance(kit.plan(without, disk=kit.HOST_PATH, pod_security=level), kit.Injected)
    assert isinstance(kit.plan(kit.pod(), disk=kit.EMPTY_DIR, pod_security=level), kit.Injected)


def test_a_disk_on_the_node_is_the_pools_own_folder(kit: Any) -> None:
    after = kit.inject(kit.pod(), disk=kit.HOST_PATH)
    container = kit.agent(after)
    assert "ephemeral-storage" not in container["resources"]["limits"]
    assert container["volumeMounts"][-1] == {
        "name": "onggi-disk",
        "mountPath": "/var/lib/onggi",
        "subPath": "team-a/main",
    }
    assert kit.env_of(container)["ONGGI_AGENT_DISK_CLAIM"] == "shared"
    assert kit.env_of(container)["ONGGI_AGENT_DISK_RETENTION_S"] == "0"
    kept = kit.inject(kit.pod(), disk=kit.HOST_PATH, lifecycle=kit.kept_for(86400))
    assert kit.env_of(kit.agent(kept))["ONGGI_AGENT_DISK_RETENTION_S"] == "86400"
    volumes = {volume["name"]: volume for volume in after["spec"]["volumes"]}
    assert volumes["onggi-disk"]["hostPath"] == {
        "path": "/var/lib/onggi",
        "type": "DirectoryOrCreate",
    }


def test_with_host_networking_no_port_is_claimed_or_probed(kit: Any) -> None:
    """A sidecar's fixed ports collide (cloudnative-pg/plugin-barman-cloud#466)."""
    container = kit.agent(kit.inject(kit.pod(hostNetwork=True)))
    assert "ports" not in container
    assert container["startupProbe"]["exec"] == {"command": ["test", "-S", "/run/onggi/agent.sock"]}
    assert "httpGet" not in container["startupProbe"]


FIXED = {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": 2, "memory": "8192Mi"}}


def test_a_guaranteed_pod_stays_guaranteed(kit: Any) -> None:
    after = kit.inject(kit.pod(kit.engine(resources=FIXED)), memory=kit.MemoryTier(64 * MI, kit.GI))
    assert kit.agent(after)["resources"]["requests"] == kit.agent(after)["resources"]["limits"]
    client = after["spec"]["initContainers"][1]["resources"]
    assert client["requests"] == client["limits"]


def test_a_second_call_changes_nothing(kit: Any) -> None:
    after = kit.inject(kit.pod(), disk=kit.EMPTY_DIR)
    assert kit.plan(after, disk=kit.EMPTY_DIR) == kit.Untouched("has its agent already")


def test_no_patch_names_the_pod_and_the_status_is_first(kit: Any) -> None:
    outcome = kit.plan(kit.pod())
    paths = [operation["path"] for operation in outcome.patch]
    assert paths[0] == "/metadata/annotations/onggi.dev~1status"
    assert "/metadata/name" not in paths
    assert "/metadata/generateName" not in paths


def test_a_skipped_pod_gets_its_status_and_nothing_else(kit: Any) -> None:
    body = kit.pod(kit.engine("a"), kit.engine("b"))
    review = kit.Review("1", "team-a", body)
    answer = kit.answer(review, kit.plan(body))["response"]
    operations = kit.decoded(answer["patch"])
    assert [operation["path"] for operation in operations] == [
        "/metadata/annotations/onggi.dev~1status"
    ]
    assert operations[0]["value"].startswith("skipped: EngineAmbiguous: containers a, b all look")
    assert answer["allowed"] is True
    assert len(answer["warnings"]) == 1


def test_the_same_skip_told_again_changes_nothing(kit: Any) -> None:
    body = kit.pod(kit.engine("a"), kit.engine("b"))
    outcome = kit.plan(body)
    body["metadata"]["annotations"]["onggi.dev/status"] = kit.skipped_status(outcome)
    assert "patch" not in kit.answer(kit.Review("1", "team-a", body), outcome)["response"]


def test_a_revision_names_the_shape_and_not_the_sizes(kit: Any) -> None:
    words = [
        kit.read_status(kit.plan(kit.pod(), **changes).status).word
        for changes in (
            {},
            {"memory": kit.MemoryTier(kit.GI, 2 * kit.GI)},
            {"injection": kit.injection(agent_image="x:2")},
        )
    ]
    assert words[0] == words[1] != words[2]


LIMIT = {"source": "small", "minimum": {}, "maximum": {}, "ratio": {}}


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (
            {"maximum": {"memory": "1Gi"}},
            "container onggi-agent needs 1.1Gi of memory, and at most 1Gi are allowed"
            " (LimitRange small)",
        ),
        (
            {"maximum": {"cpu": "500m"}},
            "container onggi-agent needs 1 of cpu, and at most 500m are allowed (LimitRange small)",
        ),
        (
            {"minimum": {"cpu": "75m"}},
            "container onggi-client asks for 50m of cpu, and at least 75m are required"
            " (LimitRange small)",
        ),
        (
            {"ratio": {"cpu": "4"}},
            "container onggi-agent has 1 of cpu as limit and 100m as request, and a ratio of at"
            " most 4 is allowed (LimitRange small)",
        ),
    ],
)
def test_what_the_namespace_would_refuse_is_skipped_with_both_numbers(
    kit: Any, limit: dict[str, Any], message: str
) -> None:
    limits = (kit.Limits(scope=kit.Scope.CONTAINER, **{**LIMIT, **limit}),)
    assert kit.skipped(kit.pod(), limits=limits) == ("LimitRange", message)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (
            {"ratio": {"cpu": "1"}},
            "the pod with its agent has 3 of cpu as limit and 2100m as request, and a ratio of at"
            " most 1 is allowed (LimitRange small)",
        ),
        (
            {"maximum": {"ephemeral-storage": "9Gi"}},
            "the pod with its agent has no limit of ephemeral-storage, and one of at most 9Gi is"
            " required (LimitRange small)",
        ),
    ],
)
def test_what_would_refuse_the_pod_as_a_whole_is_told(
    kit: Any, limit: dict[str, Any], message: str
) -> None:
    limits = (kit.Limits(scope=kit.Scope.POD, **{**LIMIT, **limit}),)
    body = kit.pod(kit.engine(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}))
    assert kit.skipped(body, limits=limits) == ("LimitRange", message)


def test_what_the_namespace_fills_in_is_reckoned_with(kit: Any) -> None:
    """A container that names no ephemeral storage gets the default, and then it has one."""
    most = {**LIMIT, "maximum": {"ephemeral-storage": "9Gi"}}
    limit = kit.Limits(scope=kit.Scope.CONTAINER, **most)
    assert kit.skipped(kit.pod(), limits=(limit,))[0] == "LimitRange"
    usual = {"ephemeral-storage": "1Gi"}
    filled = kit.Limits(scope=kit.Scope.CONTAINER, **most, default=usual, default_request=usual)
    kit.inject(kit.pod(), kit.POOL, (filled,))


def test_limits_that_fit_are_no_matter(kit: Any) -> None:
    most = {**LIMIT, "maximum": {"memory": "2Gi", "cpu": "1500m"}}
    limits = tuple(kit.Limits(scope=scope, **most) for scope in kit.Scope)
    kit.inject(kit.pod(), kit.POOL, limits)


def test_a_pod_that_would_outgrow_its_own_limit_is_skipped_with_both_numbers(kit: Any) -> None:
    limits = (kit.Limits(scope=kit.Scope.POD, **{**LIMIT, "maximum": {"memory": "9Gi"}}),)
    assert kit.skipped(kit.pod(kit.engine(resources=FIXED)), limits=limits) == (
        "LimitRange",
        "the pod with its agent needs 9.1Gi of memory, and at most 9Gi are allowed"
        " (LimitRange small)",
    )
    kit.inject(kit.pod(), kit.POOL, limits)


def test_long_pool_names_become_labels_that_differ(kit: Any) -> None:
    """A long owner name used as label value stops reconciling (tailscale/tailscale#18895)."""
    names = ["a" * 62 + ".one", "a" * 62 + ".two", "b" * 200]
    labels = [
        kit.inject(kit.pod(annotations={"onggi.dev/pool": name}), name=name)["metadata"]["labels"]
        for name in names
    ]
    values = [label["onggi.dev/pool"] for label in labels]
    assert len(set(values)) == 3
    assert all(len(value) <= 63 for value in values)


@given(st.from_regex(LABEL, fullmatch=True))
def test_a_name_that_is_a_label_value_is_kept(name: str) -> None:
    assert label_value(name) == name


@given(st.text(alphabet="abc.-_0Z", min_size=1, max_size=200))
def test_any_name_becomes_a_label_value(name: str) -> None:
    import re

    value = label_value(name)
    assert re.fullmatch(LABEL, value)
    assert value == label_value(name)
    other = name + "x"
    assert len(name) < 63 or label_value(other) != value


def test_a_label_of_the_users_is_kept(kit: Any) -> None:
    body = kit.pod()
    body["metadata"]["labels"] = {"app": "chat", "onggi.dev/pool": "mine"}
    assert kit.inject(body)["metadata"]["labels"] == {"app": "chat", "onggi.dev/pool": "mine"}
