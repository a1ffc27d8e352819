"""What an agent does with a directive: mode, budgets, drain. The directive of an operator that went
away stays in force."""

from collections.abc import Callable
from typing import Any

from onggi_core.engine.events import ModeSet
from onggi_core.heartbeat import Directive
from onggi_core.wire import replies
from onggi_sidecar.budgets import Budgets
from onggi_sidecar.log import event


class Obedience:
    """Main thread only. `figures` are the agent's of this moment; `post` gives the engine an
    event."""

    def __init__(
        self,
        budgets: Budgets,
        *,
        figures: Callable[[], dict[str, Any]],
        post: Callable[[ModeSet], object],
    ) -> None:
        self._budgets = budgets
        self._figures = figures
        self._post = post
        self.draining = False

    @property
    def told_bytes(self) -> int:
        """The memory that the engine was last told it may hold."""
        return self._budgets.told_bytes

    def obey(self, directive: Directive) -> None:
        mode = replies.Mode[directive.mode.name]
        if self._figures()["mode"] != directive.mode.value:
            event("mode_set", f"the operator set mode {directive.mode.value}", mode=mode.name)
            self._post(ModeSet(mode))
        self._budgets.set(directive.host_bytes, directive.disk_bytes, who="the operator")
        if directive.drain != self.draining:
            self._set_drain(directive.drain)

    def _set_drain(self, drain: bool) -> None:  # noqa: FBT001 - the directive's own field
        """Serving and writing down go on: what matters is what is reported, and what is left when
        the pod goes. Whatever is written by then its successor adopts."""
        self.draining = drain
        pending = self._figures()["pending_blocks"]
        if drain:
            event(
                "drain_begun",
                f"the pod is to leave its node; {pending} blocks are not on disk yet",
                pending_blocks=pending,
            )
        else:
            event("drain_over", "the pod stays after all")
