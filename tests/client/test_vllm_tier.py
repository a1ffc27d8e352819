"""The tier behind vLLM's own offloading, against a real protocol: with stand-ins for vLLM's
classes, and with the real ones where vLLM is installed."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest
from engine_harness import AgentProcess, soon
from tier_stand_ins import ROW, Host, content, name_of

PROMPT = [name_of(number) for number in range(12)]
WINDOW = [name_of(number, 1) for number in range(12)]


@pytest.fixture
def make_host(vllm: Any, agent: Any, request: pytest.FixtureRequest) -> Any:
    made = []

    def make(settings: Any = None, **more: Any) -> Host:
        made.append(Host(vllm, settings={"socket": agent.socket_path, **(settings or {})}, **more))
        return made[-1]

    yield make
    for host in made:
        host.tier.shutdown()
        host.view.release()
        host.memory.clear()  # raises where anything of ours still holds on to it


def test_what_one_engine_handed_on_another_one_gets(make_host: Any) -> None:
    assert make_host().store(PROMPT + WINDOW).success
    other = make_host()
    assert other.found(PROMPT) == [True] * 12
    result, rows = other.load(PROMPT + WINDOW)
    assert result.success
    assert result.transfer_bytes == 24 * ROW
    assert rows == {name: content(name) for name in PROMPT + WINDOW}
    assert other.tier.faults.total == 0


def test_groups_of_one_hash_do_not_mix(make_host: Any) -> None:
    host = make_host()
    host.store(PROMPT)
    assert host.found(WINDOW) == [False] * 12
    assert content(PROMPT[0]) != content(WINDOW[0])


def test_a_prefix_ends_at_the_first_gap_and_a_window_does_not(make_host: Any) -> None:
    host = make_host()
    for names in (PROMPT, WINDOW):
        assert host.store([*names[:4], *names[6:]]).success
    there = [True] * 4 + [False] * 2
    assert make_host().found(PROMPT)[:6] == there
    assert make_host().found(WINDOW) == there + [True] * 6


def test_a_chain_goes_on_where_the_request_left_it(
    make_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent must know what follows what, or it evicts a beginning before its end."""
    make_host().store(PROMPT[:6])
    host = make_host()
    client, told = host.tier._live.client, []

    def store(keys: list[bytes], rows: Any, *, parent: bytes) -> Any:
        told.append((parent, *keys))
        return type(client).store(client, keys, rows, parent=parent)

    monkeypatch.setattr(client, "store", store)
    context = host.request(PROMPT)
    assert host.found(PROMPT[:7], context) == [True] * 6 + [False]
    for begin in (6, 9):
        assert host.store(PROMPT[begin : begin + 3], context).success
    keys = host.tier._live.names.keys(PROMPT)
    assert told == [(keys[5], *keys[6:9]), (keys[8], *keys[9:12])]


def test_a_load_that_fails_is_not_looked_for_at_once(make_host: Any) -> None:
    host = make_host()
    host.store(PROMPT[:5])
    result, rows = host.load(PROMPT[:8])
    assert not result.success
    assert sorted(result.successful_keys) == sorted(PROMPT[:5])
    assert all(rows[name] == content(name) for name in PROMPT[:5])
    host.store(PROMPT[6:8])
    assert host.found(PROMPT[:8]) == [True] * 5 + [False] + [True] * 2


def test_what_the_agent_has_no_room_for_is_a_failed_job(make_host: Any) -> None:
    """4 MiB of host tier and no disk; all of it is pinned by a load of another."""
    host = make_host(chunks=600, events=True)
    names = [name_of(number, text="many") for number in range(400)]
    first = host.store(names)
    client = host.tier._live.client
    held = client.load_prepare(host.tier._live.names.keys(names)).wait(2.0)
    assert first.success
    assert held.blocks == 400
    more = host.store([name_of(number, text="more") for number in range(300)])
    assert not more.success
    events = host.tier.take_events()
    assert [len(event.keys) for event in events] == [400]


def test_without_an_agent_jobs_fail_and_nothing_waits(make_host: Any, agent: Any) -> None:
    host = make_host(settings={"deadline_s": 0.05})
    agent.stop()
    assert host.found(PROMPT) == [False] * 12
    assert not host.store(PROMPT).success
    assert host.load(PROMPT)[0].success is False
    agent.start()
    assert host.tier.faults.total == 0


def test_a_reset_by_hand_ends_all_that_was_kept(make_host: Any) -> None:
    host = make_host(events=True)
    host.store(PROMPT)
    host.tier.drain_jobs()
    assert host.found(PROMPT) == [False] * 12
    stored, removed = host.tier.take_events()
    assert (stored.removed, removed.removed) == (False, True)
    assert sorted(stored.keys) == sorted(removed.keys) == sorted(PROMPT)
    other = make_host()  # another engine, whose weights are as before
    assert other.found(PROMPT) == [True] * 12
    host.store(PROMPT)
    assert host.found(PROMPT) == [True] * 12


def test_routers_hear_of_a_chunk_once_until_it_is_gone(make_host: Any, vllm: Any) -> None:
    host = make_host(events=True)
    host.store(PROMPT)
    host.store(PROMPT)
    (event,) = host.tier.take_events()
    assert sorted(event.keys) == sorted(PROMPT)
    assert (event.medium, event.ownership) == (vllm.Medium.CPU, "onggi")
    assert event.locality.value == "LOCAL"
    host.tier._live.client.discard(host.tier._live.names.keys(PROMPT[3:]))
    assert host.found(PROMPT[:3]) == [True] * 3
    assert host.tier.take_events() == []


