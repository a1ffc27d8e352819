"""vLLM's side of a secondary tier, for tests: stand-ins that hold the same contract, always, and
the real classes where vLLM can be imported.

A `Host` is vLLM's host memory and its manager, small enough to see through: chunks are pinned for a
store, written for a load, and given back when the tier reports the job.
"""

from __future__ import annotations

import enum
import random
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

ROW = 8192
CHUNK_TOKENS = 32
OURS = "onggi.connectors.vllm.secondary."
MODULES = tuple(OURS + name for name in ("connector", "lookups", "start", "tier"))


class LookupResult(enum.Enum):
    MISS = enum.auto()
    HIT = enum.auto()
    HIT_PENDING = enum.auto()
    RETRY = enum.auto()


class Medium(enum.Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class Locality(enum.Enum):
    LOCAL = "LOCAL"
    REMOTE = "REMOTE"


@dataclass
class OffloadingEvent:
    keys: list[bytes]
    medium: Medium
    removed: bool
    locality: Locality | None = None
    ownership: str | None = None
    removal_expected: bool = False


@dataclass
class RequestOffloadingContext:
    policy: str = "chunk_level"


@dataclass(frozen=True)
class OffloadingMetricMetadata:
    documentation: str


@dataclass
class ReqContext:
    req_id: str
    _state: dict[type, Any] = field(default_factory=dict)
    _positions: dict[bytes, int] = field(default_factory=dict)

    def set_state(self, val: Any) -> None:
        self._state[type(val)] = val

    def get_state(self, cls: type) -> Any:
        return self._state.get(cls)

    def set_offload_key_position(self, key: bytes, end_token: int) -> None:
        self._positions[key] = end_token

    def get_offload_key_position(self, key: bytes) -> int | None:
        return self._positions.get(key)


@dataclass
class TransferJob:
    job_id: int
    keys: Sequence[bytes]
    chunk_ids: Sequence[int]
    is_promotion: bool
    req_context: Any


@dataclass
class JobResult:
    job_id: int
    success: bool
    successful_keys: Sequence[bytes] | None = None
    transfer_time: float | None = None
    transfer_bytes: int | None = None


class SecondaryTierManager:
    def __init__(
        self, offloading_spec: Any, primary_kv_view: Any, tier_type: str, detector: Any = None
    ) -> None:
        self._offloading_spec = offloading_spec
        self._primary_kv_view = primary_kv_view
        self.tier_type = tier_type
        self.bp_detector = detector


class AsyncLookupManager:
    """Answers at flush(), on the caller's thread."""

    def __init__(self, tier_type: str) -> None:
        self.tier_type = tier_type
        self._verdicts: dict[bytes, bool | None] = {}
        self._by_request: dict[str, set[bytes]] = {}
        self._asked: list[tuple[bytes, Any]] = []

    def batch_lookup(self, keys: list[bytes], req_context: Any) -> Iterable[bool]:
        raise NotImplementedError

    def lookup(self, key: bytes, req_context: Any) -> bool | None:
        if key not in self._verdicts:
            self._verdicts[key] = None
            self._asked.append((key, req_context))
        self._by_request.setdefault(req_context.req_id, set()).add(key)
        return self._verdicts[key]

    def flush(self) -> None:
        asked, self._asked = self._asked, []
        if asked:
            keys = [key for key, _ in asked]
            self._verdicts.update(zip(keys, self.batch_lookup(keys, asked[0][1]), strict=True))

    def mark_miss(self, keys: Iterable[bytes]) -> None:
        self._verdicts.update({key: False for key in keys if key in self._verdicts})

    def cleanup(self, req_id: str) -> None:
        for key in self._by_request.pop(req_id, ()):
            self._verdicts.pop(key, None)

    def shutdown(self) -> None:
        pass


class Stats:
    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def increase_counter(self, name: str, amount: float) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


class OffloadingConnector:
    made: Any = None

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        self.made = type(self).made() if type(self).made else None


class SecondaryTierFactory:
    known: ClassVar[dict[str, tuple[str, str]]] = {}

    @classmethod
    def register_tier(cls, tier_type: str, module_path: str, class_name: str) -> None:
        cls.known[tier_type] = (module_path, class_name)


def stand_in(monkeypatch: Any) -> None:
    """These, under the names of vLLM's modules."""
    base = {
        "LookupResult": LookupResult, "Medium": Medium, "Locality": Locality,
        "OffloadingEvent": OffloadingEvent, "RequestOffloadingContext": RequestOffloadingContext,
        "OffloadingMetricMetadata": OffloadingMetricMetadata,
        "OffloadingCounterMetadata": OffloadingMetricMetadata, "ScheduleEndContext": tuple,
    }  # fmt: skip
    connectors = "vllm.distributed.kv_transfer.kv_connector.v1"
    tiering = "vllm.v1.kv_offload.tiering"
    platform = SimpleNamespace(is_cpu=lambda: False, get_device_name=lambda: "device")
    modules: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": "0.32.0"},
        "vllm.platforms": {"current_platform": platform},
        "vllm.v1.core.kv_cache_utils": {"get_none_hash_seed": lambda: "seed"},
        "vllm.v1.kv_offload.base": base,
        f"{tiering}.base": {
            "JobResult": JobResult,
            "SecondaryTierManager": SecondaryTierManager,
            "TransferJob": TransferJob,
        },
        f"{tiering}.async_lookup": {"AsyncLookupManager": AsyncLookupManager},
        f"{tiering}.factory": {"SecondaryTierFactory": SecondaryTierFactory},
        f"{connectors}.base": {"KVConnectorRole": str},
        f"{connectors}.offloading.metrics": {"OffloadingConnectorStats": Stats},
        f"{connectors}.offloading_connector": {"OffloadingConnector": OffloadingConnector},
    }
    for name, members in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            if (known := ".".join(parts[:end])) not in modules or end == len(parts):
                module = ModuleType(known)
                module.__dict__.update(members if end == len(parts) else {})
                if known not in sys.modules or end == len(parts):
                    monkeypatch.setitem(sys.modules, known, module)


