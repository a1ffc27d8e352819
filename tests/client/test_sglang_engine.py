"""A real SGLang with a real agent: lives of one server after another, by the printed command.

Each life is a fixture that starts a server (most of a minute, and three on a busy machine), does
everything in order and keeps what it saw; the tests below look at that.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sglang_on_cpu
from engine_harness import AgentProcess
from server_process import ServerProcess, printed_command

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3000)]

PAGE = 16
"""Tokens."""
ON_CPU = (
    *("--device", "cpu", "--attention-backend", "torch_native"),
    *("--disable-overlap-schedule", "--mem-fraction-static", "0.2", "--max-total-tokens", "2048"),
    *("--context-length", "1024", "--dtype", "float32", "--page-size", str(PAGE)),
    *("--skip-tokenizer-init", "--skip-server-warmup", "--watchdog-timeout", "100000"),
    "--enable-metrics",
)
"""What this machine needs; float32 so that another batch rounds to the same tokens."""
OF_THE_TEST = (
    *("--hicache-io-backend", "direct"),
    *("--hicache-storage-prefetch-policy", "wait_complete"),
    *("--hicache-write-policy", "write_through"),
)


def prompt(seed: int, length: int) -> list[int]:
    dice = random.Random(seed)
    return [dice.randrange(3, 512) for _ in range(length)]


LONG = prompt(1, 400)
OTHER_END = LONG[:320] + prompt(2, 80)
PRIVATE = prompt(3, 400)
WARM = 384
"""Of 400 tokens: whole pages, but the last token's, which has to be computed."""


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("ONGGI_SGLANG_PYTHON", sys.executable)
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('sglang') is None)"
    if not os.path.exists(found) or subprocess.run([found, "-c", probe], timeout=60).returncode:
        pytest.skip("no interpreter with SGLang: run `make sglang` and set ONGGI_SGLANG_PYTHON")
    return found


@pytest.fixture(scope="module")
def on_cpu(folder: Path) -> Path:
    sglang_on_cpu.install(folder / "on-cpu")
    return folder / "on-cpu"


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[AgentProcess]:
    with AgentProcess(folder / "run", memory="64MiB") as agent:
        yield agent


class Server(ServerProcess):
    def generate(self, ids: list[int], **more: Any) -> dict[str, Any]:
        """tokens: of the answer. cached: of the prompt, by where they came from."""
        sampling = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
        said = self.post("/generate", {"input_ids": ids, "sampling_params": sampling, **more})
        meta = said["meta_info"]
        return {
            "tokens": said["output_ids"],
            "total": meta["cached_tokens"],
            "cached": meta.get("cached_tokens_details") or {},
        }

    def forget(self) -> None:
        """What its own memory holds, device and host pool."""
        self.get("/flush_cache")

    def clear_storage(self) -> None:
        self.send("/hicache/storage-backend/clear", {})

    def wait_for_backups(self, tokens: int) -> None:
        until_s = time.monotonic() + 60
        while self.metric("sglang:backuped_tokens_total") < tokens:
            assert time.monotonic() < until_s, self.tail()
            time.sleep(0.1)


Start = Callable[..., Server]


@pytest.fixture(scope="module")
def start(python: str, folder: Path, model_of: Any, on_cpu: Path, agent: AgentProcess) -> Start:
    model = model_of()
    words = printed_command("sglang.md", "python -m sglang.launch_server")

    def start(name: str, *, bare: bool = False) -> Server:
        command = [{"python": python, "MODEL": model}.get(word, word) for word in words]
        command = command[: command.index("--enable-hierarchical-cache")] if bare else command
        env = {
            "PYTHONPATH": f"{folder / 'client'}:{on_cpu}",
            "ONGGI_SOCKET": agent.socket,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "2",
        }
        return Server([*command, *ON_CPU, *(() if bare else OF_THE_TEST)], folder / name, env)

    return start