def test_routers_hear_of_a_chunks_way_to_disk_and_back_and_of_its_end(
    make_host: Any, vllm: Any, tmp_path: Path
) -> None:
    cpu, storage = vllm.Medium.CPU, vllm.Medium.STORAGE
    (tmp_path / "run").mkdir()
    with AgentProcess(tmp_path / "run", memory="16MiB", disk="64MiB") as agent:
        host = make_host({"socket": agent.socket}, events=True)
        assert soon(lambda: host.store(PROMPT).success)

        def told() -> list[Any]:
            taken = [event for _ in range(2) for event in host.tier.take_events()]
            assert all(sorted(one.keys) == sorted(PROMPT[:12]) for one in taken)
            return [(one.medium, one.removed) for one in taken]

        assert told() == [(cpu, False)]
        agent.push_out(16)
        assert soon(told) == [(storage, False), (cpu, True)]
        assert host.load(PROMPT)[0].success
        assert soon(told) == [(cpu, False), (storage, True)]
        live = host.tier._live
        live.client.discard(live.names.keys(PROMPT))
        assert soon(told) == [(cpu, True)]


def test_an_engine_that_publishes_nothing_keeps_nothing(make_host: Any) -> None:
    host = make_host()
    host.store(PROMPT)
    assert host.tier.take_events() == []


@pytest.mark.parametrize(
    ("engine", "settings", "said"),
    [
        ({"known": False}, {}, "set kv_connector to OnggiOffloadingConnector"),
        ({"lora_config": "on"}, {}, "adapters (LoRA) are on"),
        ({"prefix_caching_hash_algo": "xxhash"}, {}, "use sha256, or set PYTHONHASHSEED"),
        ({"nnodes_within_dp": 2}, {}, "are on 2 nodes"),
        ({"decode_context_parallel_size": 2}, {}, "decode_context_parallel_size is 2"),
        ({"calculate_kv_scales": True}, {}, "calculate_kv_scales is on"),
        ({}, {"socket": ""}, "no socket is named; set ONGGI_SOCKET to the agent's"),
        ({}, {"layerwise": "on"}, "the entry onggi of secondary_tiers has layerwise"),
        ({}, {"tennant": "a"}, "did you mean tenant?"),
        ({}, {"disk_wait_s": 100}, "use seconds, more than 0 and up to 30"),
    ],
    ids=str,
)
def test_it_stands_back_and_says_why(
    make_host: Any, caplog: pytest.LogCaptureFixture, engine: Any, settings: Any, said: str
) -> None:
    with caplog.at_level(logging.WARNING, "vllm.onggi"):
        host = make_host(settings=settings, **engine)
    assert said in caplog.text
    assert host.found(PROMPT) == [False] * 12
    assert not host.store(PROMPT).success
    assert not host.load(PROMPT)[0].success
    host.tier.drain_jobs()
    assert host.tier.take_events() in ((), [])


def test_a_fault_is_a_miss_and_a_job_that_failed(
    make_host: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = make_host()
    host.store(PROMPT)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("planted")

    for name in ("load", "store", "prefetch", "showing"):
        with monkeypatch.context() as patch:
            patch.setattr(type(host.tier._live.client), name, broken)
            if name == "load":
                assert not host.load(PROMPT)[0].success
            elif name == "store":
                assert not host.store(PROMPT).success
            else:
                assert host.found([name_of(77)]) == [False]
    assert host.tier.faults.total >= 4
    assert host.tier.get_stats() is not None
    assert host.tier.get_stats() is None
    caplog.clear()  # its tracebacks hold on to the memory


def test_many_prompts_stored_and_loaded_in_any_order(make_host: Any) -> None:
    rng, host = random.Random(5), make_host(chunks=128)
    kept: set[bytes] = set()
    for number in range(60):
        stem = rng.randrange(6)
        names = [
            name_of(n, group, str(stem)) for group in range(2) for n in range(rng.randrange(1, 12))
        ]
        if rng.random() < 0.5:
            assert host.store(names).success
            kept |= set(names)
            continue
        result, rows = host.load(names)
        came = set(names) if result.success else set(result.successful_keys or ())
        assert came <= kept, number
        assert all(rows[name] == content(name) for name in came)
    assert host.tier.faults.total == 0


# ---- identity


@pytest.mark.parametrize(
    "change",
    [
        {"model": "org/other"}, {"dtype": "bfloat16"}, {"cache_dtype": "fp8"},
        {"tensor_parallel_size": 2}, {"world_size": 2}, {"blocks_per_chunk": 2},
        {"tokens_per_hash": 16}, {"canonical_layout": True}, {"attention_config": "FLASHINFER"},
        {"prefix_caching_hash_algo": "sha256_cbor"},
    ],
    ids=str,
)  # fmt: skip
def test_what_shapes_a_chunk_keeps_it_apart(make_host: Any, change: Any) -> None:
    assert make_host().store(PROMPT).success
    assert make_host(**change).found(PROMPT) == [False] * 12


@pytest.mark.parametrize("settings", [{"revision": "r2"}, {"tenant": "b"}], ids=str)
def test_weights_and_tenants_are_apart(make_host: Any, settings: Any) -> None:
    assert make_host().store(PROMPT).success
    assert make_host(settings=settings).found(PROMPT) == [False] * 12


def test_the_connector_tells_its_tiers_of_the_engine(vllm: Any) -> None:
    from onggi.connectors.vllm.secondary.engine import Engine, makes_tiers, present

    assert present() is None
    with makes_tiers(Engine("a", "b")):
        assert present() == Engine("a", "b")
    assert present() is None