def imported() -> str:
    """Why vLLM cannot be imported here; empty: it can."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an engine's packages; not ours to mend
            import vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector
            import vllm.v1.kv_offload.tiering.spec  # noqa: F401 - imports the rest
    except Exception as why:  # noqa: BLE001 - whatever an engine's import may raise
        return f"vLLM cannot be imported here: {why!r:.200}"
    return ""


# ---- what an engine is, as far as a tier reads it


class FullAttentionSpec:
    def __init__(self) -> None:
        self.block_size, self.num_kv_heads, self.head_size = CHUNK_TOKENS, 2, 64
        self.dtype = "float16"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({vars(self)})"


class SlidingWindowSpec(FullAttentionSpec):
    def __init__(self) -> None:
        super().__init__()
        self.sliding_window = 64


def engine_config(**changes: Any) -> tuple[Any, Any]:
    """vllm_config and kv_cache_config, of a model with a window beside full attention."""
    hf = SimpleNamespace(_commit_hash="c0ffee", to_dict=lambda: {"hidden_size": 64})
    parallel = {
        "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "nnodes_within_dp": 1,
        "decode_context_parallel_size": 1, "prefill_context_parallel_size": 1,
    }  # fmt: skip
    model: dict[str, Any] = {"model": "org/name", "dtype": "float16", "hf_config": hf, "seed": 0}
    cache = {"cache_dtype": "auto", "kv_cache_layout": None, "calculate_kv_scales": False}
    cache["prefix_caching_hash_algo"] = "sha256"
    top: dict[str, Any] = {"lora_config": None, "attention_config": None}
    for part in (parallel, model, cache, top):
        part.update({name: value for name, value in changes.items() if name in part})
    config = SimpleNamespace(
        model_config=SimpleNamespace(quantization=None, **model),
        cache_config=SimpleNamespace(**cache),
        parallel_config=SimpleNamespace(**parallel),
        load_config=SimpleNamespace(load_format="auto"),
        **top,
    )
    groups = [
        SimpleNamespace(layer_names=[f"l{number}"], kv_cache_spec=spec())
        for number, spec in enumerate((FullAttentionSpec, SlidingWindowSpec))
    ]
    return config, SimpleNamespace(kv_cache_groups=groups, kv_cache_layout="LBNHC")


def offloading_spec(*, events: bool = False, **changes: Any) -> Any:
    cache = {"blocks_per_chunk": 1, "tokens_per_hash": CHUNK_TOKENS}
    wide = {"canonical_layout": False}
    for part in (cache, wide):
        part.update({name: value for name, value in changes.items() if name in part})
    groups = [SimpleNamespace(group_id=n, layer_names=(f"l{n}",)) for n in range(2)]
    return SimpleNamespace(
        config=SimpleNamespace(
            parallel=SimpleNamespace(world_size=changes.get("world_size", 1)),
            cache=SimpleNamespace(**cache),
            groups=groups,
            **wide,
        ),
        tokens_per_block=(CHUNK_TOKENS,) * 2,
        blocks_per_chunk=cache["blocks_per_chunk"],
        replicated_layout=False,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=events),
    )


def name_of(number: int, group: int = 0, text: str = "") -> bytes:
    """As vLLM's keys: a hash and the number of the group."""
    return random.Random(f"{text}{number}").randbytes(32) + group.to_bytes(4, "big")


