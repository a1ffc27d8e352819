"""The tier under vLLM's own manager of tiers, and the stand-ins held against what they stand for.

Skipped, with the reason, where vLLM cannot be imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
import tier_stand_ins
from tier_stand_ins import ROW, content, engine_config, name_of, offloading_spec

pytestmark = pytest.mark.parametrize("vllm", ["wheel"], indirect=True)

CHUNKS = 24
"""Of vLLM's host memory, for prompts of up to 20 and 50 in all."""


@pytest.mark.usefixtures("vllm")
def test_the_stand_ins_hold_the_same_contract() -> None:
    from vllm.v1.kv_offload import base
    from vllm.v1.kv_offload.tiering import base as tiering
    from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager

    for name in ("LookupResult", "Medium", "Locality"):
        assert set(getattr(base, name).__members__) == set(
            getattr(tier_stand_ins, name).__members__
        )
    for real, mine in (
        (base.OffloadingEvent, tier_stand_ins.OffloadingEvent),
        (tiering.JobResult, tier_stand_ins.JobResult),
        (tiering.TransferJob, tier_stand_ins.TransferJob),
    ):
        theirs = {one.name for one in dataclasses.fields(real)}
        assert {one.name for one in dataclasses.fields(mine)} <= theirs, real
    for name, method in inspect.getmembers(tier_stand_ins.AsyncLookupManager, inspect.isfunction):
        if not name.startswith("_"):
            wanted = list(inspect.signature(getattr(AsyncLookupManager, name)).parameters)
            assert list(inspect.signature(method).parameters) == wanted, name


@pytest.mark.usefixtures("vllm")
def test_the_tier_has_every_call_as_vllm_makes_it() -> None:
    from vllm.v1.kv_offload.tiering.base import SecondaryTierManager

    from onggi.connectors.vllm.secondary import OnggiTier

    assert not OnggiTier.__abstractmethods__
    for name, method in inspect.getmembers(SecondaryTierManager, inspect.isfunction):
        if not name.startswith("_"):
            mine = inspect.signature(getattr(OnggiTier, name))
            assert list(mine.parameters) == list(inspect.signature(method).parameters), name


class Engine:
    """vLLM's manager of tiers with its shared memory; the device is a table of bytes."""

    def __init__(self, socket: str) -> None:
        from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
        from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory
        from vllm.v1.kv_offload.tiering.manager import (
            CPUPrimaryTierOffloadingManager,
            TieringOffloadingManager,
        )

        from onggi.connectors.vllm.secondary import connector
        from onggi.connectors.vllm.secondary.engine import Engine as Known
        from onggi.connectors.vllm.secondary.engine import makes_tiers

        self.region = SharedOffloadRegion(
            engine_id=f"onggi-test-{uuid.uuid4()}",
            num_chunks=CHUNKS,
            rank=None,
            kv_bytes_per_chunk=ROW,
            cpu_page_size=ROW,
        )
        primary = CPUPrimaryTierOffloadingManager(num_chunks=CHUNKS, mmap_region=self.region)
        self.rows = primary.get_kv_memoryview().cast("B")
        entry = {"type": connector.TIER, "socket": socket, "revision": "r1"}
        with makes_tiers(Known(*engine_config())):
            self.tier = SecondaryTierFactory.create_secondary_tier(
                entry, primary.get_kv_memoryview(), offloading_spec()
            )
        self.manager = TieringOffloadingManager(primary, [self.tier])
        self._requests = iter(range(1_000_000))

    def close(self) -> None:
        self.rows.release()
        self.manager.shutdown()
        assert not os.path.exists(self.region.mmap_path)

    def _step(self) -> None:
        from vllm.v1.kv_offload.base import ScheduleEndContext

        self.manager.on_schedule_end(ScheduleEndContext((), ()))

    def prompt(self, names: Sequence[bytes]) -> int:
        """Serve one: what is found is loaded and looked at, the rest computed and stored. Returns
        the chunks that were found."""
        from vllm.v1.kv_offload.base import LookupResult, ReqContext

        context = ReqContext(f"r{next(self._requests)}")
        for number, name in enumerate(names, 1):
            context.set_offload_key_position(name, number * 32)
        self.manager.on_new_request(context)
        until = time.monotonic() + 20
        while True:
            results = []
            for name in names:
                results.append(self.manager.lookup(name, context))
                if results[-1] is LookupResult.MISS:
                    break
            if not {LookupResult.RETRY, LookupResult.HIT_PENDING} & set(results):
                break
            self._step()
            assert time.monotonic() < until, "a lookup without an end"
            time.sleep(0.002)
        hits = results.count(LookupResult.HIT)
        if hits:
            found = self.manager.prepare_load(names[:hits], context)
            for name, chunk in zip(names, found.chunk_ids, strict=False):
                assert bytes(self.rows[chunk * ROW : (chunk + 1) * ROW]) == content(name)
            self.manager.complete_load(names[:hits], context)
        self._store(names[hits:], context)
        self.manager.on_request_finished(context)
        self._step()
        return hits

    def _store(self, names: Sequence[bytes], context: Any) -> None:
        room = self.manager.prepare_store(names, context) if names else None
        if room is None:
            return
        for name, chunk in zip(room.keys_to_store, room.store_spec.chunk_ids, strict=True):
            self.rows[chunk * ROW : (chunk + 1) * ROW] = content(name)
        self.manager.complete_store(set(room.keys_to_store), context)

    def settle(self) -> None:
        until = time.monotonic() + 20
        while self.manager.has_pending_work():
            self._step()
            assert time.monotonic() < until, "a job that never ends"
            time.sleep(0.002)


@pytest.mark.usefixtures("vllm")
def test_prompts_through_vllms_manager_of_tiers(agent: Any) -> None:
    rng, engine = random.Random(3), Engine(agent.socket_path)
    stems = [[name_of(n, text=str(stem)) for n in range(20)] for stem in range(5)]
    prompts = [rng.choice(stems)[: rng.randrange(1, 20)] for _ in range(80)]
    for names in prompts:
        engine.prompt(names)
        if rng.random() < 0.5:
            engine.settle()
    engine.settle()
    assert engine.tier.faults.total == 0
    engine.close()
    other = Engine(agent.socket_path)
    longest = {
        names[0]: max(len(one) for one in prompts if one[0] == names[0]) for names in prompts
    }
    for stem in stems:
        wanted = longest.get(stem[0], 0)
        assert other.prompt(stem[:wanted]) == wanted
        other.settle()
    other.manager.reset_cache()
    assert other.prompt(stems[0][:5]) == 0
    other.settle()
    agent.stop()
    for names in prompts[:10]:
        other.prompt(names)
        other.settle()
    agent.start()
    assert other.tier.faults.total == 0
    other.close()
