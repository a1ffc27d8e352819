"""Rules between settings: what each has to be beside the others, and beside the machine."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onggi_core.arena_header import EXTENTS_MAX
from onggi_core.quantity import spell_bytes
from onggi_sidecar.disk.budget import DISK_BYTES_MIN, GROWTH_MAX
from onggi_sidecar.parents import lacks_parent

if TYPE_CHECKING:
    from onggi_sidecar.config import AgentConfig

MIB: Final = 1024 * 1024
EXTENT_BYTES_MIN: Final = MIB
EXTENT_BYTES_MAX: Final = 2048 * MIB
"""The wire and the arena's header say it in 32 bits."""
DISK_BYTES_MAX: Final = 64 * 1024 * 1024 * MIB
"""65,536 segments of 1 GiB, each an open file; their page table is 16 MiB each at most."""
_OF_A_DISK: Final = ("disk_path", "disk_claim", "disk_retention_s")
STARTING: Final = "starting"
"""Context of a configuration that an agent is started with: its disk folder is looked for."""
RUNNING: Final = "running"
"""Of one that is read again: the disk tier is cut, and may shrink to nothing."""
SOCKET_PATH_BYTES_MAX: Final = 107
"""sun_path of a unix socket, its closing zero taken off."""


class Rule(NamedTuple):
    """field: the one that is named, with what would be right of it. of: all that were looked at."""

    broken: bool
    field: str
    right: str
    of: tuple[str, ...]


class FieldsDisagree(ValueError):
    """Fields that are well-formed but do not go together."""

    def __init__(self, broken: Sequence[Rule]) -> None:
        super().__init__("; ".join(rule.right for rule in broken))
        self._broken = broken

    def problems(self, wrong: Mapping[str, str]) -> dict[str, str]:
        """What would be right of each; of one that breaks two rules the first. wrong: fields that
        are none by themselves, so a rule that looked at one of them says nothing."""
        told: dict[str, str] = {}
        for rule in self._broken:
            if not wrong.keys() & set(rule.of):
                told.setdefault(rule.field, rule.right)
        return told


def broken_rules(config: "AgentConfig", context: str | None) -> list[Rule]:
    """context: STARTING, RUNNING, or None for one that nobody wrote down."""
    rules = (*_of_memory(config), *_of_disk(config, context), *_of_names(config, context))
    return [rule for rule in rules if rule.broken]


def idle_settings(config: "AgentConfig") -> list[str]:
    """A sentence on what was set and has no effect, since what it belongs to was not. A disk that
    was set to 0 was meant so."""
    given = config.model_fields_set
    of_the_disk = [name for name in _OF_A_DISK if name in given]
    if "disk" in given or not of_the_disk:
        return []
    have = "has" if len(of_the_disk) == 1 else "have"
    return [
        f"{' and '.join(of_the_disk)} {have} no effect without disk: there is no disk tier; say "
        "how much of the disk it may take, such as --disk 40GiB, or --disk 0 for none"
    ]


def _of_memory(config: "AgentConfig") -> tuple[Rule, ...]:
    memory, most, extent = config.memory, config.memory_max, config.extent
    sizes = EXTENT_BYTES_MIN <= extent <= EXTENT_BYTES_MAX and extent & (extent - 1) == 0
    return (
        Rule(
            not sizes,
            "extent",
            "write a power of two of at least 1MiB and at most 2GiB",
            ("extent",),
        ),
        Rule(
            memory < extent,
            "memory",
            f"write at least one extent, {spell_bytes(extent)}",
            ("memory", "extent"),
        ),
        Rule(
            0 < most < memory,
            "memory_max",
            f"write 0, or at least memory, {spell_bytes(memory)}",
            ("memory", "memory_max"),
        ),
        Rule(
            extent > 0 and config.arena_bytes_max // extent > EXTENTS_MAX,
            "extent",
            f"write a larger one, so that memory has at most {EXTENTS_MAX} of them",
            ("memory", "memory_max", "extent"),
        ),
    )


def _of_disk(config: "AgentConfig", context: str | None) -> tuple[Rule, ...]:
    disk, most, folder = config.disk, config.disk_max, config.disk_path
    cut_max = DISK_BYTES_MAX if context == RUNNING else GROWTH_MAX * disk
    astray = lacks_parent(folder) if context == STARTING and folder and disk else ""
    return (
        Rule(bool(astray), "disk_path", astray, ("disk", "disk_path")),
        Rule(0 < disk < DISK_BYTES_MIN, "disk", "write 0 for none, or at least 16MiB", ("disk",)),
        Rule(
            config.disk_bytes_max > DISK_BYTES_MAX,
            "disk",
            "write at most 64TiB",
            ("disk", "disk_max"),
        ),
        Rule(
            most != 0 and not disk <= most <= cut_max,
            "disk_max",
            f"write 0, or disk, {spell_bytes(disk)}, up to {GROWTH_MAX} times that",
            ("disk", "disk_max"),
        ),
        Rule(
            disk > 0 and folder is None,
            "disk_path",
            "name a folder, since disk is set: --disk-path FOLDER",
            ("disk", "disk_path"),
        ),
    )


def _of_names(config: "AgentConfig", context: str | None) -> tuple[Rule, ...]:
    socket = config.socket
    astray = lacks_parent(socket.parent) if context == STARTING else ""
    return (
        Rule(
            not socket.name or len(os.fsencode(socket)) > SOCKET_PATH_BYTES_MAX,
            "socket",
            f"write the path of a file, at most {SOCKET_PATH_BYTES_MAX} bytes long",
            ("socket",),
        ),
        Rule(bool(astray), "socket", f"its folder is not there; {astray}", ("socket",)),
        Rule(
            bool(config.operator_url)
            and not (config.pool and config.namespace and config.pod_name),
            "pool, namespace, pod_name",
            "name all three, since operator_url is set",
            ("operator_url", "pool", "namespace", "pod_name"),
        ),
    )
