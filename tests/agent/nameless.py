"""Processes as a cluster may run them: a user without a name, and a root that nobody can write."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

USER: Final = "1000640000"
"""As OpenShift hands them out."""

_SCRIPT: Final = """
for folder in $WRITABLE; do mount --bind "$folder" "$folder" || exit 1; done
mount -o remount,bind,ro / || exit 1
exec unshare --user --map-user=USER --map-group=USER -- "$@"
""".replace("USER", USER)


def nameless(*writable: Path) -> list[str]:
    """Words in front of a command. What lies on another filesystem than the root stays writable,
    as volumes do; of the root only `writable` does."""
    folders = " ".join(map(str, writable))
    assert len(folders.split()) == len(writable), "none with a space in its name"
    inside = ["sh", "-c", _SCRIPT, "sh"]
    return [
        "env",
        f"WRITABLE={folders}",
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        *inside,
    ]


def why_not() -> str | None:
    """What keeps this machine from it; None when nothing does."""
    if shutil.which("unshare") is None:
        return "no unshare on this machine (util-linux)"
    tried = subprocess.run([*nameless(), "true"], capture_output=True, text=True, check=False)
    return f"this machine lets nobody make namespaces: {tried.stderr}" if tried.returncode else None
