"""Real engines and a real agent as processes, for the tests marked `engine`."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine_stem import fork_engine

from onggi import Client, SpaceSpec

HERE = Path(__file__).parent
SIDECAR = HERE.parents[1] / "sidecar"
AGENT_PYTHON = os.environ.get("ONGGI_AGENT_PYTHON", sys.executable)
"""The interpreter that has what an agent needs: an engine's need not."""

ENGINE_TEST_S = 3600
"""Of a test with all the engines that it starts: minutes on a machine of its own, far more beside
other work. Longer is a test that hangs."""
WAIT_S = 600
"""For anything that takes seconds."""
SOON_S = 25.0
"""For what takes milliseconds; shorter than a lease, which would give back what was forgotten."""
STARTS_WITHIN_S = WAIT_S
"""An agent, from its process to its socket."""

BLOCK = 32
"""Tokens, of every engine here."""
MANY = 600
"""Blocks of an engine: room for all prompts of a test."""

_RUN = "import sys; from onggi_sidecar.cli import main; sys.exit(main(sys.argv[1:]))"


def prompt(seed: int, length: int, **more: Any) -> dict[str, Any]:
    rng = random.Random(seed)
    return {"ids": [rng.randrange(512) for _ in range(length)], **more}


STEPS = prompt(0, BLOCK // 2)
"""For a few steps of an engine: with its answer it is no whole block, so nothing of it is kept."""


def connector(policy: str = "recompute", **extra: Any) -> dict[str, Any]:
    """The connector, set by hand so that a test can count its hits: what the agent has is loaded,
    whether it pays or not, and however long a busy machine takes over it."""
    patient = {"load": "always", "deadline_s": 30, "disk_wait_s": 30}
    return {
        "kv_connector": "OnggiConnector",
        "kv_connector_module_path": "onggi.connectors.vllm",
        "kv_role": "kv_both",
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": {**patient, **extra},
    }


def engine_python() -> str:
    """The interpreter that has vLLM: ONGGI_ENGINE_PYTHON, or this one. Empty: none has."""
    candidate = os.environ.get("ONGGI_ENGINE_PYTHON", sys.executable)
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    try:
        found = subprocess.run([candidate, "-c", probe], timeout=WAIT_S)
    except OSError:
        return ""
    return candidate if found.returncode == 0 else ""


class EngineProcess:
    """`with EngineProcess(...) as engine: engine.ask(do="generate", ...)`."""

    def __init__(
        self, python: str, client_folder: Path, socket: str, log: Path, **llm: Any
    ) -> None:
        read, write = os.pipe()
        env = {
            **os.environ,
            "PYTHONPATH": str(client_folder),
            "ONGGI_SOCKET": socket,
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # Two that wait for each other are slow where something else runs beside them.
            "OMP_NUM_THREADS": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        env = {name: value for name, value in env.items() if value}
        env.update(llm.pop("env", {}))
        self.log = log
        self._log_file = log.open("ab")
        self._process = fork_engine(python, env, self._log_file.fileno(), write)
        os.close(write)
        self._replies = os.fdopen(read)
        options: dict[str, Any] = {
            "skip_tokenizer_init": True,
            # Batches of another make-up round differently, and bfloat16 rounds so coarsely that a
            # preempted request could end in other words without anybody's fault.
            "dtype": "float32",
            "block_size": BLOCK,
            "max_model_len": 2048,
            "max_num_seqs": 8,
            "kv_cache_memory_bytes": 1 << 30,
            "enforce_eager": True,
            "disable_log_stats": False,
        }
        self._send({**options, **llm})

    def __enter__(self) -> EngineProcess:
        try:
            self.expect()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._process.poll() is None and kind is None:
            self._send({"do": "stop"})
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        self.kill()

    def kill(self) -> None:
        """End it and its children at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._replies.close()
        self._log_file.close()

    def send(self, **command: Any) -> None:
        self._send(command)

    def expect(self) -> dict[str, Any]:
        """The next reply; a dead or failed engine is an assertion with the end of its log."""
        line = self._replies.readline()
        tail = self.log.read_text(errors="replace")[-4000:]
        assert line, f"the engine ended\n{tail}"
        reply: dict[str, Any] = json.loads(line)
        assert "error" not in reply, f"{reply['error']}\n{tail}"
        return reply

    def ask(self, **command: Any) -> dict[str, Any]:
        self._send(command)
        return self.expect()

    def generate(self, *prompts: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self.ask(do="generate", prompts=list(prompts), **more)

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = self.ask(do="metrics")["metrics"]
        return metrics

    def forget(self, *, connector: bool = False) -> None:
        """Empty the engine's own prefix cache, once all that it computed has been stored: blocks
        that are still read stand in the way."""
        until_s = time.monotonic() + WAIT_S
        while not self.ask(do="reset", connector=connector)["reset"]:
            assert time.monotonic() < until_s, "blocks are held for ever"
            self.generate(STEPS)

    def settled(self) -> dict[str, float]:
        """Its metrics, once all that it computed has been stored. Its own prefix cache is empty
        then."""
        self.forget()
        self.generate(STEPS)  # figures come with a step
        return self.metrics()

    def _send(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()


class AgentProcess:
    """`onggi agent` in a folder, killed and started again at will."""

    def __init__(
        self,
        folder: Path,
        *,
        memory: str = "64MiB",
        disk: str = "0",
        http_port: int = 0,
        extent: str = "16MiB",
        patch: str = "",
    ) -> None:
        """http_port: 0 for one that nobody needs to know. patch: Python run in the process before
        the agent."""
        self.folder = folder
        self._program = ["-c", f"{patch}\n{_RUN}"] if patch else ["-m", "onggi_sidecar"]
        self.http_port = http_port
        self.socket = str(folder / "agent.sock")
        self._arguments = [
            *("--memory", memory, "--extent", extent, "--socket", self.socket),
            *("--disk", disk, "--disk-path", str(folder / "disk")),
            *("--http-port", str(http_port)),
        ]
        (folder / "disk").mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> AgentProcess:
        log = (self.folder / "agent.log").open("ab")
        self._process = subprocess.Popen(
            [AGENT_PYTHON, *self._program, "agent", *self._arguments],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(SIDECAR)},
        )
        log.close()
        try:
            self._wait_until_it_listens(self._process)
        except BaseException:  # nobody else knows of it yet
            self.stop(signal.SIGKILL)
            raise
        return self

    def _wait_until_it_listens(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + STARTS_WITHIN_S
        while not Path(self.socket).exists():
            said = (self.folder / "agent.log").read_text()[-3000:]
            assert process.poll() is None, said
            assert time.monotonic() < until, f"no socket within {STARTS_WITHIN_S} s\n{said}"
            time.sleep(0.02)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
        if self._process is not None:
            self._process.wait(WAIT_S)

    def settle(self) -> None:
        """Wait until all that it holds is on disk."""
        self.wait_for(pending_blocks=0)

    def wait_for(self, **figures: int) -> None:
        """Wait until it says these of itself."""
        until_s = time.monotonic() + WAIT_S
        looker = Client(self.socket, spaces=[SpaceSpec(b"looks" + bytes(11), 4096, 1)])
        while not figures.items() <= (said := looker.stats()).items():
            assert time.monotonic() < until_s, said
            time.sleep(0.02)
        looker.close()

    def push_out(self, mebibytes: int) -> None:
        """Fill its host tier, of so many, with prompts of another model, once all that it holds is
        on disk."""
        self.settle()
        space = SpaceSpec(b"other" + bytes(11), 1 << 20, 1)
        other = Client(self.socket, spaces=[space], deadline_s=30.0)
        for number in range(1, mebibytes + 1):
            key = number.to_bytes(16, "big")
            assert soon(lambda key=key: not other.store([key], [bytes(1 << 20)]).refused)
        other.close()

    def spoil(self, page_bytes: int) -> None:
        """Flip a bit in one page of every seven on its disk, wherever they lie. It must be away."""
        for file in (self.folder / "disk").rglob("*"):
            if not file.is_file() or file.stat().st_size < 7 * page_bytes:
                continue
            with file.open("r+b") as opened:
                for at in range(page_bytes // 2, file.stat().st_size, 7 * page_bytes):
                    opened.seek(at)
                    byte = opened.read(1)
                    opened.seek(at)
                    opened.write(bytes([byte[0] ^ 1]))

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
        Path(self.socket).unlink(missing_ok=True)

    def __enter__(self) -> AgentProcess:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()


def soon(ask: Any) -> Any:
    """What it says once that is true: after milliseconds, or long after them on a busy machine."""
    give_up_s = time.monotonic() + SOON_S
    while not (answer := ask()) and time.monotonic() < give_up_s:
        time.sleep(0.005)
    return answer


def sent(monkeypatch: Any, client: Client) -> list[int]:
    """The operations of what the client sends from now on."""
    session = client.showing()
    assert session is not None
    ops: list[int] = []
    start = session.channel.start
    monkeypatch.setattr(
        session.channel, "start", lambda op, *rest: (ops.append(op), start(op, *rest))[1]
    )
    return ops
