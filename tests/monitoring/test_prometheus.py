"""A real Prometheus, scraping a real agent and the endpoints of webhook and operator by the chart's
own monitors, is asked for everything that alerts and dashboard ask for."""

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_process import SMALL, AgentProcess, chain, ready, until
from monitors import pod_target, scrape_pods, scrape_services, service_target
from scene import CHART, Control, Prometheus

from onggi_core.heartbeat import Lookups, TierBlocks, TierBytes
from onggi_operator import names
from onggi_operator.heartbeat.endpoint import HEARTBEAT_PATH
from onggi_operator.plan.status import plan_status
from onggi_operator.webhook.server import MUTATE_PATH

BLOCKS = 8
ABSENT = 4
NOWHERE = "127.0.0.1:9"
"""Nobody listens there: what would be scraped from it would be down."""

VALUES = {
    "Hit share, one hour/": 4 / 6,
    "Pods by state/{{state}}": {"matched": 2, "injected": 1, "ready": 1, "skipped": 1, "missed": 0},
    "Bytes held and used/{{tier}} held": {"host": 16, "disk": 32},
    "Bytes held and used/{{tier}} used": {"host": 4, "disk": 2},
    "Quotas taken/{{namespace}}/{{pool}} {{tier}}": {"host": 0.25},
    "Hit share by agent/{{pod}}": {"chat-0": BLOCKS / (BLOCKS + ABSENT)},
    "Work not ended/clients": 1,
    "Work not ended/loads": 0,
    "Work not ended/stores": 0,
    "Work not ended/disk jobs": 0,
    "Work not ended/stuck disk jobs": 0,
    "Work not ended/full disks": 0,
    "Blocks stored, refused and evicted/refused": 0,
    "Blocks stored, refused and evicted/evicted {{tier}}": {"host": 0, "disk": 0},
    "Blocks stored, refused and evicted/evicted before they were on disk": 0,
    "Blocks stored, refused and evicted/turned away {{tier}}": {"host": 0, "disk": 0},
    "Blocks prefetched, by what became of them/{{end}}": {"useful": 0, "late": 0, "useless": 0},
    "OnggiPodsSkipped": {"skipped": 1},
    "OnggiWebhookFaults": {"InternalError": None},
    "OnggiHeartbeatsRefused": {"401": None},
    "OnggiClientFaults": {"bad_frame": None},
    "Faults/{{kind}}": {"bad_frame": None},
}
"""What Prometheus must answer: a number, or by the label that tells series apart; None is any
number above 0, since rates are extrapolated."""

TELLING = ("state", "tier", "end", "reason", "status", "kind", "pod")

QUIET = {
    "OnggiWebhookAway", "OnggiOperatorAway", "OnggiWebhookSlow", "OnggiPodsMissed",
    "OnggiAgentsSilent", "OnggiPoolNotAccepted", "OnggiDiskUnavailable", "OnggiDiskFull",
    "OnggiDiskStuck", "OnggiDiskFaults", "OnggiCorruptBlocks", "OnggiArenaTooSmall",
}  # fmt: skip
"""Alerts that nothing here gives a reason to."""


