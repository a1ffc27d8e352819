"""The SGLang backend against a running agent: what is kept comes back bit for bit, what is not kept
is a miss, and nothing an agent or a pool does reaches the engine.

Each test runs against stand-ins for SGLang's classes, and against the real ones where the wheel is
installed (sglang_wheel.py says what that takes).
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from sglang_stand_ins import BATCH, Rank, arguments, hashes

from onggi.connectors.sglang.guard import FAULTS_MAX

LAYOUTS = [(kind, layout) for kind in ("mha", "mla") for layout in ("page_first", "layer_first")]


@pytest.mark.parametrize(("kind", "layout"), LAYOUTS)
def test_what_is_backed_up_comes_back_to_other_pages(
    make_rank: Any, kind: str, layout: str
) -> None:
    rank = make_rank(kind=kind, layout=layout)
    keys = hashes(6)
    wanted = [rank.write(page, page) for page in range(6)]
    assert rank.backup(keys, range(6))
    assert rank.prefetch([*keys, *hashes(2, seed=9)], [9, 8, 15, 7, 6, 14, 10, 11]) == 6
    assert [rank.read(page) for page in (9, 8, 15, 7, 6, 14)] == wanted
    assert rank.storage.faults.total == 0


def test_an_engine_that_starts_anew_finds_what_the_last_one_kept(make_rank: Any) -> None:
    first, keys = make_rank(), hashes(3)
    wanted = [first.write(page, page) for page in range(3)]
    assert first.backup(keys, range(3))
    first.storage.close()
    assert (first.storage.batch_exists(keys), first.backup(keys, range(3))) == (0, False)
    second = make_rank()
    assert second.prefetch(keys, [4, 5, 6]) == 3
    assert [second.read(page) for page in (4, 5, 6)] == wanted


def test_a_chain_of_several_batches(make_rank: Any) -> None:
    rank = make_rank(pages=2 * BATCH + 40, width=4, page_size=2)
    count = BATCH + 20
    keys = hashes(count)
    wanted = [rank.write(page, page) for page in range(count)]
    assert rank.backup(keys, range(count))
    to = range(count, 2 * count)
    assert rank.prefetch(keys, to[: 2 * BATCH + 40 - count]) == min(count, 2 * BATCH + 40 - count)
    assert [rank.read(page) for page in to[:100]] == wanted[:100]


def test_hits_are_a_prefix_and_end_at_the_first_gap(make_rank: Any) -> None:
    rank, keys = make_rank(), hashes(5)
    for page in range(5):
        rank.write(page, page)
    assert rank.backup(keys[:2], range(2))
    assert rank.backup(keys[3:], range(3, 5))
    exists = rank.storage.batch_exists
    assert (exists(keys), exists(keys[3:]), exists(keys[2:]), exists([])) == (2, 2, 0, 0)
    assert rank.storage.batch_get_v1(keys, rank.at(range(8, 13))) == [True, True] + [False] * 3
    assert [rank.storage.exists(key) for key in keys] == [True, True, False, True, True]


def test_pages_kept_before_are_kept_and_not_copied_again(make_rank: Any) -> None:
    rank, keys = make_rank(), hashes(4)
    wanted = rank.write(0, 0)
    assert rank.storage.batch_set_v1(keys[:2], rank.at([0, 1])) == [True, True]
    rank.write(0, 77)
    assert rank.storage.batch_set_v1(keys, rank.at([0, 1, 2, 3])) == [True] * 4
    assert rank.prefetch(keys[:1], [9]) == 1
    assert rank.read(9) == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"model": "another/model"},
        {"page_size": 8, "width": 32},
        {"layers": 2, "width": 96},
        {"layout": "layer_first"},
        {"tp": (1, 2)},
        {"tp": (0, 2)},
        {"extra": {"tenant": "t"}},
        {"extra": {"revision": "r2"}},
        {"arguments": {"kv_cache_dtype": "fp8_e5m2"}},
        {"arguments": {"dtype": "float32"}},
        {"arguments": {"attention_backend": "triton"}},
        {"arguments": {"json_model_override_args": '{"rope_theta": 1}'}},
        {"arguments": {"load_format": "dummy", "random_seed": 1}},
    ],
    ids=str,
)
def test_pages_of_another_kind_are_not_found(make_rank: Any, change: dict[str, Any]) -> None:
    rank, keys = make_rank(), hashes(2)
    assert rank.backup(keys, range(2))
    model = change.pop("model", None)
    changed = {**change.pop("arguments", {}), **({"model_path": model} if model else {})}
    other = make_rank(arguments=changed, **change)
    assert (other.storage.batch_exists(keys), rank.storage.batch_exists(keys)) == (0, 2)


def test_adapters_that_were_trained_anew_are_another_kind(make_rank: Any, tmp_path: Path) -> None:
    """SGLang names an adapter by name and path, whatever is in its files."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(b"one")
    given = {"lora_paths": [f"mine={folder}"]}
    assert make_rank(arguments=given).backup(hashes(2), range(2))
    assert make_rank(arguments=given).storage.batch_exists(hashes(2)) == 2
    weights.write_bytes(b"two")
    assert make_rank(arguments=given).storage.batch_exists(hashes(2)) == 0