@pytest.fixture(scope="module")
def plain(start: Start) -> dict[str, Any]:
    """Without Onggi, though it is at hand."""
    with start("plain.log", bare=True) as server:
        seen: dict[str, Any] = {
            "long": server.generate(LONG),
            "other_end": server.generate(OTHER_END),
            "private": server.generate(PRIVATE),
        }
        seen["log"] = server.log.read_text(errors="replace")
    return seen


@pytest.fixture(scope="module")
def cold(start: Start, plain: dict[str, Any]) -> dict[str, Any]:
    with start("cold.log") as server:
        seen: dict[str, Any] = {
            "long": server.generate(LONG),
            "private": server.generate(PRIVATE, cache_salt="a"),
        }
        server.wait_for_backups(2 * WARM)
        seen["log"] = server.log.read_text(errors="replace")
    return seen


@pytest.fixture(scope="module")
def warm(start: Start, agent: AgentProcess, cold: dict[str, Any]) -> dict[str, Any]:
    with start("warm.log") as server:
        seen: dict[str, Any] = {
            "long": server.generate(LONG),
            "other_end": server.generate(OTHER_END),
            "other_salt": server.generate(PRIVATE, cache_salt="b"),
            "no_salt": server.generate(PRIVATE),
            "same_salt": server.generate(PRIVATE, cache_salt="a"),
            "prefetched": server.metric("sglang:prefetched_tokens_total"),
        }
        server.forget()
        seen["once_more"] = server.generate(LONG)
        server.clear_storage()
        server.forget()
        seen["cleared"] = server.generate(LONG)
        agent.kill()
        server.forget()
        seen["gone"] = server.generate(LONG)
        seen["log"] = server.log.read_text(errors="replace")
    return seen


def test_where_it_is_not_switched_on_the_log_says_how(plain: dict[str, Any]) -> None:
    assert "onggi: an agent is at hand and not used; to use it add --enable-h" in plain["log"]


def test_cold_everything_is_computed_and_stored(
    plain: dict[str, Any], cold: dict[str, Any]
) -> None:
    assert cold["long"]["tokens"] == plain["long"]["tokens"]
    assert cold["long"]["total"] == 0
    assert "onggi: keeps kv; agent attached" in cold["log"]


def test_after_a_restart_the_answer_is_the_same_and_only_the_rest_is_computed(
    plain: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["long"]["tokens"] == plain["long"]["tokens"]
    assert warm["long"]["total"] == warm["long"]["cached"]["storage"] == WARM
    assert warm["long"]["cached"]["storage_backend"] == "OnggiStorage"
    assert warm["prefetched"] >= 2 * WARM


def test_a_prompt_with_another_end_shares_what_is_the_same(
    plain: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["other_end"]["tokens"] == plain["other_end"]["tokens"]
    assert warm["other_end"]["total"] >= 320


def test_two_salts_never_share(plain: dict[str, Any], warm: dict[str, Any]) -> None:
    assert [warm[name]["total"] for name in ("other_salt", "no_salt")] == [0, 0]
    assert warm["same_salt"]["cached"]["storage"] == WARM
    for name in ("other_salt", "no_salt", "same_salt"):
        assert warm[name]["tokens"] == plain["private"]["tokens"]


def test_what_its_own_memory_forgot_comes_from_onggi(
    plain: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["once_more"]["cached"]["storage"] == WARM
    assert warm["once_more"]["tokens"] == plain["long"]["tokens"]


def test_after_clear_nothing_old_is_found(plain: dict[str, Any], warm: dict[str, Any]) -> None:
    assert warm["cleared"]["total"] == 0
    assert warm["cleared"]["tokens"] == plain["long"]["tokens"]


def test_without_the_agent_prompts_are_computed(
    plain: dict[str, Any], warm: dict[str, Any]
) -> None:
    assert warm["gone"]["total"] == 0
    assert warm["gone"]["tokens"] == plain["long"]["tokens"]
    assert "onggi: agent at" in warm["log"]
    assert "it counts as a miss" not in warm["log"]  # which a fault of ours would be
