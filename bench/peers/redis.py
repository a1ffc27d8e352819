"""Redis on a unix socket: started here, with nothing written to disk and no TCP port.

Its best case: all pages of a batch in one MGET or MSET; values are sent from the caller's memory
without a copy, hiredis parses replies, and what comes back is left where redis-py puts it. An
engine would still have to copy it into its own pages; that copy is not counted.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from bench.children import start_child

START_S: Final = 20.0
POLL_S: Final = 0.02


class RedisFailed(Exception):
    """The server did not start. The message has its last words."""


def why_absent() -> str:
    """What is missing on this machine; empty if Redis can take part."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed (Debian, Ubuntu: apt install redis-server)"
    if importlib.util.find_spec("redis") is None:
        return "the Python package redis is not installed (the extra `bench` has it)"
    return ""


class RedisServer:
    """`with RedisServer() as server:` for as long as it is needed."""

    def __enter__(self) -> RedisServer:
        """Raises RedisFailed, with nothing left behind."""
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="onggi-bench-"))
            self.socket = Path(folder) / "sock"  # its path has to fit into 107 bytes
            log = Path(folder) / "redis.log"
            command = ["redis-server", "--port", "0", "--unixsocket", str(self.socket)]
            command += ["--save", "", "--appendonly", "no", "--dir", folder]
            process = start_child(command, log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            give_up_s = time.monotonic() + START_S
            while not self.socket.exists():
                if process.poll() is not None or time.monotonic() > give_up_s:
                    words = log.read_text(errors="replace")[-2000:]
                    raise RedisFailed(f"redis-server did not start: {words}")
                time.sleep(POLL_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def client(self) -> RedisClient:
        return RedisClient(self.socket)


class RedisClient:
    """One connection."""

    def __init__(self, socket: Path) -> None:
        redis = importlib.import_module("redis")
        self._redis: Any = redis.Redis(unix_socket_path=str(socket))
        self.name = f"redis {self._redis.info('server')['redis_version']}"

    def store(self, keys: Sequence[bytes], pages: Sequence[memoryview]) -> None:
        self._redis.mset(dict(zip(keys, pages, strict=True)))

    def load(self, keys: Sequence[bytes]) -> list[bytes]:
        found: list[bytes] = self._redis.mget(keys)
        return found

    def count(self, keys: Sequence[bytes]) -> int:
        """How many of `keys` there are, in one EXISTS."""
        return int(self._redis.exists(*keys))

    def forget_all(self) -> None:
        self._redis.flushall(asynchronous=False)
