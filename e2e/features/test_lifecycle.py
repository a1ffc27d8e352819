"""Uninstalled, installed in the version before, upgraded, rolled back and taken away: what runs is
left alone, and what was kept is there again. Commands are those of docs/operator.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import install, previous
from rig.figures import figures_of
from rig.install import image_values
from rig.kubectl import EXISTING, Kubectl, Object, annotation, until
from rig.pages import commands, typed
from rig.pool import KIND, Pool
from rig.reach import restarts, tag_image
from rig.stand_in import StandIn, deployment, pool_object, program
from rig.workloads import DISK, NODE, sleeper
from waits import ATTACHED_S, INJECTING_S, INSTALLED_S, ON_DISK_S, POD_RUNNING_S, STATUS_S

pytestmark = pytest.mark.skipif(EXISTING, reason="takes the installation and its kinds away")

STATUS = "onggi.dev/status"
AGENT = install.IMAGES["agent.image"]
CRD = "customresourcedefinition"
CRDS = (KIND, "kvcachenodes.onggi.dev")
OPERATOR = "app.kubernetes.io/component=operator"
ANSWERED = 'onggi_operator_heartbeats_total{status="200"}'
BLOCKS = 32
SEED = 7


def disk_pool(name: str, **injection: str) -> Object:
    pool = pool_object(name, "64Mi", "64Mi", injection=injection)
    disk = {"max": "64Mi", "medium": "HostPath", "path": DISK}
    pool["spec"]["tiers"].append({"type": "LocalDisk", "localDisk": disk})
    return pool


class Keeper:
    """A pod that lives through it all, and what it keeps."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self.stand_in = StandIn(kubectl, "keeper")
        self.pool = Pool(kubectl, "kept")
        self.was: Object = {}

    def start(self) -> None:
        self.kubectl.apply(program(), disk_pool("kept"), deployment("keeper", self.pool.name, NODE))
        self.was = self.stand_in.ready()
        self.stand_in.keep(SEED, BLOCKS)

    def made_again(self) -> None:
        self.kubectl.delete("pod", self.was["metadata"]["name"], POD_RUNNING_S)
        self.was = self.stand_in.ready()

    def is_as_it_was(self) -> bool:
        """The same pod, of the same containers, none of which began anew, and its blocks."""
        now = self.stand_in.pod()
        assert now["metadata"]["uid"] == self.was["metadata"]["uid"]
        assert now["spec"] == self.was["spec"]
        for container in ("onggi-agent", "vllm"):
            assert restarts(now, container) == 0
        return self.stand_in.find(SEED, BLOCKS) == BLOCKS

    def finds_all(self) -> None:
        until("its blocks", lambda: self.stand_in.find(SEED, BLOCKS) == BLOCKS, ATTACHED_S)

    def is_heard(self) -> None:
        """By the operator that is there now, which counts what it answered."""

        def heard() -> bool:
            pods = self.kubectl.elsewhere(install.NAMESPACE).items("pods", OPERATOR)
            return any(figures_of(self.kubectl, pod, 8080).get(ANSWERED, 0) > 0 for pod in pods)

        until("a report", heard, STATUS_S)


@pytest.fixture(scope="module")
def keeper(kubectl: Kubectl, pool: Pool, disk_on_node: None) -> Keeper:
    found = Keeper(kubectl)
    found.start()
    return found


def given(kubectl: Kubectl, pool: str) -> tuple[str, str]:
    """Image and revision that a new pod of a pool would get; empty without an agent."""
    pod = kubectl.dry_run(sleeper("asks", {"onggi.dev/pool": pool}))
    agents = pod["spec"].get("initContainers") or [{"image": ""}]
    words = (annotation(pod, STATUS) or "").split()
    return agents[0]["image"], words[1].rstrip(":") if len(words) > 1 else ""


def until_given(kubectl: Kubectl, pool: str, image: str) -> None:
    until(f"{image} for pool {pool}", lambda: given(kubectl, pool)[0] == image, INJECTING_S)


def helm(kubectl: Kubectl, line: str, more: str = "") -> None:
    typed(kubectl, line, more, timeout_s=INSTALLED_S)


def test_uninstalling_leaves_pools_data_and_what_runs(kubectl: Kubectl, keeper: Keeper) -> None:
    keeper.is_heard()
    there = kubectl.elsewhere(install.NAMESPACE)
    (line,) = commands("Uninstall")[:1]
    helm(kubectl, line)
    assert there.items("deployments") == []
    assert kubectl.find("mutatingwebhookconfiguration", "onggi") is None
    assert all(kubectl.find(CRD, name) for name in CRDS)
    assert kubectl.find(KIND, "kept")
    assert there.find("secret", "onggi-tls")
    assert there.find("configmap", "onggi-revisions")
    assert given(kubectl, "kept") == ("", "")
    assert keeper.is_as_it_was()


def test_the_version_before_finds_what_was_left(
    kubectl: Kubectl, keeper: Keeper, tmp_path: Path
) -> None:
    tag_image(AGENT, previous.AGENT)
    line = f"helm install onggi {previous.chart(tmp_path)} --namespace onggi-system --wait"
    helm(kubectl, line, f"{image_values(previous.AGENT)} --set=operator.statusIntervalSeconds=2")
    until_given(kubectl, "kept", previous.AGENT)
    assert not previous.has_newer(kubectl)
    keeper.is_heard()
    assert keeper.is_as_it_was()

    keeper.made_again()
    assert keeper.was["spec"]["initContainers"][0]["image"] == previous.AGENT
    until("its blocks", lambda: keeper.stand_in.find(SEED, BLOCKS) == BLOCKS, ON_DISK_S)
    status = keeper.pool.until(
        "hits from what was kept", lambda s: s.get("hits", {}).get("diskBlocks", 0) > 0
    )
    assert status["hits"]["diskBlocks"] >= BLOCKS


def test_an_upgrade_changes_new_pods_alone(kubectl: Kubectl, keeper: Keeper) -> None:
    _, revision = given(kubectl, "kept")
    kubectl.apply(disk_pool("pinned", updatePolicy="Pinned", revision=revision))
    until_given(kubectl, "pinned", previous.AGENT)
    hits = keeper.pool.status()["hits"]["diskBlocks"]
    (line,) = commands("Upgrade")[:1]

    helm(kubectl, line, image_values(AGENT))

    assert previous.has_newer(kubectl)
    until_given(kubectl, "kept", AGENT)
    assert given(kubectl, "pinned") == (previous.AGENT, revision)
    keeper.is_heard()
    assert keeper.is_as_it_was()
    assert keeper.pool.status()["hits"]["diskBlocks"] == hits


def test_a_rollback_changes_new_pods_back(kubectl: Kubectl, keeper: Keeper) -> None:
    (line,) = commands("Upgrade")[1:2]
    helm(kubectl, line)
    until_given(kubectl, "kept", previous.AGENT)
    assert not previous.has_newer(kubectl)
    keeper.is_heard()
    assert keeper.is_as_it_was()


def test_all_is_gone_when_asked(kubectl: Kubectl, keeper: Keeper) -> None:
    for line in commands("Uninstall"):
        helm(kubectl, line)
    assert not any(kubectl.find(CRD, name) for name in CRDS)
    assert kubectl.find("namespace", install.NAMESPACE) is None
    assert keeper.is_as_it_was(), "an engine goes on with what its agent holds"
