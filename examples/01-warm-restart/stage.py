"""The children and folders of one demo, and how they are waited for."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from attention import Attention
from children import Child
from places import make_places
from report import Model, Run
from screen import Step

from onggi import Client, SpaceSpec
from onggi_core.quantity import parse_size

ENGINE: Final = Path(__file__).with_name("engine.py")
START_S: Final = 180.0
"""For a model process: importing its libraries from a cold disk can take a minute."""
ANSWER_S: Final = 300.0
"""For one answer, on a machine ten times slower than a laptop."""
AGENT_S: Final = 180.0
END_S: Final = 15.0
"""An agent seals its disk tier within 10 s."""
POLL_S: Final = 0.02
WATCHER: Final = SpaceSpec(bytes(16), 4096, 16)
"""A session has to name a space; the demo only asks for figures and never uses this one."""


@dataclass(frozen=True)
class Options:
    """What the command line may change. Sizes as `onggi agent` takes them."""

    tokens: int
    layers: int
    memory: str
    disk: str


class Stage:
    """Whatever it makes is removed or ended by `stack`, last made first."""

    def __init__(self, options: Options, stack: ExitStack, attention: Attention) -> None:
        """Raises NoPlace, QuantityError."""
        self._options = options
        self._stack = stack
        self._attention = attention
        self.places = make_places(parse_size(options.memory), parse_size(options.disk))
        stack.callback(self.places.remove)
        scratch = str(self.places.scratch)
        self._environment = {
            "TMPDIR": scratch,
            "HF_HOME": scratch,
            "HF_HUB_OFFLINE": "1",
            "MKL_DYNAMIC": "FALSE",  # the same threads in every run, so the same sums
            "OMP_DYNAMIC": "FALSE",
            "OMP_WAIT_POLICY": "PASSIVE",  # idle threads leave the cores to whoever has work
        }
        self._quiet = logging.getLogger("onggi-demo")
        self._quiet.disabled = True  # that an agent is not there yet is no news here

    def start_agent(self) -> Child:
        options, places = self._options, self.places
        command = [sys.executable, "-m", "onggi_sidecar", "agent"]
        command += ["--memory", options.memory, "--disk", options.disk]
        command += ["--disk-path", str(places.disk / "tier"), "--socket", str(places.socket)]
        command += ["--http-port", "0", "--io-deadline-s", "30"]  # a slow disk is shown as one
        return self._start("agent", command)

    def start_engine(self) -> Child:
        command = [sys.executable, str(ENGINE), "--socket", str(self.places.socket)]
        command += ["--tokens", str(self._options.tokens), "--layers", str(self._options.layers)]
        command += ["--threads", str(len(os.sched_getaffinity(0)))]
        return self._start("model process", command)

    def _start(self, name: str, command: list[str]) -> Child:
        log = self.places.scratch / f"{name.replace(' ', '-')}.log"
        child = Child(
            name, command, log=log, environment=self._environment, attention=self._attention
        )
        self._stack.callback(child.kill)
        return child

    def wait_for_agent(
        self, agent: Child, reached: Callable[[dict[str, Any]], bool], what: str
    ) -> dict[str, Any]:
        """Ask the agent for its figures until they are so. Raises ChildFailed, Interrupted."""
        deadline_s = time.monotonic() + AGENT_S
        client = Client(
            str(self.places.socket),
            spaces=[WATCHER],
            engine="demo",
            deadline_s=1.0,
            log=self._quiet,
        )
        try:
            while True:
                stats = client.stats() if self.places.socket.exists() else {}
                if stats and reached(stats):
                    return stats
                if not agent.running:
                    raise agent.failure(f"did not get as far as: {what}")
                if time.monotonic() > deadline_s:
                    raise agent.failure(f"did not get as far as this in {AGENT_S:g} s: {what}")
                self._attention.sleep(POLL_S)
        finally:
            client.close()

    def wait_for_engine(self, engine: Child) -> Model:
        """Raises ChildFailed, Interrupted."""
        said = engine.event(START_S)
        names = ("prompt_tokens", "block_tokens", "page_bytes", "reusable_blocks", "parameters")
        return Model(**{name: int(said[name]) for name in names})

    def answer(self, engine: Child, name: str, step: Step) -> Run:
        """Have the prompt answered. Raises ChildFailed, Interrupted."""
        engine.ask("generate")
        while (said := engine.event(ANSWER_S))["event"] != "run":
            step.at(said["number"], said["of"])
        return Run.read(name, said)
