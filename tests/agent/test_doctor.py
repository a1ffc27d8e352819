"""What `onggi doctor` says, inside a pod and outside of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_process import REPOSITORY, BareClient, StartAgent, ready, until

from onggi.connectors.sglang import plugin as sglang_plugin
from onggi.connectors.vllm import plugin
from onggi_operator import names
from onggi_sidecar.doctor import agent, flags, manifest
from onggi_sidecar.doctor.finding import Finding, Level, lines

FIGURES: dict[str, Any] = {
    "pool": "chat",
    "socket": "/run/onggi/agent.sock",
    "greeted_sessions": 1,
    "clients": [{"engine": "vllm", "spaces": 1}],
    "mode": "Active",
    "arena_budget_bytes": 2**30,
    "arena_ready_bytes": 2**30,
    "host_used_bytes": 2**29,
    "disk_bytes": 2**31,
    "disk_budget_bytes": 2**31,
    "disk_used_bytes": 0,
    "disk_breaker": "closed",
    "disk_breaker_opened": 0,
    "disk_stuck_jobs": 0,
    "disk_no_space": 0,
    "lookup_blocks": 1000,
    "hit_host_blocks": 700,
    "hit_disk_blocks": 50,
    "tokens_saved": 12_000,
    "errors": {},
}


def said(**figures: Any) -> list[Finding]:
    return agent.judge({**FIGURES, **figures}, "")


def test_an_agent_that_does_well_is_told_with_its_figures() -> None:
    assert lines(said()) == [
        "[ok] the agent of pool chat serves on /run/onggi/agent.sock",
        "[ok] the engine has loaded the client: 1 client (vllm)",
        "[ok] memory: 512MiB used of 1GiB",
        "[ok] disk: 0B used of 2GiB",
        "[ok] 750 of 1000 blocks were hits (75%); 12000 tokens were not computed again",
    ]


@pytest.mark.parametrize(
    ("figures", "level", "word"),
    [
        (
            {"clients": []},
            Level.NOTE,
            "no engine is attached now; sessions since the agent started: 1",
        ),
        ({"clients": [], "greeted_sessions": 0}, Level.WRONG, "no engine has loaded the client"),
        ({"refused_clients": 3, "last_refusal": "no"}, Level.WRONG, "refused 3 times, last: no"),
        ({"pool": ""}, Level.FINE, "the agent serves on /run/onggi/agent.sock, outside Kubernetes"),
        ({"mode": "Observe"}, Level.NOTE, "nothing is stored"),
        ({"mode": "Paused"}, Level.NOTE, "every lookup is a miss"),
        ({"arena_ready_bytes": 2**26}, Level.NOTE, " of 64MiB that are ready; of 1GiB in all"),
        ({"refused_blocks": 6, "stored_blocks": 94}, Level.NOTE, "6 blocks found no room, 94 did"),
        ({"disk_breaker": "open"}, Level.WRONG, "its breaker is open"),
        ({"disk_breaker": "half_open"}, Level.WRONG, "its breaker is half_open"),
        ({"disk_stuck_jobs": 3}, Level.WRONG, "3 jobs are past their deadline"),
        ({"disk_no_space": 1}, Level.WRONG, "its filesystem is full"),
        ({"disk_breaker_opened": 2}, Level.NOTE, "opened 2 times"),
        ({"disk_bytes": 0}, Level.FINE, "disk: none"),
        ({"lookup_blocks": 7}, Level.NOTE, "7 blocks were asked for so far"),
        ({"errors": {"no_space": 4, "bad_frame": 9}}, Level.NOTE, "no_space 4: "),
    ],
)
def test_each_trouble_is_told(figures: dict[str, Any], level: Level, word: str) -> None:
    (found,) = [finding for finding in said(**figures) if word in finding.what]
    assert found.level is level


def test_what_other_sizes_and_the_mode_active_would_find_is_told() -> None:
    curve = [[2**29, 0.31], [2**30, 0.5], [2**32, 0.68]]
    seen = {"asked_blocks": 400, "hit_share": 0.5, "hit_blocks": 200, "saved_tokens": 3200}
    told = lines(said(mode="Observe", observe=seen, demand={"curve": curve}))
    assert told[-2:] == [
        "[ok] Active would have found about 50% of the 400 blocks that were asked for: some 3200"
        " tokens not computed again",
        "[ok] hits that each size would bring, estimated: 512MiB 31%, 1GiB 50%, 4GiB 68%",
    ]
    few = {**seen, "asked_blocks": 7}
    assert not any("Active would" in line for line in lines(said(mode="Observe", observe=few)))


def test_an_agent_that_refused_its_only_client_is_not_said_to_have_had_none() -> None:
    none = {"clients": [], "greeted_sessions": 0, "refused_clients": 1, "last_refusal": "no"}
    told = [finding.what for finding in said(**none) if finding.level is Level.WRONG]
    assert told == ["a client was refused once, last: no"]


def test_few_blocks_without_room_are_no_trouble() -> None:
    assert said(refused_blocks=5, stored_blocks=95) == said()


def test_an_agent_that_is_not_ready_says_why() -> None:
    assert agent.judge(FIGURES, "no extent is there")[0] == Finding(
        Level.WRONG, "the agent is not ready: no extent is there"
    )


def pod(annotations: dict[str, str], **more: Any) -> dict[str, Any]:
    meta = {"name": "chat-0", "annotations": annotations, **more.pop("metadata", {})}
    return {"kind": "Pod", "metadata": meta, "spec": {}, **more}


SKIPPED = "skipped: Quota: the pod with its agent needs 5Gi of memory, and 4Gi are left"


@pytest.mark.parametrize(
    ("annotations", "level", "word"),
    [
        ({names.POOL: "chat", names.STATUS: "injected: r1: pool chat"}, Level.FINE, "injected"),
        ({names.POOL: "chat", names.STATUS: SKIPPED}, Level.WRONG, SKIPPED),
        ({names.POOL: "chat"}, Level.WRONG, "the webhook never saw it"),
        ({names.POOL: "chat", names.INJECT: "false"}, Level.NOTE, "opts out"),
        ({}, Level.WRONG, "asks for no pool"),
        ({"onggi.dev/poool": "chat"}, Level.WRONG, "annotation onggi.dev/poool does not exist"),
        ({"ongi.dev/pool": "chat"}, Level.WRONG, "annotation ongi.dev/pool does not exist"),
    ],
)
def test_a_pod_says_what_became_of_it(annotations: dict[str, str], level: Level, word: str) -> None:
    assert any(one.level is level and word in one.what for one in manifest.judge(pod(annotations)))


def test_a_misspelt_key_is_answered_with_the_nearest_and_others_keys_are_not() -> None:
    found = manifest.judge(pod({"onggi.dev/memroy": "1Gi", "example.com/pool": "x"}))
    assert (
        Finding(
            Level.WRONG,
            "annotation onggi.dev/memroy does not exist",
            "did you mean onggi.dev/memory?",
        )
        in found
    )
    assert not any("example.com" in one.what for one in found)


def test_an_annotation_in_the_wrong_place_is_told_where_it_belongs() -> None:
    """Annotation on the Deployment, not on its template (cyberark/sidecar-injector#23)."""
    template: dict[str, Any] = {"metadata": {}}
    deployment = {
        "kind": "Deployment",
        "metadata": {"annotations": {names.POOL: "chat"}},
        "spec": {"template": template},
    }
    (found,) = manifest.judge(deployment)
    assert found.level is Level.WRONG
    assert "on the Deployment itself" in found.what
    assert found.then.startswith("put it on the pod template")
    template["metadata"] = {"annotations": {names.POOL: "chat"}}
    assert [one.level for one in manifest.judge(deployment)] == [Level.FINE]
    (labelled,) = manifest.judge(pod({}, metadata={"labels": {names.POOL: "chat"}}))
    assert "is a label" in labelled.what


def test_how_the_agents_container_fares_is_told() -> None:
    status = {
        "name": "onggi-agent",
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
    }
    body = pod(
        {names.POOL: "chat", names.STATUS: "injected: r1: pool chat"},
        status={"initContainerStatuses": [status, {"name": "other", "restartCount": 9}]},
    )
    told = [one.what for one in manifest.judge(body)][1:]
    assert told == [
        "the agent waits: CrashLoopBackOff back-off 20s",
        "the agent was started 3 times (last: OOMKilled, exit code 137)",
    ]


def test_the_doctor_knows_the_webhooks_annotations() -> None:
    assert set(manifest.KNOWN) == set(names.ANNOTATIONS)
    assert manifest.AGENT == names.AGENT_CONTAINER


def test_the_flags_are_those_that_the_plugin_fills_in() -> None:
    assert flags.VLLM_CONNECTOR["kv_connector"] == plugin.CONNECTOR
    assert flags.VLLM_CONNECTOR["kv_connector_module_path"] == plugin.MODULE
    (line,) = [line for line in flags.told() if "vLLM" in line and "--kv" in line]
    assert json.loads(line.split("'")[1]) == flags.VLLM_CONNECTOR
    assert flags.IN_A_POD == (names.CLIENT_PATH, names.SOCKET_PATH)


def test_the_flags_for_sglang_are_those_that_its_plugin_hints_at() -> None:
    assert flags.SGLANG_CONFIG == sglang_plugin.CONFIG
    first, second = (line for line in flags.told() if "hicache" in line)
    assert " ".join(f"{first} {second}".split()[1:]) == " ".join(sglang_plugin.FLAGS)


def doctor(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onggi_sidecar", "doctor", *arguments],
        env={"PYTHONPATH": str(REPOSITORY / "sidecar"), "PATH": "/bin:/usr/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_inside_a_pod_it_asks_the_agent(start: StartAgent) -> None:
    running = start("--http-host", "127.0.0.1")
    watching = ready(running)
    port = str(running.wait_for("http_listening")["port"])
    client = BareClient(running)
    until("the client to be greeted", lambda: watching.stats()["sessions"] == 2)
    done = doctor(ONGGI_AGENT_HTTP_PORT=port)
    assert done.returncode == 0, done.stdout
    assert "[ok] the engine has loaded the client: 2 clients" in done.stdout
    client.close()
    watching.close()
    until("nobody", lambda: "no engine" in doctor(ONGGI_AGENT_HTTP_PORT=port).stdout)
    done = doctor(ONGGI_AGENT_HTTP_PORT=port)
    assert done.returncode == 0
    assert "[note] no engine is attached now; sessions since the agent started: 2" in done.stdout
    figures = json.loads(doctor("--json", ONGGI_AGENT_HTTP_PORT=port).stdout)
    assert figures["figures"]["clients"] == []
    assert figures["unready"] == ""


def test_an_agent_without_a_pool_is_given_advice_for_this_machine(start: StartAgent) -> None:
    running = start("--http-host", "127.0.0.1")
    port = str(running.wait_for("http_listening")["port"])
    until("it serves", lambda: "not ready" not in doctor(ONGGI_AGENT_HTTP_PORT=port).stdout)
    done = doctor(ONGGI_AGENT_HTTP_PORT=port)
    assert done.returncode == 1
    assert f"[ok] the agent serves on {running.socket_path}, outside Kubernetes" in done.stdout
    assert f"ONGGI_SOCKET={running.socket_path}" in done.stdout
    assert "--kv-transfer-config" in done.stdout
    assert "kubectl" not in done.stdout


def test_an_agent_of_another_pod_on_the_same_port_is_not_taken_for_this_one(
    start: StartAgent,
) -> None:
    running = start("--http-host", "127.0.0.1", ONGGI_AGENT_POD_UID="theirs")
    ready(running).close()
    port = str(running.wait_for("http_listening")["port"])
    done = doctor(ONGGI_AGENT_HTTP_PORT=port, ONGGI_AGENT_POD_UID="mine")
    assert done.returncode == 3
    assert "another pod's agent answers" in done.stderr


def test_an_agent_that_serves_another_socket_is_not_taken_for_the_one_that_is_meant(
    start: StartAgent, tmp_path: Path
) -> None:
    """Of two on one machine the second finds its port taken, and the first one answered for it."""
    running = start("--http-host", "127.0.0.1")
    ready(running).close()
    port = str(running.wait_for("http_listening")["port"])
    other = str(tmp_path / "agent.sock")
    for by_flag in (("--socket", other, "--port", port), ()):
        env = {} if by_flag else {"ONGGI_SOCKET": other, "ONGGI_AGENT_HTTP_PORT": port}
        done = doctor(*by_flag, **env)
        assert done.returncode == 3
        said = f"on port {port} serves {running.socket_path}, and not {other} ("
        assert said in done.stderr
        assert done.stdout == ""
    done = doctor("--json", "--port", port, ONGGI_SOCKET=str(running.socket_path))
    assert json.loads(done.stdout)["figures"]["socket"] == str(running.socket_path)


def test_where_no_agent_answers_it_says_so() -> None:
    done = doctor("--port", "1")
    assert done.returncode == 3
    assert "no agent answers on port 1 (" in done.stderr
    assert "is `onggi agent` running here?" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_port_that_is_none_is_told_with_what_would_be_right() -> None:
    done = doctor(ONGGI_AGENT_HTTP_PORT="abc")
    assert done.returncode == 3
    assert "ONGGI_AGENT_HTTP_PORT is 'abc'; write a port" in done.stderr
    assert "--port is 'abc'; write a port" in doctor("--port", "abc").stderr
    service = doctor("--socket", "/s", ONGGI_AGENT_HTTP_PORT="tcp://10.96.0.8:80")
    assert "write a port" not in service.stderr  # Kubernetes' own, of a service named so


KUBECTL = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
asked = sys.argv[1:]
with (here / "asked").open("a") as log:
    print(*asked, file=log)
answer = here / ("exec" if "exec" in asked else "get")
if not answer.exists():
    sys.exit(f"Error from server (NotFound): {{asked[-3]}} not found")
sys.stdout.write(answer.read_text())
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> Path:
    """A stand-in that answers from files beside it."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(python=sys.executable))
    program.chmod(0o755)
    return tmp_path


def test_outside_it_reads_the_pod_and_asks_its_agent(kubectl: Path) -> None:
    body = pod({names.POOL: "chat", names.STATUS: "injected: r1: pool chat"})
    (kubectl / "get").write_text(json.dumps(body))
    (kubectl / "exec").write_text(json.dumps({"figures": FIGURES, "unready": ""}))
    done = doctor("chat-0", "-n", "team-a", PATH=str(kubectl))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[:3] == [
        "[ok] injected: r1: pool chat",
        "[ok] the agent of pool chat serves on /run/onggi/agent.sock",
        "[ok] the engine has loaded the client: 1 client (vllm)",
    ]
    assert (kubectl / "asked").read_text().splitlines() == [
        "--namespace team-a get pod/chat-0 -o json",
        "--namespace team-a exec chat-0 -c onggi-agent -- onggi doctor --json",
    ]


def test_outside_a_skipped_pod_says_why_and_nobody_is_asked(kubectl: Path) -> None:
    (kubectl / "get").write_text(json.dumps(pod({names.POOL: "chat", names.STATUS: SKIPPED})))
    done = doctor("chat-0", PATH=str(kubectl))
    assert done.returncode == 1
    assert f"[wrong] {SKIPPED}" in done.stdout
    assert len((kubectl / "asked").read_text().splitlines()) == 1


def test_an_agent_that_cannot_be_asked_is_told_with_kubectls_words(kubectl: Path) -> None:
    body = pod({names.POOL: "chat", names.STATUS: "injected: r1: pool chat"})
    (kubectl / "get").write_text(json.dumps(body))
    done = doctor("chat-0", PATH=str(kubectl))
    assert done.returncode == 1
    assert "[wrong] the agent cannot be asked: Error from server" in done.stdout


def test_an_agent_of_an_earlier_version_that_cannot_look_is_told_in_its_words(
    kubectl: Path,
) -> None:
    body = pod({names.POOL: "chat", names.STATUS: "injected: r1: pool chat"})
    (kubectl / "get").write_text(json.dumps(body))
    (kubectl / "exec").write_text("onggi doctor: no agent answers on port 9464\n")
    done = doctor("chat-0", PATH=str(kubectl))
    assert done.returncode == 1
    words = "the agent cannot be asked: onggi doctor: no agent answers on port 9464"
    assert f"[wrong] {words}" in done.stdout


def test_an_object_that_is_not_there_is_told(kubectl: Path) -> None:
    done = doctor("deployment/chat", PATH=str(kubectl))
    assert done.returncode == 3
    assert "NotFound" in done.stderr
    assert doctor("chat", PATH="/nonexistent").stderr.startswith(
        "onggi doctor: there is no kubectl"
    )


def test_what_kubectls_libraries_log_is_left_out(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    noise = 'E1130 04:01:02.123456    1234 memcache.go:265] "Unhandled Error" err="..."'
    words = "The connection to the server 10.0.0.1:6443 was refused."
    program.write_text(f"#!/bin/sh\necho '{noise}' >&2\necho '{words}' >&2\nexit 1\n")
    program.chmod(0o755)
    done = doctor("chat", PATH=f"{tmp_path}:/bin:/usr/bin")
    assert done.returncode == 3
    assert done.stderr.startswith(f"onggi doctor: {words} Is that the cluster you mean?")


def test_a_kubectl_that_knows_of_no_cluster(tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    words = "The connection to the server localhost:8080 was refused - did you specify the right"
    program.write_text(f"#!/bin/sh\necho '{words} host or port?' >&2\nexit 1\n")
    program.chmod(0o755)
    done = doctor("chat", PATH=f"{tmp_path}:/bin:/usr/bin")
    assert done.returncode == 3
    assert done.stderr.startswith("onggi doctor: kubectl knows of no cluster (")


def test_the_help_says_where_the_agent_is_looked_for() -> None:
    said = doctor("--help").stdout
    assert "ONGGI_AGENT_HTTP_PORT" in said
    assert "--context" in said


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("deployment chat", "deployment/chat"),
        ("sts/chat", "sts/chat"),
        ("pod chat-0", "pod/chat-0"),
        ("pod/deployment", "pod/deployment"),
    ],
)
def test_what_is_asked_about_may_be_written_as_for_kubectl(
    kubectl: Path, words: str, asked: str
) -> None:
    (kubectl / "get").write_text(json.dumps(pod({})))
    assert doctor(*words.split(), PATH=str(kubectl)).returncode == 1
    assert (kubectl / "asked").read_text() == f"get {asked} -o json\n"


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("deployment", "deployment is a kind of object; name one: deployment/NAME (kubectl get"),
        ("pods", "pods is a kind of object; name one: pods/NAME"),
        ("deployment/", "deployment/ is half a name; write POD, or KIND/NAME"),
        ("/chat", "/chat is half a name"),
        ("chat-0 chat-1", "chat-0 chat-1 are 2 names; ask about one at a time"),
        ("sts/chat chat-1", "chat chat-1 are 2 names"),
    ],
)
def test_what_names_no_object_is_told_before_kubectl_is_asked(
    kubectl: Path, words: str, right: str
) -> None:
    done = doctor(*words.split(), PATH=str(kubectl))
    assert done.returncode == 3
    assert done.stderr.startswith(f"onggi doctor: {right}")
    assert not (kubectl / "asked").exists()


def test_an_option_that_there_is_not_is_told(kubectl: Path) -> None:
    done = doctor("chat-0", "--namspace", "team-a", PATH=str(kubectl))
    assert done.returncode == 2
    assert "there is no --namspace; did you mean --namespace?" in done.stderr


def test_an_object_that_makes_no_pods_is_told_what_to_ask_about() -> None:
    (found,) = manifest.judge({"kind": "Service", "metadata": {"name": "chat"}, "spec": {}})
    assert found.what == "Service is no kind that says which pods it makes"
    assert found.then.startswith("ask about a pod, or a Deployment")
