"""Attaching when somebody wants it now: a program that has nothing to do without an agent, or pages
that another process was given. Otherwise engines attach on the way, within
session.ATTACH_DEADLINE_S and after a pause that grows, and go on without."""

from __future__ import annotations

import time
from typing import Final

from onggi import session
from onggi.arena import Arena
from onggi.link import Link
from onggi.outcomes import OTHER_PROCESS, Pages
from onggi.session import Session

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


def arena_of(link: Link, pages: Pages) -> Arena | None:
    """See Client.arena."""
    if pages.session != OTHER_PROCESS:
        found = link.held(pages.session)
    else:
        found = link.session()
        if (found is None or found.epoch != pages.epoch) and link.sought_epoch != pages.epoch:
            link.sought_epoch = pages.epoch
            found = _new_session(link, found)
    return found.arena if found is not None and found.epoch == pages.epoch else None


def _new_session(link: Link, found: Session | None) -> Session | None:
    """Another process of this engine was given pages by an agent that we have no session with. It
    has begun since ours ended, which nobody here may have noticed yet; so it answers now, however
    long the pause is that we meant to make. Tried once for each agent."""
    if found is not None and found.channel.hung_up:
        link.check(found)
    return link.session(session.ATTACH_DEADLINE_S)
