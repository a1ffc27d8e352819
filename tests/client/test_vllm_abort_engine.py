"""A real engine, and a request aborted at each moment that it passes through.

One engine a family of models, which a helper in its process steps (engine_moments.py), with hardly
any room on the device, prompts computed in chunks, and an agent whose reads from disk can be held
up. After each abort nothing of it is left, neither with the engine nor with the agent, and the next
request with that prompt answers as an engine without Onggi does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from engine_harness import BLOCK, ENGINE_TEST_S, AgentProcess, EngineProcess, connector, prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(ENGINE_TEST_S)]

LENGTH = 1400
CHUNK = 4 * BLOCK


class Family(NamedTuple):
    """blocks: of the device, for one request of the longest length and little more. half: tokens of
    a prompt of which two fit, but not with what they generate. memory: of the agent, for three
    prompts."""

    blocks: int
    half: int
    memory: str


FAMILIES = {"grouped": Family(66, 1000, "16MiB"), "hybrid": Family(96, 900, "24MiB")}
FILLERS = 4
"""Prompts that push another one out of the agent's memory."""


class Moment(NamedTuple):
    """prompt: where its blocks lie before, if anywhere. kept: the engine must keep the request's
    blocks until what is held up at that moment is over. beside: who else runs. length: in tokens;
    shorter where no save may read, since those of windows hold their blocks."""

    prompt: str = ""
    kept: bool = False
    beside: str = ""
    length: int = LENGTH


MOMENTS = {
    "arrived": Moment("host"),
    "queued": Moment("host", beside="long"),
    "queued for disk": Moment("disk", beside="long"),
    "loading": Moment("disk"),
    "copying": Moment("disk", kept=True),
    "reported": Moment("disk"),
    "came": Moment("disk"),
    "first step": Moment("host"),
    "chunk": Moment(),
    "decoding": Moment(),
    "preempted": Moment(beside="half"),
    "saving": Moment(kept=True, length=700),
    "ended": Moment(kept=True, length=700),
}
IN_STEP = ("reported", "first step")
NAMES = list(MOMENTS)
AGENT = """
import onggi_core.breaker as breaker, onggi_sidecar.disk.device as device, os, time
from onggi_core.engine import loads, rooms, sessions
breaker.SLOW_READ_S = breaker.CLOSING_READ_S = breaker.HUNG_S = 1e9  # slow on purpose
loads.LEASE_S = rooms.LEASE_S = sessions.LEASE_S = 36_000.0  # a pin that is forgotten shows
read_into = device.Device.read_into
def held(self, *at):
    while os.path.exists({hold!r}):
        time.sleep(0.002)
    return read_into(self, *at)
device.Device.read_into = held
"""


def moment_prompt(name: str, family: Family) -> dict[str, Any]:
    moment = MOMENTS[name]
    length = family.half if moment.beside == "half" else moment.length
    return prompt(300 + NAMES.index(name), length)


class Scene:
    """An engine with its agent, and what an engine without one says to each moment's prompt."""

    def __init__(
        self, family: Family, engine: EngineProcess, agent: AgentProcess, right: dict[str, Any]
    ) -> None:
        self.family, self.engine, self.agent, self.right = family, engine, agent, right
        self.hold = agent.folder / "hold"
        self._fillers = itertools.count(400)

    def put(self, one: dict[str, Any], where: str) -> None:
        """Have the agent keep a prompt's blocks in a tier, and the engine forget them."""
        if where:
            self.engine.generate(one)
            self.engine.forget()
            self.agent.settle()
        if where == "disk":
            for _ in range(FILLERS):
                self.engine.generate(prompt(next(self._fillers), LENGTH))
                self.engine.forget()
                self.agent.settle()

    def beside(self, who: str) -> dict[str, Any] | None:
        length = {"long": 1500, "half": self.family.half}.get(who)
        return prompt(next(self._fillers), length) if length else None


@pytest.fixture(scope="module", params=FAMILIES)
def scene(request: pytest.FixtureRequest, start: Any, folder: Path) -> Iterator[Scene]:
    name = request.param
    family = FAMILIES[name]
    few = {
        "family": name,
        "num_gpu_blocks_override": family.blocks,
        "max_num_batched_tokens": CHUNK,
    }
    with start("", f"{name}-bare", **few) as bare:
        right = {one: bare.generate(moment_prompt(one, family))["tokens"] for one in NAMES}
    patch = AGENT.format(hold=str(folder / name / "hold"))
    disk = {"memory": family.memory, "extent": "4MiB", "disk": "512MiB", "patch": patch}
    with (
        AgentProcess(folder / name, **disk) as agent,
        start(agent.socket, name, kv_transfer_config=connector(), **few) as engine,
    ):
        yield Scene(family, engine, agent, right)


@pytest.mark.parametrize("name", NAMES)
def test_an_abort_at_each_moment_leaves_nothing_behind(scene: Scene, name: str) -> None:
    engine, moment = scene.engine, MOMENTS[name]
    one = moment_prompt(name, scene.family)
    scene.put(one, moment.prompt)
    seen = engine.ask(
        do="abort_at",
        moment=name,
        prompt=one,
        beside=scene.beside(moment.beside),
        kept=moment.kept,
        file=str(scene.hold),
    )
    assert (seen["kept"] > 0) == moment.kept
    assert (seen["leaked"], seen["remembered"]) == (0, 0)
    assert seen["in_step"] == (name in IN_STEP)
    engine.forget()
    scene.agent.wait_for(open_loads=0, waiting_loads=0, open_stores=0)

    again = engine.generate(one)
    assert again["tokens"] == scene.right[name]
    if moment.prompt or moment.kept or name == "decoding":
        assert again["cached"] == [(moment.length - 1) // BLOCK * BLOCK]
    if name == "chunk":
        assert again["cached"] == [seen["computed"]]
    engine.forget()
    scene.agent.wait_for(open_loads=0, waiting_loads=0, open_stores=0)
    assert engine.settled()["vllm:onggi_faults"] == 0
    assert engine.metrics()["vllm:onggi_failed_load_blocks"] == 0
