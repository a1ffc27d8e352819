"""vLLM's interface with stand-ins for its classes: how the two sides of a connector find each
other, alone and among several, and when the worker's side hears that a step is over."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from onggi.connectors.vllm.metadata import Report, StepPlan, Told

OURS = "onggi.connectors.vllm."
IMPORT_VLLM = [OURS + name for name in ("connector", "carried", "start", "publish", "siblings")]
IMPORT_VLLM += [OURS + "stats"]
KV = "vllm.distributed.kv_transfer"


class Base:
    """KVConnectorBase_V1."""

    def __init__(self, vllm_config: Any, _: Any, kv_cache_config: Any) -> None:
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._kv_transfer_config = vllm_config.kv_transfer_config
        self._connector_metadata: Any = None

    def get_handshake_metadata(self) -> Any:
        return None


class Shaking(Base):
    def get_handshake_metadata(self) -> Any:
        return "mine"


def modules() -> dict[str, ModuleType]:
    kind: Any = type
    names = {
        "vllm": {"__version__": "0"},
        "vllm.distributed.kv_events": dict.fromkeys(EVENTS, object),
        KV: {},
        f"{KV}.kv_connector.v1.base": {
            "KVConnectorBase_V1": Base,
            "KVConnectorRole": SimpleNamespace(SCHEDULER="scheduler", WORKER="worker"),
            "KVConnectorTransferResults": lambda *results: results,
            **{n: kind(n, (), {}) for n in CLASSES},
        },
        f"{KV}.kv_connector.v1.metrics": {
            n: kind(n, (), {}) for n in ("KVConnectorPromMetrics", "KVConnectorStats")
        },
        "vllm.v1.metrics.cache_hit_source": {"CacheHitSource": object},
        "vllm.v1.core.kv_cache_utils": {"maybe_convert_block_hash": None},
        "vllm.v1.kv_cache_interface": dict.fromkeys(SPECS),
        "torch": {"Tensor": object},
    }
    made: dict[str, ModuleType] = {}
    for name, attributes in names.items():
        for parent in [name.rsplit(".", up)[0] for up in range(name.count("."), 0, -1)]:
            made.setdefault(parent, ModuleType(parent))
        made[name] = ModuleType(name)
        vars(made[name]).update(attributes)
    return made


EVENTS = ("MEDIUM_CPU", "MEDIUM_STORAGE", "BlockRemoved", "BlockStored", "KVCacheEvent")
SPECS = ("get_kv_cache_spec_kind", "get_kv_cache_spec_sliding_window")
CLASSES = (
    "KVConnectorHandshakeMetadata",
    "KVConnectorMetadata",
    "KVConnectorWorkerMetadata",
    "SupportsHMA",
)


class Engine:
    """Connectors of an engine, made as vLLM makes them; `started`: what schedulers were told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = importlib.import_module(OURS + "connector")
        self.carried = importlib.import_module(OURS + "carried")
        self.started: list[list[Told]] = []
        self.group: Any = None
        siblings: Any = importlib.import_module(OURS + "siblings")
        monkeypatch.setattr(siblings, "has_kv_transfer_group", lambda: self.group is not None)
        monkeypatch.setattr(siblings, "get_kv_transfer_group", lambda: self.group)
        monkeypatch.setattr(self.module.start, "scheduler", self._scheduler)

    def _scheduler(self, *given: Any) -> Any:
        self.started.append(list(given[2]))
        return None if len(given[2]) < 2 else SimpleNamespace(reported=lambda *_: None)

    def connector(self, role: str, *, pipeline: int = 1) -> Any:
        transfer = SimpleNamespace(kv_connector_extra_config={}, kv_load_failure_policy="recompute")
        parallel = SimpleNamespace(pipeline_parallel_size=pipeline)
        config = SimpleNamespace(kv_transfer_config=transfer, parallel_config=parallel)
        return self.module.OnggiConnector(config, role, None)

    def worker(self, *others: Any, pipeline: int = 1) -> Any:
        """A worker's side that has something to tell, beside others."""
        made = self.connector("worker", pipeline=pipeline)
        made._told = Told(unit=1)
        self.group = SimpleNamespace(sub_connectors=[*others, made]) if others else made
        return made


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for name in IMPORT_VLLM:
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    siblings = sys.modules[KV]
    siblings.has_kv_transfer_group = siblings.get_kv_transfer_group = None  # type: ignore[attr-defined]
    yield Engine(monkeypatch)
    for name in IMPORT_VLLM:
        sys.modules.pop(name, None)


def neighbour(kind: type[Base]) -> Base:
    return kind(SimpleNamespace(kv_transfer_config=None), None, None)


def test_alone_a_rank_says_at_the_handshake_what_it_is(engine: Engine) -> None:
    assert engine.worker().get_handshake_metadata().told == Told(unit=1)
    assert engine.worker(pipeline=2).get_handshake_metadata().told == Told(unit=1)


def test_beside_others_it_says_so_unless_that_would_end_the_engine(engine: Engine) -> None:
    quiet, shaking = neighbour(Base), neighbour(Shaking)
    assert engine.worker(quiet).get_handshake_metadata() is not None
    assert engine.worker(quiet, shaking).get_handshake_metadata() is None
    assert engine.worker(quiet, pipeline=2).get_handshake_metadata() is None
    within = SimpleNamespace(sub_connectors=[shaking])
    assert engine.worker(within).get_handshake_metadata() is None


def test_a_scheduler_begins_by_the_handshake(engine: Engine) -> None:
    scheduler = engine.connector("scheduler")
    told = {(0, rank): engine.carried.OnggiTold(Told(unit=rank)) for rank in (1, 0)}
    scheduler.set_xfer_handshake_metadata_pp_aware(told)
    assert engine.started == [[Told(unit=0), Told(unit=1)]]


def test_a_scheduler_that_no_handshake_reached_begins_by_reports(engine: Engine) -> None:
    """Of all ranks, in whatever order; another connector's word is none."""
    scheduler = engine.connector("scheduler")
    scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): "theirs"})
    assert engine.started == []
    for rank in (1, 0):
        report = engine.carried.OnggiReport(Report(told={rank: Told(unit=rank)}))
        scheduler.update_connector_output(SimpleNamespace(kv_connector_worker_meta=report))
    assert engine.started == [[Told(unit=1)], [Told(unit=0), Told(unit=1)]]
    output = SimpleNamespace(kv_connector_worker_meta=None, finished_recving=None)
    scheduler.update_connector_output(output)
    assert len(engine.started) == 2
    assert scheduler.faults.total == 0


def test_a_step_is_over_for_loads_when_its_results_are_collected(engine: Engine) -> None:
    """With drafts that is before the engine says that all is written."""
    worker, seen = engine.connector("worker"), []
    plan = StepPlan()
    worker._connector_metadata = engine.carried.OnggiStep(plan)
    worker._worker = SimpleNamespace(
        computed=lambda given: seen.append(("computed", given)),
        finished=lambda: (set(), set()),
        take_failed=set,
    )
    worker.get_transfer_results(set())
    assert seen == [("computed", plan)]
