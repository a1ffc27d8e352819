"""What the tiers may hold now, and who may say so: the operator's directive, or a changed file.

A budget moves between one extent (for the disk tier: nothing) and what the agent was started for
(memory_max, disk_max): the arena's file, the disk's page table and the container's limit are made
for that. The engine empties and fills, the toucher and the disk tier give memory and files back.
"""

from collections.abc import Callable

from onggi_core.engine.events import BudgetSet
from onggi_core.quantity import spell_bytes
from onggi_sidecar.config import AgentConfig, ConfigRefused
from onggi_sidecar.disk.budget import DiskPlan, segments_within
from onggi_sidecar.log import event, warn

LIVE_FIELDS = frozenset({"memory", "disk"})
"""What a changed configuration sets in a running agent; the rest takes a restart."""


class Budgets:
    """Main thread only. extents: how many the arena's file has. plan: how the disk tier was cut;
    None without one. Each change is handed to `post`."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        extents: int,
        plan: DiskPlan | None,
        post: Callable[[BudgetSet], None],
    ) -> None:
        self._config = config
        self._extents = extents
        self._plan = plan
        self._post = post
        self._bytes = (config.memory, config.disk)

    @property
    def present(self) -> BudgetSet:
        host_bytes, disk_bytes = self._bytes
        extents = min(self._extents, max(1, host_bytes // self._config.extent))
        return BudgetSet(extents, self._segments(disk_bytes))

    @property
    def told_bytes(self) -> int:
        """The memory of `present`."""
        return self.present.extents * self._config.extent

    def disk_bytes(self) -> int:
        """What the disk tier is asked to take. For any thread."""
        return self._bytes[1]

    def set(self, host_bytes: int | None, disk_bytes: int | None, *, who: str) -> None:
        """None: as it is. What does not fit is cut down to what does."""
        before = self.present
        self._bytes = (
            self._bytes[0] if host_bytes is None else host_bytes,
            self._bytes[1] if disk_bytes is None else disk_bytes,
        )
        after = self.present
        if after == before:
            return
        given_bytes = after.extents * self._config.extent
        disk_bytes = 0 if self._plan is None else after.segments * self._plan.segment_bytes
        event(
            "budget_set",
            f"{who} asks for {spell_bytes(self._bytes[0])} of memory and "
            f"{spell_bytes(self._bytes[1])} of disk; going to {spell_bytes(given_bytes)} of memory "
            f"and {spell_bytes(disk_bytes)} of disk, in {after.segments} segments",
            host_bytes=given_bytes,
            disk_bytes=disk_bytes,
            extents=after.extents,
            segments=after.segments,
        )
        self._post(after)

    def read_again(self, load: Callable[[], AgentConfig]) -> None:
        """Take over what a changed configuration says of budgets. A wrong one changes nothing."""
        try:
            config = load()
        except ConfigRefused as refused:
            warn("config_refused", f"the configuration was not taken over: {refused}")
            return
        self.set(config.memory, config.disk, who="the configuration")
        changed = {
            name
            for name in AgentConfig.model_fields
            if getattr(config, name) != getattr(self._config, name)
        }
        if later := sorted(changed - LIVE_FIELDS):
            warn("restart_needed", f"a restart is needed for the new {', '.join(later)}")

    def _segments(self, disk_bytes: int) -> int:
        if self._plan is None:
            return 0
        return segments_within(disk_bytes, self._plan)
