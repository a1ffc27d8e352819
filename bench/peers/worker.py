"""Peers of the copy benches that live in interpreters of their own, seen from the bench."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from bench.children import ChildFailed, Talker, last_words, start_child, stop_child
from bench.peers.venvs import ROOT, CannotInstall, libraries_of, python_of
from bench.sizes import MIB, POOL_FACTOR

START_S: Final = 90.0
ANSWER_S: Final = 180.0
POLL_S: Final = 0.05


class Worker:
    """A peer that is ready. Raises ChildFailed from anything once it is gone."""

    def __init__(self, talker: Talker) -> None:
        self._talker = talker

    def prepare(self, what: str, page_bytes: int, batch_bytes: int, batches: int = 0) -> None:
        """batches: how many to store for a load, if not all that are walked through."""
        sizes = {"page_bytes": page_bytes, "batch_bytes": batch_bytes, "batches": batches}
        self._talker.ask(do="prepare", what=what, **sizes)

    def round(self, number: int) -> float:
        """Seconds, as it measured them."""
        return float(self._talker.ask(do="round", number=number)["seconds"])

    def find(self, count: int) -> list[float]:
        """Seconds of each of so many lookups of the first batch."""
        return [float(took) for took in self._talker.ask(do="find", count=count)["seconds"]]


@contextmanager
def mooncake(mode: str, nbytes: int) -> Iterator[Worker]:
    """mode: shm or embedded. Raises CannotInstall, ChildFailed."""
    python = python_of("mooncake")
    env = {**peer_environment("mooncake"), "MC_STORE_MEMCPY": "1"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onggi-bench-")))
        address = stack.enter_context(mooncake_master(folder))
        if mode == "shm":
            address = stack.enter_context(_mooncake_client(folder, address, nbytes, env))
        command = [str(python), "-m", "bench.peers.mooncake_worker", mode, address, str(nbytes)]
        yield stack.enter_context(_worker(command, folder / "worker.log", env))


@contextmanager
def mooncake_master(folder: Path) -> Iterator[str]:
    """Its address. Raises CannotInstall, ChildFailed."""
    python = python_of("mooncake")
    port, metrics = free_ports(2)
    master = [str(_mooncake_program(python, "mooncake_master"))]
    master += [f"--rpc_port={port}", "--rpc_address=127.0.0.1", "--default_kv_lease_ttl=1000"]
    master += ["--metrics_host=127.0.0.1", f"--metrics_port={metrics}"]
    with _server(master, folder / "master.log", peer_environment("mooncake"), port):
        yield f"127.0.0.1:{port}"


@contextmanager
def _mooncake_client(folder: Path, master: str, nbytes: int, env: dict[str, str]) -> Iterator[str]:
    (port,) = free_ports(1)
    command = [str(_mooncake_program(python_of("mooncake"), "mooncake_client"))]
    command += ["--host=127.0.0.1", f"--port={port}", "--protocol=tcp"]
    command += ["--metadata_server=P2PHANDSHAKE", f"--master_server_address={master}"]
    command += [f"--global_segment_size={POOL_FACTOR * nbytes // MIB} MB"]
    with _server(command, folder / "client.log", env, port):
        yield f"127.0.0.1:{port}"


def _mooncake_program(python: Path, name: str) -> Path:
    program = python.parent.parent / f"lib/python3.11/site-packages/mooncake/{name}"
    program.chmod(0o755)
    return program


@contextmanager
def lmcache(nbytes: int) -> Iterator[Worker]:
    """Raises CannotInstall, ChildFailed."""
    python = python_of("lmcache")
    env = peer_environment("lmcache")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onggi-bench-")))
        address = stack.enter_context(lmcache_server(folder, POOL_FACTOR * nbytes))
        command = [str(python), "-m", "bench.peers.lmcache_worker", address, str(nbytes)]
        yield stack.enter_context(_worker(command, folder / "worker.log", env))


@contextmanager
def lmcache_server(folder: Path, nbytes: int) -> Iterator[str]:
    """Its multiprocess server, with its pool in shared memory, allocated at start. Raises
    CannotInstall, ChildFailed."""
    python = python_of("lmcache")
    (port,) = free_ports(1)
    name = f"onggi-bench-{os.getpid()}-{port}"
    command = [str(python), "-m", "lmcache.v1.multiprocess.server", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--l1-size-gb", f"{nbytes / 2**30:g}", "--no-l1-use-lazy"]
    command += ["--supported-transfer-mode", "auto", "--shm-name", name]
    command += ["--chunk-size", "256", "--disable-observability", "--eviction-policy", "LRU"]
    pool = Path(f"/dev/shm/lmcache_l1_pool_{name}")
    try:
        with _server(command, folder / "server.log", peer_environment("lmcache"), port):
            yield f"tcp://127.0.0.1:{port}"
    finally:
        pool.unlink(missing_ok=True)  # it stays behind however the server ends


def peer_environment(peer: str) -> dict[str, str]:
    """Nobody is told, nothing is logged but trouble, one thread a copy."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PYTHONPATH": str(ROOT),
        "LD_LIBRARY_PATH": libraries_of(peer),
        "OMP_NUM_THREADS": "1",
        "LMCACHE_LOG_LEVEL": "WARNING",
        "LMCACHE_DISABLE_BANNER": "1",
        "LMCACHE_TRACK_USAGE": "false",
        "DO_NOT_TRACK": "1",
        "MC_LOG_LEVEL": "ERROR",
        "MC_TCP_BIND_ADDRESS": "127.0.0.1",
    }


@contextmanager
def _worker(command: list[str], log: Path, env: dict[str, str]) -> Iterator[Worker]:
    with Talker(command, log, env=env, answer_s=ANSWER_S) as talker:
        talker.hear()
        yield Worker(talker)


@contextmanager
def _server(command: list[str], log: Path, env: dict[str, str], port: int) -> Iterator[None]:
    """Until it takes connections. Raises ChildFailed."""
    process = start_child(command, log, env=env)
    try:
        give_up_s = time.monotonic() + START_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise ChildFailed(f"{Path(command[0]).name} did not start: {last_words(log)}")
            time.sleep(POLL_S)
        yield
    finally:
        stop_child(process)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def if_possible(
    stack: ExitStack,
    absent: dict[str, str],
    name: str,
    begin: Callable[[], AbstractContextManager[Worker]],
) -> Worker | None:
    """Enter a peer, or note in `absent` why it is not measured."""
    try:
        return stack.enter_context(begin())
    except (CannotInstall, ChildFailed, OSError) as why:
        absent[name] = " ".join(str(why).split())[-400:]
        return None
