"""Install, upgrade, uninstall and install anew, by Helm itself against a real API server."""

import base64
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from onggi_operator.pool import read_pool

pytestmark = pytest.mark.cluster

SCHEMA_S = 60
ROOT = Path(__file__).resolve().parents[2]
HOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/onggi"
SECRET = "/api/v1/namespaces/onggi-system/secrets/onggi-tls"
POOLS = "/apis/onggi.dev/v1alpha1/namespaces/default/kvcachepools"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
STORED = ROOT / "tests/crd/stored"
CA = base64.b64encode(b"a certificate").decode()


class Site:
    """A cluster of its own, so that what other suites put into theirs is not in the way."""

    def __init__(self, server: Any, helm: Callable[..., str]) -> None:
        self.server = server
        self.helm = helm

    def bind(self, user: str, role: str) -> None:
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": user},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user},
            ],
        }  # fmt: skip
        self.server.request("POST", f"{RBAC}/namespaces/default/rolebindings", body)

    def may(self, user: str, verb: str, namespace: str, *, part: str = "") -> bool:
        """Whether the API server lets a user do that with pools."""
        asked = {
            "namespace": namespace, "verb": verb, "group": "onggi.dev",
            "resource": "kvcachepools", "subresource": part,
        }  # fmt: skip
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": asked},
        }
        answer = self.server.request("POST", REVIEWS, body)
        return bool(answer["status"]["allowed"])

    def wait(self, holds: Callable[[], bool]) -> None:
        """A schema takes hold a moment after it was written."""
        deadline = time.monotonic() + SCHEMA_S
        while not holds():
            assert time.monotonic() < deadline, "the schema never took hold"
            time.sleep(0.1)

    def exists(self, path: str) -> bool:
        try:
            self.server.request("GET", path)
        except Exception as fault:
            if "404" not in str(fault):
                raise
            return False
        return True


@pytest.fixture(scope="module")
def site(helm: str, apiserver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if reason := apiserver.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("helm")
    with apiserver.run(tmp_path_factory.mktemp("apiserver")) as server:
        _write_kubeconfig(folder / "kubeconfig", server, apiserver.ADMIN_TOKEN)

        def run(*words: str) -> str:
            done = subprocess.run(
                [helm, "--kubeconfig", str(folder / "kubeconfig"), "-n", "onggi-system", *words],
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        yield Site(server, run)


def _write_kubeconfig(path: Path, server: Any, token: str) -> None:
    named = {
        "clusters": [
            {
                "name": "here",
                "cluster": {"server": server.url, "certificate-authority": str(server.ca_file)},
            }
        ],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
    }
    body = {"apiVersion": "v1", "kind": "Config", "current-context": "here", **named}
    path.write_text(yaml.safe_dump(body))


def _chart_of_before(folder: Path) -> Path:
    """Today's chart with the first one's schema."""
    chart = folder / "onggi"
    shutil.copytree(ROOT / "charts/onggi", chart)
    shutil.rmtree(chart / "files/crds")
    (chart / "files/crds").mkdir()
    shutil.copy(STORED / "kvcachepools.yaml", chart / "files/crds")
    return chart


def test_an_upgrade_brings_the_new_schema_and_a_rollback_takes_it_back(
    site: Site, tmp_path: Path
) -> None:
    """Helm never upgrades what lies in a chart's crds/ folder, so the schemas are templates."""
    site.helm("install", "onggi", str(_chart_of_before(tmp_path)), "--create-namespace")
    assert not site.exists(f"{CRDS}/kvcachenodes.onggi.dev")
    before = list(yaml.safe_load_all((STORED / "objects.yaml").read_text()))
    for body in before:
        site.server.request("POST", POOLS, body)

    site.helm("upgrade", "onggi", str(ROOT / "charts/onggi"))
    site.wait(lambda: "placement" in site.server.request("GET", f"{POOLS}/bare")["spec"])
    site.server.request("GET", "/apis/onggi.dev/v1alpha1/kvcachenodes")
    for body in before:
        now = site.server.request("GET", f"{POOLS}/{body['metadata']['name']}")
        assert read_pool(now).mode.value == body["spec"]["mode"]
        change = {"spec": {"placement": {"threshold": 9}}}
        path = f"{POOLS}/{body['metadata']['name']}"
        site.server.request("PATCH", path, change, kind="application/merge-patch+json")

    site.helm("rollback", "onggi", "1")
    site.wait(lambda: "placement" not in site.server.request("GET", f"{POOLS}/bare")["spec"])
    for body in before:
        now = site.server.request("GET", f"{POOLS}/{body['metadata']['name']}")
        assert now["spec"] == body["spec"]
    assert site.exists(f"{CRDS}/kvcachenodes.onggi.dev")

    site.helm("uninstall", "onggi")
    assert all(site.exists(f"{POOLS}/{body['metadata']['name']}") for body in before)


def test_a_release_from_first_install_to_last(site: Site) -> None:
    chart = str(ROOT / "charts/onggi")
    told = site.helm("install", "onggi", chart, "--create-namespace")
    assert "kubectl get kvp" in told

    # What the running webhook does.
    hook = {"name": "inject.onggi.dev", "clientConfig": {"caBundle": CA}}
    kind = "application/strategic-merge-patch+json"
    site.server.request("PATCH", HOOK, {"webhooks": [hook]}, kind=kind)
    kind = "application/merge-patch+json"
    site.server.request("PATCH", SECRET, {"data": {"ca.crt": CA}}, kind=kind)
    pool = {"apiVersion": "onggi.dev/v1alpha1", "kind": "KVCachePool"}
    site.server.request("POST", POOLS, {**pool, "metadata": {"name": "chat"}, "spec": {}})

    for user, role in (("reader", "onggi-view"), ("editor", "onggi-edit")):
        site.bind(user, role)
    assert site.may("reader", "list", "default")
    assert not site.may("reader", "patch", "default")
    assert site.may("editor", "patch", "default")
    assert not site.may("editor", "patch", "kube-public")
    assert not site.may("editor", "patch", "default", part="status")

    site.helm("upgrade", "onggi", chart, "--set", "webhook.timeoutSeconds=4")
    (hook,) = site.server.request("GET", HOOK)["webhooks"]
    assert hook["timeoutSeconds"] == 4
    assert hook["clientConfig"]["caBundle"] == CA
    assert site.server.request("GET", SECRET)["data"] == {"ca.crt": CA}

    site.helm("uninstall", "onggi")
    assert not site.exists(HOOK)
    assert not site.exists("/apis/apps/v1/namespaces/onggi-system/deployments/onggi-webhook")
    assert site.exists(f"{POOLS}/chat")

    site.helm("install", "onggi", chart)
    assert site.server.request("GET", SECRET)["data"] == {"ca.crt": CA}
    assert site.exists(f"{POOLS}/chat")
