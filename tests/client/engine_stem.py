"""Engines without their import: a process that has imported vLLM, and forks one for each that is
asked for. What an engine does before its first line takes 25 s of processor time otherwise.

Run as a program it is that process: `python engine_stem.py SOCKET` with an interpreter that has
vLLM. It ends when its standard input does. Ranks, where an engine has several, are forked from the
engine in their turn: on a CPU vLLM would spawn them, and have each import it anew.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FORKED_WAIT_S = 1800
"""For the first engine: the import takes four minutes on a machine that is busy enough."""

OF_ONE_ENGINE = ("PYTHONPATH", "ONGGI_SOCKET", "VLLM_KV_CACHE_LAYOUT")
"""Variables that an engine may have other values of than its stem: read after the import."""


class Forked:
    """As much of Popen as an engine's harness uses."""

    def __init__(self, connection: socket.socket, pid: int, stdin: int) -> None:
        self.pid = pid
        self.stdin = os.fdopen(stdin, "wb")
        self._connection = connection

    def poll(self) -> int | None:
        """0 once it has ended, however."""
        if self._connection.fileno() >= 0:
            if not select.select([self._connection], [], [], 0)[0]:
                return None
            self._connection.close()
        return 0

    def wait(self, timeout: float | None = None) -> int:
        if self._connection.fileno() >= 0:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("engine", timeout or 0.0)
            self._connection.close()
        return 0


class Stem:
    """One for all engines whose variables are alike before the import."""

    def __init__(self, python: str, env: tuple[tuple[str, str], ...]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="onggi-stem-")
        path = str(Path(self._folder.name, "socket"))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(1)
        self._process = subprocess.Popen(
            [python, __file__, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env),
        )
        self._listener.settimeout(FORKED_WAIT_S)
        self._control, _ = self._listener.accept()
        self._control.settimeout(FORKED_WAIT_S)
        atexit.register(self.end)

    def fork(self, env: dict[str, str], log: int, replies: int) -> Forked:
        """env: of OF_ONE_ENGINE. log, replies: descriptors for the engine to write to."""
        read, write = os.pipe()
        mine, its = socket.socketpair()
        asked = json.dumps(env).encode()
        socket.send_fds(self._control, [asked], [read, log, replies, its.fileno()])
        os.close(read)
        its.close()
        pid = int(self._control.recv(32))
        return Forked(mine, pid, write)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._control.close()
        self._listener.close()
        self._folder.cleanup()


@functools.cache
def _stem(python: str, env: tuple[tuple[str, str], ...]) -> Stem:
    return Stem(python, env)


def fork_engine(python: str, env: dict[str, str], log: int, replies: int) -> Forked:
    mine = {k: v for k, v in env.items() if not k.startswith("PYTEST_")}  # as the present test
    common = tuple(sorted((k, v) for k, v in mine.items() if k not in OF_ONE_ENGINE))
    its = {name: env[name] for name in OF_ONE_ENGINE if name in env}
    return _stem(python, common).fork(its, log, replies)


# ---- the process itself


def serve(path: str) -> None:
    from vllm import LLM, SamplingParams  # noqa: F401 - the import is all there is to it

    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    control.connect(path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    while True:
        ready, _, _ = select.select([control, 0], [], [])
        if control not in ready:
            return
        asked, fds, _, _ = socket.recv_fds(control, 65_536, 4)
        if not asked:
            return
        pid = os.fork()
        if not pid:
            control.close()
            become(json.loads(asked), *fds)
        for fd in fds:
            os.close(fd)
        control.sendall(str(pid).encode())


def become(env: dict[str, str], commands: int, log: int, replies: int, held: int) -> None:
    """The engine. held: kept open until the end, by which its end is known."""
    import engine_process

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for fd, to in ((commands, 0), (log, 1), (log, 2)):
        os.dup2(fd, to)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process
    os.environ |= {**env, "ONGGI_TEST_FD": str(replies)}
    sys.path[:0] = [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
    status: Any = 1
    try:
        fork_ranks()
        engine_process.main()
        status = 0
    except BaseException:  # noqa: BLE001 - the test reads it in the log
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if held else 1)


def fork_ranks() -> None:
    """As vLLM does on other platforms."""
    import multiprocessing

    from vllm.v1.executor import multiproc_executor

    multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")


if __name__ == "__main__":
    serve(sys.argv[1])
