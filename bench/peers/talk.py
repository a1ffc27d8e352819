"""The other end of bench.children.Talker: one JSON line in, one out. Standard library alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Command = Callable[[dict[str, Any]], dict[str, Any]]


def serve(begin: Callable[[], Mapping[str, Command]]) -> None:
    """Say whether `begin` came through, then answer until stdin ends. What libraries print goes to
    stderr, so that it cannot be taken for an answer."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(what: dict[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    try:
        commands = begin()
    except BaseException as error:
        say({"error": f"{type(error).__name__}: {error}"})
        raise
    say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            say(commands[asked.pop("do")](asked))
        except Exception as error:  # the bench should see it, whatever it is
            say({"error": f"{type(error).__name__}: {error}"})
            raise
