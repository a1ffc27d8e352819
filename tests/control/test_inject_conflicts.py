"""The user has set it already: the user wins, and a skip says so."""

from typing import Any

import pytest


@pytest.mark.parametrize(
    "args",
    [
        ['--kv-transfer-config={"kv_connector":"Other"}'],
        ["--kv-transfer-config", '{"kv_connector":"Other"}'],
        ['--kv_transfer_config={"kv_connector":"Other"}'],
        ["--kv-transfer-config.kv_connector", "Other"],
        ["--kv-transfer-conf={}"],
        ["--kv-offloading-size", "4"],
        ["--kv_offloading_backend=native"],
    ],
)
def test_a_connector_of_the_users_wins_in_any_spelling(kit: Any, args: list[str]) -> None:
    """Connector flag in underscore spelling (opendatahub-io/opendatahub-tests#1536)."""
    reason, message = kit.skipped(kit.pod(kit.engine(args=["serve", "m", *args])))
    assert reason == "ConnectorSet"
    assert message.startswith("container engine sets --kv")


def test_a_connector_inside_a_shell_line_is_seen(kit: Any) -> None:
    line = "exec vllm serve m --kv-transfer-config '{}'"
    body = kit.pod(kit.engine(command=["sh", "-c", line]))
    assert kit.skipped(body)[0] == "ConnectorSet"


def test_other_flags_that_begin_alike_are_no_connector(kit: Any) -> None:
    kit.inject(kit.pod(kit.engine(args=["--kv-cache-dtype", "fp8", "--no-kv-transfer"])))


def test_nothing_is_added_to_the_command(kit: Any) -> None:
    body = kit.pod(kit.engine(command=["sh", "-c", "vllm serve m"], args=["x"]))
    after = kit.inject(body)["spec"]["containers"][0]
    assert (after["command"], after["args"]) == (["sh", "-c", "vllm serve m"], ["x"])


def test_a_literal_python_path_keeps_its_value_behind_ours_and_its_place(kit: Any) -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "PYTHONPATH", "value": "/app/lib"},
        {"name": "B", "value": "$(A)"},
    ]
    after = kit.inject(kit.pod(kit.engine(env=env)))["spec"]["containers"][0]["env"]
    assert after == [
        {"name": "A", "value": "1"},
        {"name": "PYTHONPATH", "value": "/opt/onggi:/app/lib"},
        {"name": "B", "value": "$(A)"},
        {"name": "ONGGI_SOCKET", "value": "/run/onggi/agent.sock"},
    ]


def test_of_two_python_paths_the_one_that_counts_is_extended(kit: Any) -> None:
    env = [{"name": "PYTHONPATH", "value": "/a"}, {"name": "PYTHONPATH"}]
    after = kit.inject(kit.pod(kit.engine(env=env)))["spec"]["containers"][0]["env"]
    assert after[:2] == [
        {"name": "PYTHONPATH", "value": "/a"},
        {"name": "PYTHONPATH", "value": "/opt/onggi"},
    ]


def test_a_python_path_by_reference_is_left_alone(kit: Any) -> None:
    """A variable taken from a ConfigMap made the injector give up, seen only in its log
    (open-telemetry/opentelemetry-operator#3166)."""
    reference = {"configMapKeyRef": {"name": "c", "key": "k"}}
    body = kit.pod(kit.engine(env=[{"name": "PYTHONPATH", "valueFrom": reference}]))
    reason, message = kit.skipped(body)
    assert reason == "PythonPathByReference"
    assert "give it as a value" in message


def test_a_python_path_that_comes_from_elsewhere_as_a_whole_stays_behind_ours(kit: Any) -> None:
    """The kubelet puts it in where the reference is; without one the text names no folder."""
    body = kit.pod(kit.engine(envFrom=[{"configMapRef": {"name": "settings"}}]))
    env = kit.env_of(kit.inject(body)["spec"]["containers"][0])
    assert env["PYTHONPATH"] == "/opt/onggi:$(PYTHONPATH)"
    assert kit.plan(body).warnings == ()


