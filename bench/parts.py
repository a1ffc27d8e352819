"""The parts of the bench by name, each a list of figures. Read by the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.admission import admissions
from bench.entries import Entry
from bench.library.part import libraries
from bench.micro.copies import loads, stores
from bench.micro.disk import disks
from bench.micro.engines import misses, warm
from bench.micro.lookup import lookups
from bench.micro.memory import memory
from bench.micro.together import two_clients
from bench.rebalance import rebalances
from bench.replay import replays
from bench.scale.part import scales
from bench.sizes import Sizes

Part = Callable[[Sizes], list[Entry]]


def _loads(sizes: Sizes) -> list[Entry]:
    return [*loads(sizes), *two_clients(sizes)]


PARTS: Final[dict[str, Part]] = {
    "load": _loads,
    "store": stores,
    "lookup": lookups,
    "disk": disks,
    "memory": memory,
    "replay": replays,
    "rebalance": rebalances,
    "ttft": warm,
    "miss": misses,
    "admission": admissions,
    "scale": scales,
    "library": libraries,
}
