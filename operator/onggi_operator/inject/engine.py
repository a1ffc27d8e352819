"""Which container runs the engine: by name where somebody says so, else by what it looks like.

Never by position: other injectors put their containers first, and some sort the list.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onggi_operator.inject.outcome import Skipped, SkipReason
from onggi_operator.names import CONTAINER
from onggi_operator.pool import EngineKind

_WORDS: Final = {
    EngineKind.VLLM: re.compile(r"vllm", re.IGNORECASE),
    EngineKind.SGLANG: re.compile(r"sglang", re.IGNORECASE),
}
"""What an engine's image is called, by the pool's engine kind."""

_COMMANDS: Final = {
    EngineKind.VLLM: re.compile(r"(^|[\s/;&|=])vllm(\.entrypoints[\w.]*)?($|\s)"),
    EngineKind.SGLANG: re.compile(r"(^|[\s/;&|=])sglang(\.launch_server)?($|\s)"),
}
"""The engine's program inside a command line, so that `tail /var/log/vllm/x.log` is not one."""


def find_engine(
    containers: Sequence[Mapping[str, Any]],
    *,
    asked: str | None,
    pooled: str | None,
    kind: EngineKind,
) -> int | Skipped:
    """Index of the engine's container. `asked` is the pod's word, `pooled` the pool's."""
    if asked is not None:
        return _named(containers, asked, f"annotation {CONTAINER}")
    if pooled is not None:
        return _named(containers, pooled, "spec.engine.container of the pool")
    if len(containers) == 1:
        return 0
    for looks in (_image_names, _command_runs):
        found = [i for i, container in enumerate(containers) if looks(container, kind)]
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(containers[i]["name"] for i in found)
            return Skipped(
                SkipReason.ENGINE_AMBIGUOUS,
                f"containers {listed} all look like {kind.value}; name one with {CONTAINER}",
            )
    listed = ", ".join(container["name"] for container in containers)
    return Skipped(
        SkipReason.ENGINE_NOT_FOUND,
        f"none of the containers {listed} looks like {kind.value}; name one with {CONTAINER}",
    )


def _named(containers: Sequence[Mapping[str, Any]], name: str, source: str) -> int | Skipped:
    known = [str(container["name"]) for container in containers]
    if name in known:
        return known.index(name)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the pod has {', '.join(known)}"
    return Skipped(
        SkipReason.CONTAINER_UNKNOWN, f'{source} is "{name}", which the pod does not have; {hint}'
    )


def _image_names(container: Mapping[str, Any], kind: EngineKind) -> bool:
    """The engine's name in the last part of the image's path: not in a registry's host, a project's
    name, a tag or a digest."""
    path = str(container.get("image") or "").split("@")[0]
    return bool(_WORDS[kind].search(path.rpartition("/")[2].split(":")[0]))


def _command_runs(container: Mapping[str, Any], kind: EngineKind) -> bool:
    return any(runs_engine(word, kind) for word in command_line(container))


def runs_engine(line: str, kind: EngineKind) -> bool:
    """Whether a command line has the engine's program in it."""
    return _COMMANDS[kind].search(line) is not None


def command_line(container: Mapping[str, Any]) -> list[str]:
    """Command and arguments as the pod has them; what the image adds is not visible here."""
    return [str(word) for key in ("command", "args") for word in container.get(key) or ()]
