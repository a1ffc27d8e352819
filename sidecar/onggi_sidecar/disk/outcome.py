"""I/O faults by class: each class has its own answer in the engine."""

import errno
from typing import Final

from onggi_core.engine.events import IoOutcome

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""EFBIG too: a file size limit is room that somebody else took away, not a broken device."""


def classify(fault: OSError) -> IoOutcome:
    """The class of an I/O fault. Anything that is not about room counts against the place."""
    return IoOutcome.NO_SPACE if fault.errno in _NO_SPACE else IoOutcome.FAULT


_OURS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Said of this process or its node, not of a file."""


def of_the_file(fault: OSError) -> bool:
    """Whether a fault says that a file is beyond reading, so that its room may be used anew."""
    return fault.errno not in _OURS
