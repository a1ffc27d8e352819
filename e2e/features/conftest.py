"""One installation and one engine for the whole session: a start of either takes its time."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest
from rig import evidence, install, reach
from rig.engine import Engine
from rig.kubectl import Fenced, Kubectl, names_of, the_cluster, until
from rig.pool import Pool
from rig.workloads import engine_deployment, example, make_folder, sleeper
from waits import ENGINE_GONE_S, INJECTING_S, POD_RUNNING_S

NAMESPACE: Final = "onggi-e2e"
ORDER: Final = (
    "test_injection.py",  # while the engine starts
    "test_job.py",
    "test_contention.py",
    "test_certificate_expired.py",
    "test_webhook_away.py",
    "test_resize.py",
    "test_resize_full_node.py",
    "test_engine_restart.py",
    "test_cache_salt.py",
    "test_agent_killed.py",
    "test_two_operators.py",  # a minute after the last agent left that node: so long it is charged
    "test_drain.py",
    "test_rolling_update.py",
    "test_pool_deleted.py",  # takes the engine's pool away
    "test_kubelet_stopped.py",  # takes the engine's node away for a while
    "test_lifecycle.py",  # takes Onggi away
)
"""Tests share one engine, since its start takes most of the time; what changes it comes last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    names = [Path(item.location[0]).name for item in items]
    assert set(names) <= set(ORDER), f"say in ORDER where it belongs: {set(names) - set(ORDER)}"
    items.sort(key=lambda item: ORDER.index(Path(item.location[0]).name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test or set-up that failed leaves the evidence while the cluster still has it."""
    report = yield
    if report.failed and call.excinfo and not call.excinfo.errisinstance(Fenced):
        kubectl = the_cluster(NAMESPACE)
        name = re.sub(r"\W+", "-", item.name)
        text = evidence.collect(kubectl, (NAMESPACE, install.NAMESPACE), name)
        report.sections.append(("evidence", text))
    return report


@pytest.fixture(scope="session")
def kubectl() -> Iterator[Kubectl]:
    """kubectl in a fresh namespace of the cluster, with Onggi installed."""
    cluster = the_cluster(NAMESPACE)
    cluster.delete("namespace", NAMESPACE, ENGINE_GONE_S)
    cluster("create", "namespace", NAMESPACE)
    until("service account", lambda: cluster.find("serviceaccount", "default"), POD_RUNNING_S)
    install.install(cluster)
    yield cluster
    cluster.delete("namespace", NAMESPACE, ENGINE_GONE_S)
    install.uninstall(cluster)
    reach.close()


@pytest.fixture(scope="session")
def pool(kubectl: Kubectl) -> Pool:
    """examples/pool.yaml, and pods that ask for it are injected from now on."""
    kubectl.apply(example("pool.yaml"))
    found = Pool(kubectl, "chat")
    until("injection", lambda: _injects(kubectl, found), INJECTING_S)
    return found


def _injects(kubectl: Kubectl, pool: Pool) -> bool:
    asked = sleeper("probe", {"onggi.dev/pool": pool.name})
    made = kubectl.dry_run(asked)
    return "onggi-agent" in names_of(made["spec"].get("initContainers"))


@pytest.fixture(scope="session")
def disk_on_node(kubectl: Kubectl) -> None:
    """The folder that pools with a disk of the node's need."""
    make_folder(kubectl)


@pytest.fixture(scope="session")
def engine_pool(kubectl: Kubectl, pool: Pool, disk_on_node: None) -> Pool:
    """examples/pool-on-node.yaml."""
    kubectl.apply(example("pool-on-node.yaml"))
    return Pool(kubectl, "chat-on-node")


@pytest.fixture(scope="session")
def starting_engine(kubectl: Kubectl, engine_pool: Pool) -> Engine:
    """examples/vllm.yaml, deployed; it may not answer yet."""
    kubectl.apply(engine_deployment(engine_pool.name))
    return Engine(kubectl, "chat")


@pytest.fixture
def engine(starting_engine: Engine) -> Engine:
    """The engine, answering."""
    starting_engine.ready()
    return starting_engine