@pytest.mark.parametrize(
    "container",
    [
        {"name": "cache", "image": "x", "command": ["onggi", "agent", "--memory", "1Gi"]},
        {"name": "cache", "image": "x", "args": ["/venv/bin/onggi", "agent"]},
        {"name": "cache", "image": "registry.local/onggi/agent:1"},
        {"name": "onggi-agent", "image": "onggi-agent@sha256:01"},
    ],
)
@pytest.mark.parametrize("key", ["initContainers", "containers"])
def test_a_pod_that_brings_its_own_agent_is_left_alone(
    kit: Any, container: dict[str, Any], key: str
) -> None:
    body = kit.pod(kit.engine())
    body["spec"][key] = [*body["spec"].get(key, ()), container]
    assert kit.skipped(body) == (
        "OwnAgent",
        f"container {container['name']} is an Onggi agent that the pod brings itself; take it out,"
        " or the annotation onggi.dev/pool",
    )


def test_an_agent_that_was_injected_for_another_pool_is_not_taken_for_ours(kit: Any) -> None:
    """A running pod's YAML with the annotation changed: its agent serves the pool of before."""
    after = kit.inject(kit.pod())
    after["metadata"]["annotations"]["onggi.dev/pool"] = "other"
    assert kit.skipped(after, name="other")[0] == "OwnAgent"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"name": "VLLM_PLUGINS", "value": "lora"}, "PluginsRestricted"),
        ({"name": "VLLM_PLUGINS", "value": ""}, "PluginsRestricted"),
        ({"name": "VLLM_PLUGINS", "valueFrom": {"fieldRef": {}}}, "PluginsRestricted"),
        ({"name": "ONGGI_SOCKET", "value": "/elsewhere"}, "VariableTaken"),
    ],
)
def test_variables_that_would_keep_us_out_are_told(
    kit: Any, entry: dict[str, Any], reason: str
) -> None:
    assert kit.skipped(kit.pod(kit.engine(env=[entry])))[0] == reason


def test_a_plugin_list_that_names_us_is_fine(kit: Any) -> None:
    kit.inject(kit.pod(kit.engine(env=[{"name": "VLLM_PLUGINS", "value": "lora, onggi"}])))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"volumes": [{"name": "onggi-run", "emptyDir": {}}]},
            "the pod has a volume of its own named onggi-run; rename it",
        ),
        (
            {"initContainers": [{"name": "onggi-agent", "image": "x"}]},
            "the pod has a container of its own named onggi-agent; rename it",
        ),
    ],
)
def test_a_name_of_ours_that_is_taken_is_told(kit: Any, body: dict[str, Any], message: str) -> None:
    assert kit.skipped(kit.pod(**body)) == ("NameTaken", message)


@pytest.mark.parametrize(
    ("path", "volume", "read_only", "taken"),
    [
        ("/run/onggi", {"emptyDir": {}}, False, True),
        ("/run/onggi/", {"emptyDir": {}}, False, True),
        ("/opt/onggi/x", {"emptyDir": {}}, False, True),
        ("/run", {"emptyDir": {}}, False, False),
        ("/run", {"emptyDir": {}}, True, True),
        ("/opt", {"configMap": {"name": "c"}}, False, True),
        ("/opt/onggi-extra", {"emptyDir": {}}, False, False),
        ("/dev/shm", {"emptyDir": {"medium": "Memory"}}, False, False),
    ],
)
def test_a_mount_where_ours_belong_is_told(
    kit: Any, path: str, volume: dict[str, Any], read_only: bool, taken: bool
) -> None:
    mount = {"name": "mine", "mountPath": path, "readOnly": read_only}
    body = kit.pod(kit.engine(volumeMounts=[mount]), volumes=[{"name": "mine", **volume}])
    if taken:
        assert kit.skipped(body)[0] == "MountTaken"
    else:
        after = kit.inject(body)["spec"]
        assert after["containers"][0]["volumeMounts"][0] == mount
        assert after["volumes"][0] == {"name": "mine", **volume}


def test_resources_of_the_pod_as_a_whole_are_told(kit: Any) -> None:
    body = kit.pod(resources={"limits": {"memory": "8Gi"}})
    assert kit.skipped(body)[0] == "PodLevelResources"


def test_a_pool_that_is_switched_off_is_told(kit: Any) -> None:
    assert kit.skipped(kit.pod(), injection=kit.injection(enabled=False)) == (
        "InjectionOff",
        "pool main has spec.injection.enabled: false",
    )
