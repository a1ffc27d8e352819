"""What the loop that kopf lives on does with faults that nobody awaits."""

import asyncio
import threading
from typing import Any

import pytest

from onggi_operator.handlers import teller


async def no_watch() -> Any:
    yield


def told(stop: threading.Event, context: dict[str, Any], caplog: pytest.LogCaptureFixture) -> int:
    loop = asyncio.new_event_loop()
    try:
        teller(stop)(loop, context)
    finally:
        loop.close()
    return len([record for record in caplog.records if record.levelname == "ERROR"])


def test_a_watch_that_is_closed_at_the_end_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    closing = {"message": "an error occurred during closing", "asyncgen": no_watch()}
    stop = threading.Event()
    assert told(stop, closing, caplog) == 1
    caplog.clear()
    stop.set()
    assert told(stop, closing, caplog) == 0


def test_other_faults_are_told_at_the_end_too(caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    stop.set()
    assert told(stop, {"message": "a callback failed"}, caplog) == 1
