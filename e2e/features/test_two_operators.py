"""Two operators, of which the one that leads dies and does not come back: the other goes on from
what agents say. Nothing is granted twice or taken away, and nothing is counted twice or lost."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Iterator

import pytest
from rig import install
from rig.figures import figures_of
from rig.kubectl import Kubectl, Object, until
from rig.ledger import NodeLedger
from rig.pool import Pool
from rig.reach import address, kill_container
from rig.stand_in import MIB, StandIn, deployment, holds_bytes, pool_object, program
from rig.workloads import LEADER, sleeper
from waits import GRANTED_S, INSTALLED_S, LOOK_S, MOVED_S, POD_RUNNING_S, STATUS_S, TAKEN_OVER_S

pytestmark = pytest.mark.soak
"""The other begins 15 s after the last renewal."""

OPERATOR = "deployment/onggi-operator"
OPERATORS = "app.kubernetes.io/component=operator"
WEBHOOKS = "app.kubernetes.io/component=webhook"
ANSWERED = 'onggi_operator_heartbeats_total{status="200"}'
HEALTH_PORT, HTTPS_PORT = 8080, 8443
FLOOR, CEILING, OFFER, LESS = 64 * MIB, 384 * MIB, 512 * MIB, 256 * MIB
NAMES = ("left", "right")
POOL = "two"
BLOCKS = 32


class Site:
    """Two agents on one node, looked at all the time."""

    def __init__(self, kubectl: Kubectl, there: Kubectl, node: NodeLedger) -> None:
        self.kubectl, self.there, self.node = kubectl, there, node
        self.stand_ins = {name: StandIn(kubectl, name) for name in NAMES}
        self.pods = {name: one.ready() for name, one in self.stand_ins.items()}
        self.pool = Pool(kubectl, POOL)
        self.most = 0
        self.seen: set[tuple[int, ...]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on)
        self._thread.start()

    def held(self) -> tuple[int, ...] | None:
        """By agents' own word."""
        words = [holds_bytes(self.kubectl, pod) for pod in self.pods.values()]
        return tuple(word for word in words if word is not None) if None not in words else None

    def _look_on(self) -> None:
        while not self._stop.wait(LOOK_S):
            if (held := self.held()) is not None:
                self.seen.add(held)
                self.most = max(self.most, sum(held))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def find_all(self) -> None:
        for seed, one in enumerate(self.stand_ins.values()):
            assert one.find(seed, BLOCKS) == BLOCKS

    def leader(self) -> str:
        """Name of the pod that holds the Lease; empty while nobody does."""
        lease = self.there.get("lease", "onggi-operator")
        return str(lease.get("spec", {}).get("holderIdentity", "")).split("_")[0]

    def operators(self) -> list[Object]:
        return self.there.items("pods", OPERATORS)


def scale(there: Kubectl, count: int) -> None:
    there("scale", OPERATOR, f"--replicas={count}")
    there.rolled_out(OPERATOR, INSTALLED_S)
    until("as many operators", lambda: len(there.items("pods", OPERATORS)) == count, POD_RUNNING_S)


@pytest.fixture(scope="module")
def site(kubectl: Kubectl, pool: Pool) -> Iterator[Site]:
    there = kubectl.elsewhere(install.NAMESPACE)
    node = NodeLedger(kubectl, LEADER)
    node.offer(0)  # until both are heard: whoever comes first would have more
    kubectl.apply(
        program(),
        pool_object(POOL, f"{FLOOR}", f"{CEILING}"),
        *(deployment(name, POOL, LEADER) for name in NAMES),
    )
    scale(there, 2)
    found = Site(kubectl, there, node)
    found.pool.until("word from both", lambda s: s["pods"]["ready"] == len(NAMES))
    node.offer(OFFER)
    yield found
    found.stop()
    for name in NAMES:
        kubectl.delete("deployment", name, POD_RUNNING_S)
    kubectl.delete("kvp", POOL, POD_RUNNING_S)
    node.offer(None)
    scale(there, 1)


def test_the_other_takes_over_and_nothing_is_given_or_counted_twice(site: Site) -> None:
    equal = (OFFER // 2, OFFER // 2)
    until("equal shares", lambda: site.held() == equal, GRANTED_S)
    for seed, one in enumerate(site.stand_ins.values()):
        one.keep(seed, BLOCKS)
    site.find_all()
    hits = len(NAMES) * BLOCKS
    site.pool.until("their hits", lambda s: s["hits"]["hostBlocks"] == hits)
    granted = {pod["metadata"]["name"]: OFFER // 2 for pod in site.pods.values()}
    until("their grants", lambda: site.node.granted() == granted, STATUS_S)
    before = site.leader()
    site.seen.clear()

    (dies,) = (pod for pod in site.operators() if pod["metadata"]["name"] == before)
    kill_container(site.there, dies, "operator")
    site.there("delete", "pod", before, "--force", "--grace-period=0")
    site.find_all()

    until("another leader", lambda: site.leader() not in ("", before), TAKEN_OVER_S)
    (leads,) = (pod for pod in site.operators() if pod["metadata"]["name"] == site.leader())
    until("reports to it", lambda: answered(site, leads) > len(NAMES), STATUS_S)
    site.pool.until("the hits since", lambda s: s["hits"]["hostBlocks"] == 2 * hits)
    until("the same grants", lambda: site.node.granted() == granted, STATUS_S)
    site.node.until("word from both", lambda s: not any("unheard" in one for one in s["grants"]))
    assert site.seen == {equal}


def test_who_took_over_shares_out_anew(site: Site) -> None:
    """What the node offers is halved: both give back."""
    site.node.offer(LESS)
    until("half of it each", lambda: site.held() == (LESS // 2, LESS // 2), MOVED_S)
    status = site.pool.until("their sizes", lambda s: s["capacity"]["hostBytes"] == LESS)
    assert status["pods"] == {"matched": 2, "injected": 2, "ready": 2, "skipped": 0, "missed": 0}
    site.stop()
    assert site.most == OFFER


def test_each_webhook_serves_by_itself(site: Site) -> None:
    webhooks = site.there.items("pods", WEBHOOKS)
    assert len(webhooks) == 2
    for pod in webhooks:
        names = [one["name"] for one in reviewed(site, pod)]
        assert "onggi-agent" in names, pod["metadata"]["name"]


def answered(site: Site, operator: Object) -> float:
    try:
        return figures_of(site.there, operator, HEALTH_PORT).get(ANSWERED, 0.0)
    except OSError:
        return 0.0


def reviewed(site: Site, webhook: Object) -> list[Object]:
    """The init containers that one webhook would add to a pod of the pool."""
    pod = sleeper("asks", {"onggi.dev/pool": POOL})
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": site.kubectl.namespace,
        "name": "asks",
        "dryRun": True,
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    host, port = address(site.there, webhook, HTTPS_PORT)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=10, context=context)
    connection.request("POST", "/mutate", json.dumps(review), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())["response"]
    connection.close()
    assert answer["allowed"] is True
    changes = json.loads(base64.b64decode(answer["patch"]))
    added = [one["value"] for one in changes if one["path"].startswith("/spec/initContainers")]
    return [one for value in added for one in (value if isinstance(value, list) else [value])]
