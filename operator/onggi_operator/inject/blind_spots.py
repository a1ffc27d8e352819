"""What a pod's manifest leaves in the dark, or we cannot help, and may keep the client out.

No reason to skip the pod: Onggi is wired as it should be, and the engine may find it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from onggi_operator.inject.engine import command_line

_SETS_PATH: Final = re.compile(r"(?:^|[\s;&|'\"(])PYTHONPATH=(?P<value>\S*)")
_BARE_ENVIRONMENT: Final = re.compile(r"(?:^|[\s/;&|])env\s+(?:-i\b|-\s|--ignore-environment\b)")
_ISOLATED_PYTHON: Final = re.compile(
    r"(?:^|[\s/;&|])python[\d.]*\s+(?:-[a-zA-Z]+\s+)*?(?P<flag>-[a-zA-Z]*[IE][a-zA-Z]*)(?:\s|$)"
)
_KEEPS_OURS: Final = re.compile(r"\$\{?PYTHONPATH\b")


def warnings(engine: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each, naming the container and what would be right."""
    name = engine["name"]
    yield from _variables_from_elsewhere(engine)
    line = " ".join(command_line(engine))
    sets = _SETS_PATH.search(line)
    if sets and not _KEEPS_OURS.search(sets["value"]):
        yield (
            f"the command of container {name} sets PYTHONPATH, which hides Onggi's client: write"
            " PYTHONPATH=...:$PYTHONPATH"
        )
    if _BARE_ENVIRONMENT.search(line):
        yield (
            f"the command of container {name} empties the environment (env -i), so the engine will"
            " not find Onggi's client: keep PYTHONPATH and ONGGI_SOCKET"
        )
    if isolated := _ISOLATED_PYTHON.search(line):
        yield (
            f"the command of container {name} starts Python with {isolated['flag']}, which ignores"
            " PYTHONPATH, so the engine will not find Onggi's client: leave the flag out"
        )


def _variables_from_elsewhere(engine: Mapping[str, Any]) -> Iterator[str]:
    sources = [_source_name(source) for source in engine.get("envFrom") or ()]
    set_here = {entry.get("name") for entry in engine.get("env") or ()}
    if sources and "PYTHONPATH" not in set_here:
        yield (
            f"container {engine['name']} takes variables from {', '.join(sources)}; a PYTHONPATH in"
            " there is hidden by Onggi's: give it under env instead"
        )


def _source_name(source: Mapping[str, Any]) -> str:
    for kind in ("configMapRef", "secretRef"):
        if reference := source.get(kind):
            return f"{kind.removesuffix('Ref')} {reference.get('name')}"
    return "another object"
