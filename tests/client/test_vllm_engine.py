"""A real vLLM with a real agent: lives of one engine after another, one at a time.

Each life is a fixture that starts an engine, does everything in order and keeps what it saw; the
tests below it look at that. An engine takes up to a minute to start, so there are only four.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import (
    BLOCK,
    ENGINE_TEST_S,
    WAIT_S,
    AgentProcess,
    EngineProcess,
    connector,
    prompt,
)

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

PAGE = 131_072
"""4 layers, 2 heads of 64, keys and values, float32, 32 tokens."""
FEW = 66
"""Blocks that hold one request of the longest length and little more."""

LONG = prompt(1, 1500)
EXACT = prompt(2, 1536)
PRIVATE = prompt(3, 700)
SHARED = [{"ids": prompt(4, 640)["ids"] + prompt(5 + n, 90)["ids"]} for n in range(3)]
CROWD = [prompt(20 + n, 500) for n in range(6)]
DISK = [prompt(40 + n, 1400) for n in range(8)]


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[AgentProcess]:
    with AgentProcess(folder / "run", memory="64MiB") as agent:
        yield agent


def onggi(metrics: dict[str, float], name: str) -> float:
    return metrics[f"vllm:onggi_{name}"]


# ---- first life: nothing is stored yet


@pytest.fixture(scope="module")
def cold(start: Any, agent: AgentProcess) -> dict[str, Any]:
    with start(agent.socket, "cold", kv_transfer_config=connector()) as engine:
        seen = {
            "long": engine.generate(LONG),
            "exact": engine.generate(EXACT),
            "salt_a": engine.generate({**PRIVATE, "salt": "a"}),
            "salt_b": engine.generate({**PRIVATE, "salt": "b"}),
            "shared": engine.generate(*SHARED),
            "crowd": engine.generate(*CROWD, max_tokens=60),
        }
        seen["metrics"] = engine.settled()
    return seen


def test_cold_everything_is_computed_and_stored(cold: dict[str, Any]) -> None:
    assert cold["long"]["cached"] == [0]
    assert cold["salt_b"]["cached"] == [0]
    metrics = cold["metrics"]
    assert onggi(metrics, "saved_blocks") >= 46 + 48 + 21 + 21
    assert onggi(metrics, "saved_bytes") == onggi(metrics, "saved_blocks") * PAGE
    assert onggi(metrics, "loaded_tokens_host") == 0
    assert onggi(metrics, "faults") == 0


# ---- second life: the agent has kept it


@pytest.fixture(scope="module")
def warm(start: Any, agent: AgentProcess, cold: dict[str, Any]) -> dict[str, Any]:
    by_layers = connector(layerwise="on")  # loads come beside the forward pass
    with start(agent.socket, "warm", kv_transfer_config=by_layers) as engine:
        seen = {
            "long": engine.generate(LONG),
            "after_long": engine.metrics(),
            "exact": engine.generate(EXACT),
            "salt_c": engine.generate({**PRIVATE, "salt": "c"}),
            "no_salt": engine.generate(PRIVATE),
            "salt_a": engine.generate({**PRIVATE, "salt": "a"}),
            "shared": engine.generate(*SHARED),
            "logprobs": engine.generate(CROWD[0], prompt_logprobs=0),
            "aborted": engine.ask(do="abort", prompts=CROWD[1:4], steps=2),
            "after_abort": engine.generate(CROWD[1], max_tokens=60),
        }
        # The agent dies and comes back, empty, while requests go on.
        engine.send(do="generate", prompts=CROWD * 3, max_tokens=60)
        time.sleep(0.3)
        agent.kill()
        seen["while_gone"] = engine.expect()
        seen["gone"] = engine.generate(prompt(70, 300), LONG)
        agent.start()
        last = wait_until_it_stores(engine)
        seen["back"] = engine.generate(last)
        before = engine.settled()
        seen["again"] = engine.generate(last)
        after = engine.metrics()
        seen["hit_again"] = {name: after[name] - before.get(name, 0) for name in after}
        engine.forget(connector=True)
        seen["forgotten"] = engine.generate(last)
        seen["metrics"] = engine.metrics()
    return seen


def wait_until_it_stores(engine: EngineProcess) -> dict[str, Any]:
    """Prompts until all of one was stored, since the agent has been found again: that one."""
    until_s, seed, stored = time.monotonic() + WAIT_S, 100, onggi(engine.settled(), "saved_blocks")
    while True:
        one, before = prompt(seed, 300), stored
        engine.generate(one)
        stored = onggi(engine.settled(), "saved_blocks")
        if stored - before == 300 // BLOCK:
            return one
        assert time.monotonic() < until_s, "the agent is not found again"
        seed += 1


def test_warm_the_answer_is_the_same_and_only_the_rest_is_computed(
    cold: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["long"]["tokens"] == cold["long"]["tokens"]
    assert warm["long"]["cached"] == [46 * BLOCK]  # all full blocks of 1500 tokens
    metrics = warm["after_long"]
    assert onggi(metrics, "loaded_tokens_host") == 46 * BLOCK
    assert onggi(metrics, "loaded_bytes") == 46 * PAGE
    assert metrics['vllm:prompt_tokens_cached_by_source{"source": "host"}'] == 46 * BLOCK


def test_a_full_prompt_hit_leaves_the_last_block_to_compute(
    cold: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["exact"]["tokens"] == cold["exact"]["tokens"]
    assert warm["exact"]["cached"] == [47 * BLOCK]  # 48 blocks, the last token is in the 48th


def test_two_salts_never_share(cold: dict[str, Any], warm: dict[str, Any]) -> None:
    assert warm["salt_c"]["cached"] == [0]
    assert warm["no_salt"]["cached"] == [0]
    assert warm["salt_a"]["cached"] == [21 * BLOCK]
    answers = [warm[name]["tokens"] for name in ("salt_a", "salt_c", "no_salt")]
    assert answers == [cold["salt_a"]["tokens"]] * 3  # a salt changes keys, not answers


def test_requests_that_share_a_prefix_in_one_step(
    cold: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["shared"]["tokens"] == cold["shared"]["tokens"]
    assert all(cached >= 20 * BLOCK for cached in warm["shared"]["cached"])


def test_prompt_logprobs_read_nothing(warm: dict[str, Any]) -> None:
    assert warm["logprobs"]["cached"] == [0]


def test_aborted_requests_leave_nothing_behind(cold: dict[str, Any], warm: dict[str, Any]) -> None:
    assert warm["aborted"] == {"unfinished": 0}
    assert warm["after_abort"]["tokens"] == cold["crowd"]["tokens"][1:2]


def test_no_request_fails_while_the_agent_is_gone(
    cold: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["while_gone"]["tokens"] == cold["crowd"]["tokens"] * 3
    assert set(warm["while_gone"]["reasons"]) == {"length"}
    assert warm["gone"]["tokens"][1] == cold["long"]["tokens"][0]


def test_hits_come_back_with_the_agent(warm: dict[str, Any]) -> None:
    assert warm["again"]["cached"] == [9 * BLOCK]
    assert onggi(warm["hit_again"], "loaded_tokens_host") == 9 * BLOCK
    assert warm["again"]["tokens"] == warm["back"]["tokens"]
    assert onggi(warm["metrics"], "faults") == 0


def test_a_reset_of_everything_forgets(warm: dict[str, Any]) -> None:
    assert warm["forgotten"]["cached"] == [0]
    assert warm["forgotten"]["tokens"] == warm["again"]["tokens"]


# ---- third life: hardly any room on the device, and a host tier too small


@pytest.fixture(scope="module")
def disk_agent(folder: Path) -> Iterator[AgentProcess]:
    (folder / "run-disk").mkdir()
    with AgentProcess(folder / "run-disk", memory="16MiB", disk="256MiB") as agent:
        yield agent


@pytest.fixture(scope="module")
def tight(start: Any, disk_agent: AgentProcess, cold: dict[str, Any]) -> dict[str, Any]:
    whole = connector(layerwise="off")  # not beside the forward pass
    few = {"num_gpu_blocks_override": FEW, "kv_transfer_config": whole}
    with start(disk_agent.socket, "tight", **few) as engine:
        seen: dict[str, Any] = {"crowd": engine.generate(*CROWD, max_tokens=60), "disk": []}
        for one in DISK:  # the host tier holds three, and gives up what is not on disk yet
            seen["disk"].append(engine.generate(one))
            engine.forget()
            disk_agent.settle()
        before = engine.metrics()
        seen["from_disk"] = engine.generate(DISK[0])
        after = engine.metrics()
        seen["difference"] = {name: after[name] - before.get(name, 0) for name in after}
        seen["aborted"] = engine.ask(do="abort", prompts=[DISK[1]], steps=1)
        seen["after_abort"] = engine.generate(DISK[1])
        seen["metrics"] = engine.metrics()
    return seen


def test_preempted_requests_answer_the_same(cold: dict[str, Any], tight: dict[str, Any]) -> None:
    assert tight["metrics"]["vllm:num_preemptions"] > 0
    assert tight["crowd"]["tokens"] == cold["crowd"]["tokens"]


def test_what_left_the_host_tier_comes_back_from_disk(tight: dict[str, Any]) -> None:
    assert tight["from_disk"]["tokens"] == tight["disk"][0]["tokens"]
    assert tight["from_disk"]["cached"] == [43 * BLOCK]
    assert onggi(tight["difference"], "loaded_tokens_disk") > 0
    assert onggi(tight["difference"], "failed_load_blocks") == 0


def test_an_abort_while_blocks_come_from_disk(tight: dict[str, Any]) -> None:
    assert tight["aborted"] == {"unfinished": 0}
    assert tight["after_abort"]["tokens"] == tight["disk"][1]["tokens"]
    assert onggi(tight["metrics"], "faults") == 0


# ---- fourth life: the disk has gone bad meanwhile, under an agent that was restarted


@pytest.fixture(scope="module")
def damaged(start: Any, disk_agent: AgentProcess, tight: dict[str, Any]) -> dict[str, Any]:
    disk_agent.stop()
    disk_agent.spoil(PAGE)
    disk_agent.start()
    with start(disk_agent.socket, "damaged", kv_transfer_config=connector()) as engine:
        seen: dict[str, Any] = {"disk": [engine.generate(one) for one in DISK]}
        engine.forget()
        seen["again"] = engine.generate(DISK[-1])
        seen["metrics"] = engine.metrics()
    return seen


def test_damaged_blocks_are_computed_again(tight: dict[str, Any], damaged: dict[str, Any]) -> None:
    assert [d["tokens"] for d in damaged["disk"]] == [d["tokens"] for d in tight["disk"]]
    assert onggi(damaged["metrics"], "loaded_tokens_disk") > 0
    assert onggi(damaged["metrics"], "failed_load_blocks") > 0
    assert onggi(damaged["metrics"], "faults") == 0


def test_what_was_damaged_is_stored_anew(tight: dict[str, Any], damaged: dict[str, Any]) -> None:
    assert damaged["again"]["cached"] == [43 * BLOCK]
    assert damaged["again"]["tokens"] == tight["disk"][-1]["tokens"]


# ---- fifth life: two ranks, each process its own, as a served model has them


@pytest.fixture(scope="module")
def ranks(start: Any, agent: AgentProcess) -> dict[str, Any]:
    more = {"tensor_parallel_size": 2, "kv_transfer_config": connector()}
    with start(agent.socket, "ranks", **more) as engine:
        seen = {"cold": engine.generate(LONG, prompt(80, 400), max_tokens=40)}
        seen["saved"] = engine.settled()
        seen["warm"] = engine.generate(LONG, prompt(80, 400), max_tokens=40)
        seen["loaded"] = engine.settled()
        # The agent is gone and back, empty; nothing fails and nothing old is found.
        agent.kill()
        seen["gone"] = engine.generate(LONG, max_tokens=40)
        agent.start()
    return seen


def test_ranks_save_and_load_their_own_parts(ranks: dict[str, Any]) -> None:
    assert ranks["cold"]["cached"] == [0, 0]  # one rank's blocks are not another layout's
    assert onggi(ranks["saved"], "saved_blocks") >= 2 * (46 + 12)
    assert onggi(ranks["saved"], "saved_bytes") == onggi(ranks["saved"], "saved_blocks") * PAGE / 2
    assert ranks["warm"]["tokens"] == ranks["cold"]["tokens"]
    assert ranks["warm"]["cached"] == [46 * BLOCK, 12 * BLOCK]
    assert onggi(ranks["loaded"], "loaded_tokens_host") == (46 + 12) * BLOCK
    assert onggi(ranks["loaded"], "failed_load_blocks") == 0


def test_ranks_go_on_without_the_agent(ranks: dict[str, Any]) -> None:
    assert ranks["gone"]["tokens"] == ranks["cold"]["tokens"][:1]
    assert ranks["gone"]["cached"] == [0]
    assert onggi(ranks["loaded"], "faults") == 0
