"""What can go wrong below the device. Each ends the call that met it: nothing is ever computed from
a context that is not whole."""

from __future__ import annotations


class ContextLost(RuntimeError):
    """Blocks of a context are gone: the agent ended or restarted, a disk failed, somebody else's
    blocks pushed them out. The context is worth nothing any more; close it and compute it again."""


class NoRoom(RuntimeError):
    """The tiers take no more of a context; close it, and give them more room or it less to keep."""


class NotInTime(RuntimeError):
    """The tiers did not give or take something in time, as a rule because a disk hangs. Nothing is
    lost and nothing was computed from a part: once the disk answers, attend again. What append was
    doing has to be taken back first: crop to what there was before it, and append again."""