def expressions() -> dict[str, str]:
    """What asks, and its expression with the dashboard's variables as Grafana fills them in."""
    rules = yaml.safe_load((CHART / "files/alerts.yaml").read_text())
    found = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    dashboard = json.loads((CHART / "files/dashboards/onggi.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            filled = target["expr"].replace("$__rate_interval", "10m")
            filled = filled.replace("$namespace", ".*").replace("$pool", ".*")
            found[f"{panel['title']}/{target['legendFormat']}"] = filled
    return found


class Scene:
    """One agent with a disk, one pool with a pod that was skipped, and a Prometheus."""

    def __init__(self, folder: Path, memory: Path, kits: tuple[Any, Any]) -> None:
        self.folder = folder
        self.kit, self.status_kit = kits
        disk = ("--disk", "64MiB", "--disk-path", str(folder / "disk"))
        self.agent = AgentProcess(memory, *SMALL, *disk)
        pods = (self.status_kit.pod("one"), self.status_kit.pod("two", self.status_kit.SKIPPED))
        self.world = self.status_kit.world(*pods)
        self.world.hear(self._beat(0), now_s=99)
        (pool,) = self.world.snapshot(now_s=100)
        status = plan_status(pool, now_s=100, now="2026-01-01T01:00:10Z", node_uids={}).whole()
        quota = {"hard": {"memoryBytes": 64}, "used": {"memoryBytes": 16}}
        self.world.see_pool(self.status_kit.body(status={**status, "quota": quota}))
        self.control = Control(self.kit, self.world)
        self.prometheus: Prometheus | None = None

    def _beat(self, sequence: int) -> Any:
        return self.status_kit.beat(
            capacity=TierBytes(16, 32),
            used=TierBytes(4, 2),
            hits=TierBlocks(3 * sequence, sequence),
            lookups=Lookups(sequence, 6 * sequence, 2 * sequence),
            tokens_saved=64 * sequence,
            sequence=sequence,
        )

    def watch(self, program: str, documents: dict[tuple[str, str], dict[str, Any]]) -> None:
        services = []
        for name in ("webhook", "operator"):
            service = documents["Service", f"onggi-{name}"]
            address = f"127.0.0.1:{self.control.ports[name]}"
            services.append(service_target(address, service, "metrics"))
            services.append(service_target(NOWHERE, service, "https"))
        pod = self.kit.inject(self.kit.pod())
        pod["metadata"] |= {"name": "chat-0", "namespace": "team-a"}
        (port,) = self.kit.agent(pod)["ports"]
        address = f"127.0.0.1:{self.agent.wait_for('http_listening')['port']}"
        stranger = {"metadata": {"name": "x", "namespace": "team-a", "labels": {"app": "x"}}}
        pods = [
            pod_target(address, pod, names.AGENT_CONTAINER, port["name"]),
            pod_target(NOWHERE, pod, "engine", "http"),
            pod_target(NOWHERE, stranger, "x", port["name"]),
        ]
        jobs = [
            scrape_services(documents["ServiceMonitor", "onggi"], services),
            scrape_pods(documents["PodMonitor", "onggi-agents"], pods),
        ]
        self.prometheus = Prometheus(program, self.folder, jobs)
        self.prometheus.wait()

    def play(self) -> None:
        """Blocks stored, loaded and missed, a pod and a report that fail, between two scrapes."""
        assert self.prometheus is not None
        ask = self.prometheus.value
        client = ready(self.agent)
        client.store(chain(BLOCKS, seed=3))
        client.wait_until_on_disk(BLOCKS)
        for _ in range(32):
            client.looked(*chain(1))
        for wanted in ("onggi_stored_blocks_total == 8", "onggi_disk_job_seconds_count > 0"):
            until(wanted, lambda wanted=wanted: ask(wanted) is not None)
        until("all to be scraped", lambda: ask("count(up == 1)") == 3)
        client.store(chain(BLOCKS))
        assert len(client.load(tuple(chain(BLOCKS)))) == BLOCKS
        assert client.load(tuple(chain(ABSENT, seed=1))) == []
        for _ in range(32):
            client.looked(*chain(1))
        client.wait_until_on_disk(2 * BLOCKS)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(str(self.agent.socket_path))
            stranger.sendall(b"GET / HTTP/1.1" * 20)
            stranger.recv(1024)
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "1", "namespace": "team-a", "object": self.kit.pod()},
        }
        assert self.control.post("admission", MUTATE_PATH, review) == 200
        assert self.control.post("beats", HEARTBEAT_PATH, {}) == 401
        self.world.hear(self._beat(1), now_s=99)
        for wanted in (
            'onggi_errors_total{kind="bad_frame"} == 1',
            'onggi_webhook_admissions_total{reason="InternalError"} == 1',
            'onggi_operator_heartbeats_total{status="401"} == 1',
            "onggi_pool_miss_blocks_total == 2",
        ):
            until(wanted, lambda wanted=wanted: ask(wanted) is not None)

    def close(self) -> None:
        if self.prometheus is not None:
            self.prometheus.stop()
        self.control.stop()
        self.agent.clean_up()


