"""Real engines with one connector each: the same model, the same settings, one process each."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.children import ChildFailed, Talker, last_words, start_child, stop_child
from bench.peers.venvs import ROOT, CannotInstall, cache_folder, python_of
from bench.peers.worker import lmcache_server, mooncake_master, peer_environment
from bench.sizes import MIB

MODEL_MAKER: Final = ROOT / "e2e" / "engine" / "model.py"
ANSWER_S: Final = 240.0
MAKE_S: Final = 300.0
MISS_S: Final = 500.0
FORGET_S: Final = 20.0
FORGET_POLL_S: Final = 0.05
STORE_BYTES: Final = 1024 * MIB
OPTIONS: Final = {
    "skip_tokenizer_init": True,
    "dtype": "float32",
    "block_size": 32,
    "max_model_len": 2048,
    "max_num_seqs": 8,
    "enforce_eager": True,
    "disable_log_stats": True,
    "seed": 0,
}


class Engine:
    """Raises ChildFailed from anything once it is gone."""

    def __init__(self, talker: Talker) -> None:
        self._talker = talker

    def ask(self, *prompts: list[int]) -> dict[str, Any]:
        """seconds to the first token of all, cached tokens and the token of each."""
        return self._talker.ask(do="ask", prompts=list(prompts))

    def forget(self) -> None:
        """Drop the engine's own cache; what a connector keeps stays. While a connector still
        stores, its blocks cannot be dropped, so this waits. Raises ChildFailed."""
        give_up_s = time.monotonic() + FORGET_S
        while not self._talker.ask(do="forget")["forgotten"]:
            if time.monotonic() > give_up_s:
                raise ChildFailed("the engine's own cache could not be dropped")
            time.sleep(FORGET_POLL_S)


def model_folder() -> Path:
    """Eight layers, 32 KiB of KV a token. Raises CannotInstall."""
    folder = cache_folder() / "model"
    complete = folder / ".complete"
    recipe = MODEL_MAKER.read_text()
    if not complete.exists() or complete.read_text() != recipe:
        command = [str(python_of("engine")), str(MODEL_MAKER), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_S)
        if done.returncode:
            raise CannotInstall(f"the model was not made: {done.stderr[-600:]}")
        complete.write_text(recipe)
    return folder


@contextmanager
def with_onggi(socket: Path) -> Iterator[Engine]:
    """Through the plug-in, as any engine finds it. Raises CannotInstall, ChildFailed."""
    transfer = {
        "kv_connector": "OnggiConnector",
        "kv_connector_module_path": "onggi.connectors.vllm",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"socket": str(socket), "revision": "bench"},
    }
    sidecar = {"PYTHONPATH": f"{ROOT}:{ROOT / 'sidecar'}"}
    with _engine("engine", transfer, sidecar) as engine:
        yield engine


@contextmanager
def always_missing() -> Iterator[Engine]:
    """Raises CannotInstall, ChildFailed."""
    transfer = {
        "kv_connector": "AlwaysMiss",
        "kv_connector_module_path": "bench.peers.always_miss",
        "kv_role": "kv_both",
    }
    with _engine("engine", transfer, {}) as engine:
        yield engine


@contextmanager
def with_mooncake() -> Iterator[Engine]:
    """Its store connector, embedded, as its own guide sets it up. Raises CannotInstall,
    ChildFailed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onggi-bench-")))
        config = folder / "mooncake.json"
        settings = {
            "mode": "embedded",
            "metadata_server": "P2PHANDSHAKE",
            "master_server_address": stack.enter_context(mooncake_master(folder)),
            "global_segment_size": STORE_BYTES,
            "local_buffer_size": 256 * MIB,
            "protocol": "tcp",
            "device_name": "",
        }
        config.write_text(json.dumps(settings))
        transfer = {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}
        more = {
            **peer_environment("mooncake"),
            "MOONCAKE_CONFIG_PATH": str(config),
            "MC_STORE_MEMCPY": "1",
        }
        yield stack.enter_context(_engine("mooncake", transfer, more))


@contextmanager
def with_lmcache() -> Iterator[Engine]:
    """Its multiprocess connector, from its own package. Raises CannotInstall, ChildFailed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onggi-bench-")))
        address = stack.enter_context(lmcache_server(folder, STORE_BYTES))
        host, _, port = address.rpartition(":")
        transfer = {
            "kv_connector": "LMCacheMPConnector",
            "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "lmcache.mp.host": host,
                "lmcache.mp.port": int(port),
                "lmcache.mp.eager_prefetch": True,
            },
        }
        more = {**peer_environment("lmcache"), "LMCACHE_MP_TRANSFER_MODE": "engine_driven"}
        yield stack.enter_context(_engine("lmcache", transfer, more))


@contextmanager
def _engine(venv: str, transfer: Mapping[str, Any], more: Mapping[str, str]) -> Iterator[Engine]:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        **more,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) - 1)),  # as vLLM does for a connector
        "PYTHONHASHSEED": "0",
    }
    env.pop("VLLM_PLUGINS", None)
    env.pop("ONGGI_SOCKET", None)
    options = {**OPTIONS, "model": str(model_folder()), "kv_transfer_config": transfer}
    command = [str(python_of(venv)), "-m", "bench.peers.engine_worker", json.dumps(options)]
    with (
        tempfile.NamedTemporaryFile(prefix="onggi-bench-", suffix=".log") as log,
        Talker(command, Path(log.name), env=env, answer_s=ANSWER_S) as talker,
    ):
        talker.hear()
        yield Engine(talker)


def run_miss(
    socket: Path, *, rounds: int = 0, singles: int = 0, layers: int = 0
) -> dict[str, list[float]]:
    """What bench/miss.py prints. Raises CannotInstall, ChildFailed."""
    command = [str(python_of("engine")), "-m", "bench.miss", "--socket", str(socket)]
    command += ["--model", str(model_folder())]
    command += ["--rounds", str(rounds), "--singles", str(singles), "--layers", str(layers)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sidecar'}"}
    with tempfile.NamedTemporaryFile(prefix="onggi-bench-", suffix=".log") as file:
        log = Path(file.name)
        process = start_child(command, log, env=env)
        try:
            process.wait(MISS_S)
        except subprocess.TimeoutExpired as late:
            raise ChildFailed(f"no figures in {MISS_S:.0f} s: {last_words(log)}") from late
        finally:
            stop_child(process)
        printed = [line for line in log.read_text().splitlines() if line.startswith("{")]
        if process.returncode or not printed:
            raise ChildFailed(f"it ended: {last_words(log)}")
        found: dict[str, list[float]] = json.loads(printed[-1])
    return found


def start(stack: ExitStack, absent: dict[str, str], name: str, begin: Any) -> Engine | None:
    """Enter an engine, or note in `absent` why it is not measured."""
    try:
        engine: Engine = stack.enter_context(begin())
    except (CannotInstall, ChildFailed, OSError, subprocess.TimeoutExpired) as why:
        absent[name] = " ".join(str(why).split())[-400:]
        return None
    return engine