def test_ranks_of_a_latent_share_what_the_first_one_writes(make_rank: Any) -> None:
    first, second = (make_rank(kind="mla", tp=(rank, 2)) for rank in range(2))
    keys, wanted = hashes(2), first.write(0, 5)
    second.write(0, 6)
    assert second.storage.batch_set_v1(keys, second.at([0, 1])) == [True, True]
    assert first.storage.batch_exists(keys) == 0
    assert first.backup(keys, [0, 1])
    assert second.prefetch(keys, [8, 9]) == 2
    assert second.read(8) == wanted


def test_the_chain_is_told_what_it_follows(make_rank: Any, monkeypatch: Any) -> None:
    rank, keys = make_rank(), hashes(4)
    client = rank.storage._pools.main.client
    asked: list[tuple[list[bytes], bytes]] = []
    prepare = client.store_prepare

    def noted(keys: list[bytes], *, parent: bytes) -> Any:
        asked.append((keys, parent))
        return prepare(keys, parent=parent)

    monkeypatch.setattr(client, "store_prepare", noted)
    rank.storage.batch_set_v1(keys[:2], rank.at([0, 1]))
    info = rank.engine.ExtraInfo(prefix_keys=keys[:2])
    rank.storage.batch_set_v1(keys[2:], rank.at([2, 3]), info)
    assert [parent for _, parent in asked] == [bytes(16), asked[0][0][1]]


def test_the_plain_interface_takes_packed_pages(make_rank: Any) -> None:
    rank, keys = make_rank(extra={"interface_v1": 0}), hashes(3)
    wanted = [rank.write(page, page) for page in range(3)]
    packed = [rank.pool.get_data_page(page * rank.page_size) for page in range(3)]
    assert rank.storage.batch_set(keys[:2], packed[:2])
    assert rank.storage.set(keys[2], packed[2])
    assert rank.storage.batch_exists(keys) == 3
    into = [rank.pool.get_dummy_flat_data_page() for _ in range(4)]
    found = rank.storage.batch_get([*keys, hashes(1, seed=4)[0]], into)
    assert found[3] is None
    for number, page in enumerate(found[:3]):
        rank.pool.set_from_flat_data_page((8 + number) * rank.page_size, page)
    assert [rank.read(page) for page in (8, 9, 10)] == wanted
    assert rank.storage.get(keys[0], rank.pool.get_dummy_flat_data_page()) is not None
    assert rank.storage.get(hashes(1, seed=4)[0], rank.pool.get_dummy_flat_data_page()) is None
    assert rank.storage.set(keys[0], packed[0][:-1]) is False
    assert rank.storage.faults.by_call == {"batch_set": 1}


def test_what_was_cleared_is_not_found_even_after_attaching_anew(make_rank: Any) -> None:
    rank, keys = make_rank(), hashes(3)
    assert rank.backup(keys, range(3))
    assert rank.storage.clear() is True
    assert rank.storage.batch_exists(keys) == 0
    assert rank.backup(keys[:2], range(2))
    assert rank.storage.batch_exists(keys) == 2
    rank.storage.close()
    attached = make_rank()
    assert attached.storage.batch_exists(keys) == 2
    assert attached.storage.clear() is True
    assert attached.storage.batch_exists(keys) == 0


def test_threads_of_queries_prefetches_and_backups(make_rank: Any) -> None:
    rank = make_rank(pages=64)
    wanted = [rank.write(page, page) for page in range(32)]
    wrong: list[str] = []

    def work(number: int) -> None:
        keys, pages = hashes(8, seed=number), range(number * 8, number * 8 + 8)
        for _ in range(20):
            if not rank.backup(keys, pages) or rank.prefetch(keys, range(32 + number * 8, 64)) != 8:
                wrong.append(f"{number}: missed")
            if [rank.read(32 + page) for page in pages] != wanted[number * 8 : number * 8 + 8]:
                wrong.append(f"{number}: other bytes")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pages_that_are_on_disk_only_come_back(make_agent: Any, make_rank: Any) -> None:
    agent = make_agent(extents=2, segments=8)
    rank = make_rank(agent=agent, pages=64, width=1024)
    chains = [hashes(16, seed=chain) for chain in range(16)]
    for chain, keys in enumerate(chains):
        for page in range(16):
            rank.write(page, chain * 100 + page)
        assert rank.backup(keys, range(16))
    before = agent.stats()["read_bytes"]
    assert rank.prefetch(chains[0], range(32, 48)) == 16
    assert [rank.read(32 + page) for page in range(16)] == [
        rank.write(0, page) for page in range(16)
    ]
    assert agent.stats()["read_bytes"] > before


def test_an_agent_that_comes_back_is_found_again(agent: Any, make_rank: Any) -> None:
    rank, keys = make_rank(), hashes(2)
    assert rank.backup(keys, range(2))
    agent.restart()
    answers = [rank.storage.batch_exists(keys), rank.backup(keys, range(2))]
    assert answers[0] == 0
    while not rank.backup(keys, range(2)):
        assert rank.storage.faults.total == 0
    assert rank.prefetch(keys, [8, 9]) == 2


