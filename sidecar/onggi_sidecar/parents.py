"""A folder that is to be made, and the one it is to be made in."""

import os
import shlex
import stat
from pathlib import Path


def lacks_parent(folder: Path) -> str:
    """What is wrong with a folder that is to be made in one that is not there; empty: nothing. The
    agent would make both, and a path mistyped would fill a disk that nobody meant."""
    parent = folder.parent
    try:
        if stat.S_ISDIR(os.stat(parent).st_mode):
            return ""
    except (FileNotFoundError, NotADirectoryError):
        make = f"mkdir -p {shlex.quote(str(folder))}"
        return f"there is no folder {parent} to make it in; correct it, or make it: {make}"
    except OSError:
        return ""  # whoever takes the folder says why it cannot
    return f"{parent} is not a folder; name one that is, or that is to be made in one"
