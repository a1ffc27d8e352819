"""What this start of an engine has otherwise than the last one with the same agent."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Final

from onggi_core.identity import differing

log: Final = logging.getLogger("onggi")

ADVICE: Final = (
    "What was kept is found again with the old value; if the new one is meant, nothing needs to be "
    "done: prompts are computed once more, and the old blocks leave as room is needed."
)


def say_what_changed(folder: str, name: str, fields: Mapping[str, str | int]) -> None:
    """Name the fields in which this start differs from the last one with this agent, so that a
    cold cache after a changed flag is no riddle. Kept beside the socket; a convenience only.
    name: of the engine's rank, and of what it keeps apart."""
    path = os.path.join(folder, f"identity-{name}.json")
    try:
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
    except (OSError, ValueError):
        before = None
    if isinstance(before, dict):
        changed = differing(fields, before)
        if changed:
            said = ", ".join(f"{n} ({before.get(n)} -> {fields.get(n)})" for n in changed)
            log.warning("onggi: blocks of the last start do not fit this one: %s. %s", said, ADVICE)
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(dict(fields), file)
        os.replace(f"{path}.new", path)
    except OSError as error:
        log.info("onggi: %s is not kept: %s", path, error.strerror)
