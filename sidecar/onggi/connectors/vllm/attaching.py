"""Waiting for the agent while the engine starts."""

from __future__ import annotations

import time
from typing import Final

from onggi.client import Client

ATTACH_WAIT_S: Final = 2.0
"""At start an engine can wait for its agent; the first request then need not, and does not miss
because a busy node took its time."""


def attach(client: Client) -> bool:
    """Wait for the agent, for a while. False: it is not there yet."""
    until_s = time.monotonic() + ATTACH_WAIT_S
    while not client.attached:
        if time.monotonic() >= until_s:
            return False
        time.sleep(0.02)
    return True