def test_without_an_agent_all_is_a_miss(make_rank: Any, tmp_path: Path) -> None:
    rank = make_rank(socket=str(tmp_path / "nobody.sock"), extra={"deadline_s": 0.01})
    keys = hashes(2)
    assert rank.storage.batch_exists(keys) == 0
    assert rank.storage.batch_get_v1(keys, rank.at([0, 1])) == [False, False]
    assert rank.storage.batch_set_v1(keys, rank.at([0, 1])) == [False, False]
    assert rank.storage.faults.total == 0


def test_a_mute_agent_is_a_miss(agent: Any, make_rank: Any, hang: Any) -> None:
    rank = make_rank(extra={"deadline_s": 0.02, "disk_wait_s": 0.02})
    hang(agent)
    keys = hashes(2)
    assert rank.storage.batch_get_v1(keys, rank.at([0, 1])) == [False, False]
    assert rank.storage.batch_set_v1(keys, rank.at([0, 1])) == [False, False]
    assert rank.storage.batch_exists(keys) == 0
    assert rank.storage.faults.total == 0


def test_a_fault_is_a_miss_and_many_end_the_part_taken(make_rank: Any) -> None:
    rank, keys = make_rank(), hashes(2)
    assert rank.backup(keys, range(2))
    for call in (rank.storage.batch_get_v1, rank.storage.batch_set_v1):
        assert call(keys, rank.at([0])) == [False, False]
        assert call(keys, None) == [False, False]
    assert rank.storage.faults.by_call == {"batch_get_v1": 2, "batch_set_v1": 2}
    assert rank.storage.batch_exists(keys) == 2
    for _ in range(FAULTS_MAX):
        rank.storage.batch_get_v1(keys, None)
    assert rank.storage.batch_exists(keys) == 0


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"tenat": "a"}, "extra-config has tenat; did you mean tenant?"),
        ({"disk_wait_s": "soon"}, "disk_wait_s is 'soon'; use seconds"),
        ({"socket": ""}, "ONGGI_SOCKET is not set"),
        ({"revision": ""}, "set ONGGI_MODEL_REVISION"),
    ],
)
def test_what_cannot_be_is_said_and_the_engine_goes_on(
    make_rank: Any, caplog: Any, monkeypatch: Any, extra: dict[str, Any], said: str
) -> None:
    monkeypatch.delenv("ONGGI_SOCKET", raising=False)
    rank = make_rank(extra=extra)
    texts = [f"{one.getMessage()} {one.exc_info}" for one in caplog.records]
    assert [text for text in texts if said in text]
    assert rank.backup(hashes(2), range(2)) is False
    assert rank.storage.batch_exists(hashes(2)) == 0


def test_what_changed_since_the_last_start_is_said(make_rank: Any, caplog: Any) -> None:
    make_rank(arguments={"dtype": "auto"}).storage.close()
    assert "do not fit" not in caplog.text
    make_rank(arguments={"dtype": "float32"}, page_size=8)
    assert "blocks of the last start do not fit this one: dtype (auto -> float32)" in caplog.text
    assert "page_tokens (4 -> 8)" in caplog.text
    assert "What was kept is found again with the old value" in caplog.text


def test_a_path_of_the_engines_for_another_backend_is_not_minded(make_rank: Any) -> None:
    rank = make_rank(extra={"file_storage_path": "/somewhere"})
    assert rank.backup(hashes(2), range(2))


def test_the_environment_configures_what_the_flags_leave_out(
    agent: Any, make_rank: Any, monkeypatch: Any
) -> None:
    rank = make_rank()
    assert rank.backup(hashes(2), range(2))
    monkeypatch.setenv("ONGGI_SOCKET", agent.socket_path)
    monkeypatch.setenv("ONGGI_MODEL_REVISION", "r1")
    same = make_rank(only={"interface_v1": 1})
    assert same.storage.batch_exists(hashes(2)) == 2
    monkeypatch.setenv("ONGGI_TENANT", "another")
    assert make_rank(only={"interface_v1": 1}).storage.batch_exists(hashes(2)) == 0


def test_the_engines_own_metrics_get_what_was_moved(make_rank: Any) -> None:
    rank, keys = make_rank(), hashes(3)
    assert rank.backup(keys, range(3))
    assert rank.prefetch(keys[:2], [8, 9]) == 2
    first, second = rank.storage.get_stats(), rank.storage.get_stats()
    assert (first.backup_pgs, first.prefetch_pgs) == ([3], [2])
    assert all(rate > 0 for rate in (*first.backup_bandwidth, *first.prefetch_bandwidth))
    assert second.backup_pgs == second.prefetch_pgs == second.backup_bandwidth == []


def test_no_session_is_left_behind(agent: Any, make_rank: Any) -> None:
    rank = make_rank(others=[("swa", "mha")])
    assert agent.clients == 2
    rank.storage.close()
    while agent.clients:
        pass
    assert isinstance(rank, Rank)
    assert arguments().model_path == "a/model"