@pytest.fixture(scope="module")
def prometheus(
    tmp_path_factory: pytest.TempPathFactory,
    prometheus_program: str,
    documents: dict[tuple[str, str], dict[str, Any]],
    kit: Any,
    status_kit: Any,
) -> Iterator[Prometheus]:
    memory = Path(tempfile.mkdtemp(prefix="onggi-test-", dir="/dev/shm"))
    scene = Scene(tmp_path_factory.mktemp("prometheus"), memory, (kit, status_kit))
    try:
        scene.watch(prometheus_program, documents)
        scene.play()
        assert scene.prometheus is not None
        yield scene.prometheus
    finally:
        scene.close()
        shutil.rmtree(memory)


def test_the_monitors_choose_what_is_ours_and_no_more(prometheus: Prometheus) -> None:
    found = {
        (one["job"], one["namespace"], one["pod"], one.get("pool")): value
        for one, value in prometheus.ask("up")
    }
    assert found == {
        ("onggi-webhook", "onggi-system", "onggi-webhook-0", None): 1,
        ("onggi-operator", "onggi-system", "onggi-operator-0", None): 1,
        ("pods", "team-a", "chat-0", "main"): 1,
    }


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("onggi_stored_blocks_total", 2 * BLOCKS),
        ('onggi_hit_blocks_total{tier="host"}', BLOCKS),
        ('onggi_hit_blocks_total{tier="disk"}', 0),
        ("onggi_miss_blocks_total", ABSENT),
        ("onggi_lookup_blocks_total", BLOCKS + ABSENT),
        ("onggi_saved_tokens_total", BLOCKS * 16),
        ('onggi_moved_bytes_total{tier="host",direction="in"}', 2 * BLOCKS * 65536),
        ('onggi_moved_bytes_total{tier="host",direction="out"}', BLOCKS * 65536),
        ('onggi_moved_bytes_total{tier="disk",direction="in"}', 2 * BLOCKS * 65536),
        ('onggi_capacity_bytes{tier="host"}', 16 << 20),
        ('onggi_pool_hit_blocks_total{namespace="team-a",pool="chat",tier="host"}', 3),
        ('onggi_pool_tokens_saved_total{namespace="team-a",pool="chat"}', 64),
    ],
)
def test_what_was_done_is_what_prometheus_says(
    prometheus: Prometheus, expression: str, value: float
) -> None:
    assert prometheus.value(expression) == value


def test_no_label_is_one_that_may_grow(prometheus: Prometheus) -> None:
    """Beside what the scrape itself adds: namespace, pod, pool, job, instance."""
    labels = set(prometheus.get("labels", **{"match[]": '{__name__=~"onggi_.*"}'}))
    added = {"__name__", "instance", "job", "namespace", "pod", "pool"}
    assert labels - added == {
        "direction", "end", "kind", "le", "op", "outcome", "reason", "state", "status", "tier",
        "type",
    }  # fmt: skip
    (agent,) = [n for one, n in prometheus.ask("scrape_samples_scraped") if one["job"] == "pods"]
    assert 100 < agent < 500


@pytest.mark.parametrize("asks", sorted(expressions()))
def test_every_expression_answers(prometheus: Prometheus, asks: str) -> None:
    found = prometheus.ask(expressions()[asks])
    if asks in QUIET:
        assert found == []
        return
    assert found, "no value"
    expected = VALUES.get(asks)
    if expected is None:
        told = [value for _, value in found if value == value]  # a quantile of nothing is NaN
        assert told
        assert min(told) >= -1
        return
    if not isinstance(expected, dict):
        (found_one,) = found
        assert found_one[1] == pytest.approx(expected)
        return
    by_label = {next(one[k] for k in TELLING if k in one): value for one, value in found}
    assert by_label.keys() == expected.keys()
    for label, wanted in expected.items():
        value = by_label[label]
        assert value > 0 if wanted is None else value == pytest.approx(wanted)


def test_alerts_without_a_wait_fire(prometheus: Prometheus) -> None:
    def firing() -> set[str]:
        alerts = prometheus.get("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    wanted = {"OnggiWebhookFaults", "OnggiClientFaults"}
    until("both to fire", lambda: wanted <= firing())
    assert firing() == wanted
