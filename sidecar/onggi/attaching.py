"""Waiting for an agent, for whoever has nothing to do without one. Engines never wait: they attach
on the way, within session.ATTACH_DEADLINE_S, and go on without."""

from __future__ import annotations

import time
from typing import Final

from onggi import session
from onggi.link import Link

WAIT_MAX_S: Final = 60.0
"""An agent with a full disk tier of many terabytes takes that long to start."""

TRY_AGAIN_S: Final = 0.05
"""Between two attempts; one that finds no socket takes 20 us."""


def attach(link: Link, wait_s: float) -> bool:
    """Whether there is a session, within wait_s. Each attempt may take what is left of it."""
    until_s = link.now_s() + min(wait_s, WAIT_MAX_S)
    while True:
        left_s = until_s - link.now_s()
        found = link.session(max(left_s, session.ATTACH_DEADLINE_S))
        if found is not None and link.check(found) and not found.channel.hung_up:
            return True
        if link.closed or until_s - link.now_s() <= TRY_AGAIN_S:
            return False
        time.sleep(TRY_AGAIN_S)
