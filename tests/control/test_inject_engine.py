"""Which container is wired, and that the others stay as they are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

LOG_AGENT = {"name": "log-agent", "image": "registry.local:5000/vllm-logs.example/fluent-bit:3"}
PROXY = {"name": "mesh-proxy", "image": "envoy:v1", "args": ["--log", "/var/log/vllm/x.log"]}


def test_the_engine_is_found_among_others_which_stay_as_they_are(kit: Any) -> None:
    """First container taken for the app, but another injector had put its proxy first
    (apache/druid#13655)."""
    logs = {"name": "log-agent", "image": "fluent-bit:3"}
    body = kit.pod(logs, kit.engine(), PROXY)
    outcome = kit.plan(body)
    after = kit.patched(body, outcome)
    assert [c["name"] for c in after["spec"]["containers"]] == ["log-agent", "engine", "mesh-proxy"]
    assert after["spec"]["containers"][0] == logs
    assert after["spec"]["containers"][2] == PROXY
    assert kit.env_of(after["spec"]["containers"][1])["ONGGI_SOCKET"] == "/run/onggi/agent.sock"
    touched = {
        op["path"].split("/")[3] for op in outcome.patch if "/spec/containers/" in op["path"]
    }
    assert touched == {"1"}


def test_two_engines_and_no_word_is_ambiguous(kit: Any) -> None:
    body = kit.pod(kit.engine("engine-a"), kit.engine("engine-b"))
    assert kit.skipped(body) == (
        "EngineAmbiguous",
        "containers engine-a, engine-b all look like vllm; name one with onggi.dev/container",
    )


def test_the_named_engine_is_wired_and_no_other(kit: Any) -> None:
    body = kit.pod(
        kit.engine("engine-a"),
        kit.engine("engine-b"),
        annotations={"onggi.dev/container": "engine-b"},
    )
    after = kit.inject(body)
    assert after["spec"]["containers"][0] == kit.engine("engine-a")
    assert "ONGGI_SOCKET" in kit.env_of(after["spec"]["containers"][1])


def test_a_misspelt_container_is_told_with_the_nearest(kit: Any) -> None:
    body = kit.pod(LOG_AGENT, kit.engine(), PROXY, annotations={"onggi.dev/container": "engin"})
    assert kit.skipped(body) == (
        "ContainerUnknown",
        'annotation onggi.dev/container is "engin", which the pod does not have;'
        " did you mean engine?",
    )


def test_the_pool_may_name_the_container_and_the_pod_may_say_otherwise(kit: Any) -> None:
    body = kit.pod(kit.engine("a"), kit.engine("b"))
    after = kit.inject(body, engine=kit.engine_in("b"))
    assert "env" not in after["spec"]["containers"][0]
    body["metadata"]["annotations"]["onggi.dev/container"] = "a"
    after = kit.inject(body, engine=kit.engine_in("b"))
    assert "env" not in after["spec"]["containers"][1]
    assert kit.skipped(kit.pod(kit.engine("a")), engine=kit.engine_in("c")) == (
        "ContainerUnknown",
        'spec.engine.container of the pool is "c", which the pod does not have; the pod has a',
    )


@pytest.mark.parametrize(
    "container",
    [
        {"image": "registry.local:5000/team/serving:1", "command": ["vllm", "serve", "m"]},
        {"image": "serving", "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"]},
        {"image": "serving", "command": ["sh", "-c", "set -e; exec vllm serve /m --port 8000"]},
        {"image": "localhost/vllm-cpu:dev"},
        {"image": "registry.local:5000/vllm@sha256:0123"},
        {"image": "serving", "args": ["/opt/venv/bin/vllm", "serve"]},
    ],
)
def test_an_engine_is_known_by_image_or_command(kit: Any, container: dict[str, Any]) -> None:
    after = kit.inject(kit.pod(LOG_AGENT, {"name": "x", **container}, PROXY))
    assert "ONGGI_SOCKET" in kit.env_of(after["spec"]["containers"][1])


def test_several_containers_of_which_none_is_an_engine_is_told(kit: Any) -> None:
    assert kit.skipped(kit.pod({"name": "a", "image": "x"}, {"name": "b", "image": "y"})) == (
        "EngineNotFound",
        "none of the containers a, b looks like vllm; name one with onggi.dev/container",
    )


def test_the_only_container_needs_no_name(kit: Any) -> None:
    kit.inject(kit.pod({"name": "main", "image": "serving"}))


@pytest.mark.parametrize(
    "spec", [{"os": {"name": "windows"}}, {"nodeSelector": {"kubernetes.io/os": "windows"}}]
)
def test_a_pod_for_windows_is_left_alone(kit: Any, spec: dict[str, Any]) -> None:
    """Pods meant for Windows nodes got a Linux sidecar and never ran (linkerd/linkerd2#2882)."""
    assert kit.skipped(kit.pod(**spec)) == (
        "UnsupportedOS",
        "the pod is meant for windows; Onggi runs on Linux",
    )


def test_the_pools_identity_reaches_the_engine_unless_it_has_its_own(kit: Any) -> None:
    said = kit.Identity("2026-05", "red")
    env = kit.env_of(kit.inject(kit.pod(), identity=said)["spec"]["containers"][0])
    assert (env["ONGGI_MODEL_REVISION"], env["ONGGI_TENANT"]) == ("2026-05", "red")
    own = kit.engine(env=[{"name": "ONGGI_TENANT", "value": "blue"}])
    env = kit.env_of(kit.inject(kit.pod(own), identity=said)["spec"]["containers"][0])
    assert (env["ONGGI_MODEL_REVISION"], env["ONGGI_TENANT"]) == ("2026-05", "blue")
    env = kit.env_of(kit.inject(kit.pod())["spec"]["containers"][0])
    assert {"ONGGI_MODEL_REVISION", "ONGGI_TENANT"}.isdisjoint(env)


def test_the_example_for_sglang_is_wired(kit: Any) -> None:
    path = Path(__file__).resolve().parents[2] / "examples/sglang.yaml"
    _, deployment = yaml.safe_load_all(path.read_text())
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"] = {"onggi.dev/pool": "main"}
    sglang = replace(kit.manual(), kind=kit.EngineKind.SGLANG)
    (engine,) = kit.inject(template, engine=sglang)["spec"]["containers"]
    assert kit.env_of(engine)["ONGGI_SOCKET"] == "/run/onggi/agent.sock"
    assert engine["args"] == template["spec"]["containers"][0]["args"]
