"""`onggi doctor` from outside, with a real kubectl at a real API server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = "skipped: Quota: the pod with its agent needs 5Gi of memory, and 4Gi are left"
POD = {"containers": [{"name": "vllm", "image": "vllm"}], "serviceAccountName": "default"}


@pytest.fixture(scope="module")
def doctor(server: Any, apiserver: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kubectl = apiserver.find("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on this machine (the end-to-end harness builds one)")
    folder = tmp_path_factory.mktemp("doctor")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [
            {
                "name": "here",
                "cluster": {"server": server.url, "certificate-authority": str(server.ca_file)},
            }
        ],
        "users": [{"name": "admin", "user": {"token": apiserver.ADMIN_TOKEN}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
    }
    (folder / "config").write_text(json.dumps(config))
    env = {
        "PATH": f"{Path(kubectl).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(folder / "config"),
        "PYTHONPATH": str(ROOT / "sidecar"),
        "HOME": str(folder),
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "onggi_sidecar", "doctor", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    return run


def make_pod(server: Any, name: str, annotations: dict[str, str]) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": POD,
    }
    server.request("POST", "/api/v1/namespaces/kube-system/pods", body)


def test_a_skipped_pod_is_explained(server: Any, doctor: Any) -> None:
    make_pod(server, "skipped", {"onggi.dev/pool": "chat", "onggi.dev/status": SKIPPED})
    done = doctor("skipped", "-n", "kube-system")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"[wrong] {SKIPPED}" in done.stdout


def test_a_pod_that_the_webhook_never_saw_is_told(server: Any, doctor: Any) -> None:
    make_pod(server, "missed", {"onggi.dev/pool": "chat"})
    done = doctor("missed", "-n", "kube-system", "--context", "here")
    assert done.returncode == 1
    assert "the webhook never saw it" in done.stdout


def test_an_annotation_on_a_deployment_itself_is_told(server: Any, doctor: Any) -> None:
    labels = {"app": "chat"}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "annotations": {"onggi.dev/pool": "chat"}},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": POD},
        },
    }
    server.request("POST", "/apis/apps/v1/namespaces/default/deployments", body)
    done = doctor("deployment/chat")
    assert done.returncode == 1
    assert "on the Deployment itself, where it reaches no pod" in done.stdout


def test_an_agent_that_no_kubelet_runs_cannot_be_asked(server: Any, doctor: Any) -> None:
    make_pod(server, "alone", {"onggi.dev/pool": "c", "onggi.dev/status": "injected: r: pool c"})
    done = doctor("alone", "-n", "kube-system")
    assert done.returncode == 1
    assert "[ok] injected: r: pool c" in done.stdout
    assert "[wrong] the agent cannot be asked: " in done.stdout


def test_a_pod_that_does_not_exist_is_told_in_kubectls_words(doctor: Any) -> None:
    done = doctor("nobody")
    assert done.returncode == 3
    assert 'pods "nobody" not found' in done.stderr
