"""One thing that the doctor says."""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Level(str, Enum):
    """How bad it is."""

    FINE = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """`what` is what was seen, `then` what to do about it, empty where there is nothing to do."""

    level: Level
    what: str
    then: str = ""


def lines(findings: list[Finding]) -> list[str]:
    """For a terminal: one line for what was seen, one below it for what to do."""
    told = []
    for finding in findings:
        told.append(f"[{finding.level.value}] {finding.what}")
        if finding.then:
            told.append(f"{' ' * INDENT}{finding.then}")
    return told


INDENT: Final = 4