class Host:
    """vLLM's host memory, with a tier behind it."""

    def __init__(self, vllm: Any, chunks: int = 64, settings: Any = None, **engine: Any) -> None:
        """vllm: the classes. engine: what its configuration says differently."""
        from onggi.connectors.vllm.secondary.engine import Engine, makes_tiers
        from onggi.connectors.vllm.secondary.tier import OnggiTier

        self._vllm = vllm
        self.memory = bytearray(chunks * ROW)
        self.view = memoryview(self.memory).cast("B", (chunks, ROW))
        events, known = engine.pop("events", False), engine.pop("known", True)
        spec = offloading_spec(events=events, **engine)
        settings = {"revision": "r1", **(settings or {})}
        if known:
            with makes_tiers(Engine(*engine_config(**engine))):
                self.tier = OnggiTier(spec, self.view, "onggi", **settings)
        else:
            self.tier = OnggiTier(spec, self.view, "onggi", **settings)
        self._jobs = iter(range(1_000_000))
        self._requests = iter(range(1_000_000))

    def request(self, names: Iterable[bytes]) -> Any:
        """A request whose prompt has these chunks, those of each group in their order."""
        context = self._vllm.ReqContext(f"r{next(self._requests)}")
        at: dict[bytes, int] = {}
        for name in names:
            group = name[-4:]
            at[group] = at.get(group, 0) + CHUNK_TOKENS
            context.set_offload_key_position(name, at[group])
        self.tier.on_new_request(context)
        return context

    def row(self, chunk: int) -> bytes:
        return bytes(self.memory[chunk * ROW : (chunk + 1) * ROW])

    def fill(self, chunk: int, name: bytes) -> None:
        self.memory[chunk * ROW : (chunk + 1) * ROW] = content(name)

    def store(self, names: Sequence[bytes], context: Any = None) -> Any:
        """The result of a job that stores these, from chunks and in an order of no meaning."""
        context = context or self.request(names)
        return self._job(self.tier.submit_store, names, context, fill=True)[0]

    def load(self, names: Sequence[bytes], context: Any = None) -> tuple[Any, dict[bytes, bytes]]:
        """The result, and what lies in each chunk's row then."""
        context = context or self.request(names)
        result, places = self._job(self.tier.submit_load, names, context, fill=False)
        return result, {name: self.row(chunk) for name, chunk in places.items()}

    def _job(
        self, submit: Any, names: Sequence[bytes], context: Any, *, fill: bool
    ) -> tuple[Any, dict[bytes, int]]:
        rng = random.Random(len(names))
        chunks = rng.sample(range(len(self.memory) // ROW), len(names))
        places = dict(zip(rng.sample(list(names), len(names)), chunks, strict=True))
        for name, chunk in places.items():
            self.memory[chunk * ROW : (chunk + 1) * ROW] = content(name) if fill else bytes(ROW)
        number = next(self._jobs)
        submit(
            self._vllm.TransferJob(number, list(places), list(places.values()), not fill, context)
        )
        return self.finished(number), places

    def finished(self, number: int) -> Any:
        until = time.monotonic() + 20
        while True:
            for result in self.tier.get_finished_jobs():
                assert result.job_id == number
                return result
            assert time.monotonic() < until, "the job was never reported"
            time.sleep(0.005)

    def found(self, names: Sequence[bytes], context: Any = None) -> list[bool]:
        """Whether each is there, asked step by step until all are answered."""
        asked = context or self.request(names)
        kinds, until = self._vllm.LookupResult, time.monotonic() + 20
        while True:
            results = [self.tier.lookup(name, asked) for name in names]
            self.tier.on_schedule_end(None)
            if kinds.RETRY not in results:
                if context is None:
                    self.tier.on_request_finished(asked)
                return [result is kinds.HIT for result in results]
            assert time.monotonic() < until, "no answer to a lookup"
            time.sleep(0.005)


def content(name: bytes) -> bytes:
    return random.Random(name).randbytes(ROW)


def classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What the fixture `vllm` is."""
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)
    if request.param == "stand-ins":
        stand_in(monkeypatch)
    elif why := imported():
        pytest.skip(why)
    # by their names: as an attribute of its package a module stays the wheel's once that was loaded
    base = import_module("vllm.v1.kv_offload.base")
    tiering = import_module("vllm.v1.kv_offload.tiering.base")
    context = getattr(base, "ReqContext", ReqContext)
    yield SimpleNamespace(
        ReqContext=context,
        TransferJob=tiering.TransferJob,
        LookupResult=base.LookupResult,
        Medium=base.Medium,
    )
    if request.param == "wheel":
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory as Factory

        Factory._registry.pop("onggi", None)
    for module in MODULES:
        sys.modules.pop(module, None)
