"""Real engines and a real agent as processes, for the tests marked `engine`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine_stem import Forked, fork_engine

HERE = Path(__file__).parent
SIDECAR = HERE.parents[1] / "sidecar"

ENGINE_WAIT_S = 240
"""For a start (an import of half a minute on a busy machine) and for any command."""


def engine_python() -> str:
    """The interpreter that has vLLM: ONGGI_ENGINE_PYTHON, or this one. Empty: none has."""
    candidate = os.environ.get("ONGGI_ENGINE_PYTHON", sys.executable)
    probe = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
    try:
        found = subprocess.run([candidate, "-c", probe], timeout=60)
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
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "2",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        env = {name: value for name, value in env.items() if value}
        env.update(llm.pop("env", {}))
        self.log = log
        self._log_file = log.open("ab")
        self._process: subprocess.Popen[bytes] | Forked
        if env["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0":
            self._process = fork_engine(python, env, self._log_file.fileno(), write)
        else:
            self._process = subprocess.Popen(
                [python, str(HERE / "engine_process.py")],
                stdin=subprocess.PIPE,
                stdout=self._log_file,
                stderr=self._log_file,
                pass_fds=[write],
                env={**env, "ONGGI_TEST_FD": str(write)},
                start_new_session=True,
            )
        os.close(write)
        self._replies = os.fdopen(read)
        options: dict[str, Any] = {
            "skip_tokenizer_init": True,
            # Batches of another make-up round differently, and bfloat16 rounds so coarsely that a
            # preempted request could end in other words without anybody's fault.
            "dtype": "float32",
            "block_size": 32,
            "max_model_len": 2048,
            "max_num_seqs": 8,
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

    def _send(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()


class AgentProcess:
    """`onggi agent` in a folder, killed and started again at will."""

    def __init__(
        self, folder: Path, *, memory: str = "64MiB", disk: str = "0", http_port: int = 0
    ) -> None:
        """http_port: 0 for one that nobody needs to know."""
        self.folder = folder
        self.http_port = http_port
        self.socket = str(folder / "agent.sock")
        self._arguments = [
            *("--memory", memory, "--extent", "16MiB", "--socket", self.socket),
            *("--disk", disk, "--disk-path", str(folder / "disk")),
            *("--http-port", str(http_port)),
        ]
        (folder / "disk").mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> AgentProcess:
        log = (self.folder / "agent.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "onggi_sidecar", "agent", *self._arguments],
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
        until = time.monotonic() + ENGINE_WAIT_S
        while not Path(self.socket).exists():
            said = (self.folder / "agent.log").read_text()[-3000:]
            assert process.poll() is None, said
            assert time.monotonic() < until, f"no socket within {ENGINE_WAIT_S} s\n{said}"
            time.sleep(0.02)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
        if self._process is not None:
            self._process.wait(30)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)
        Path(self.socket).unlink(missing_ok=True)

    def __enter__(self) -> AgentProcess:
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()
