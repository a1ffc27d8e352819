"""What a pod's command does to the variables by which the engine finds Onggi's client.

Where it is plain that the engine will not find the client the pod is skipped: an agent that nobody
asks would only take memory. Where the manifest leaves it in the dark the pod is injected, and what
may be wrong is told on it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_operator.inject.containers import Installation
from onggi_operator.inject.engine import command_line, runs_engine
from onggi_operator.inject.outcome import Skipped, SkipReason
from onggi_operator.inject.shell import Launch, Unreadable, launches
from onggi_operator.pool import Configure, Engine, EngineKind

_SETS_PATH: Final = re.compile(r"(?:^|[\s;&|'\"(])PYTHONPATH=(?P<value>\S*)")
_BARE_ENVIRONMENT: Final = re.compile(r"(?:^|[\s/;&|])env\s+(?:-i\b|-\s|--ignore-environment\b)")
_ISOLATED_PYTHON: Final = re.compile(
    r"(?:^|[\s/;&|])python[\d.]*\s+(?:-[a-zA-Z]+\s+)*?(?P<flag>-[a-zA-Z]*[IE][a-zA-Z]*)(?:\s|$)"
)
_PYTHON: Final = re.compile(r"python[\d.]*")
_ISOLATES: Final = re.compile(r"-[a-zA-Z]*[IE][a-zA-Z]*")
_PYTHON_WITH_VALUE: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_KEEPS_OURS: Final = re.compile(r"\$\{?PYTHONPATH\b|/opt/onggi\b")
_PATH: Final = "PYTHONPATH"
_SOCKET: Final = "ONGGI_SOCKET"
_PLUGINS: Final = "VLLM_PLUGINS"


@dataclass(frozen=True, slots=True)
class Doubt:
    """What may keep the client out, as a sentence with what would be right."""

    sentence: str


def look(engine: Mapping[str, Any], pooled: Engine) -> Skipped | Doubt | None:
    """What stands between the engine and the client; None when nothing is seen. With Manual the
    image may bring a client of its own, so that is only told."""
    found = _look(engine, pooled.kind)
    if isinstance(found, Skipped) and pooled.configure is Configure.MANUAL:
        return None if found.reason is SkipReason.PLUGINS_RESTRICTED else Doubt(found.message)
    return found


def dns(spec: Mapping[str, Any]) -> Doubt | None:
    """With the host's network and without its own word on DNS a pod asks the node's name servers,
    which know no Service."""
    resolves = spec.get("dnsPolicy") in ("ClusterFirstWithHostNet", "None")
    if not spec.get("hostNetwork") or resolves:
        return None
    return Doubt(
        "with hostNetwork the agent finds no operator to report to, and its pool says AgentsSilent:"
        " set dnsPolicy to ClusterFirstWithHostNet"
    )


def gate(*, gated: bool, install: Installation) -> Doubt | None:
    """A gate that nobody opens would keep the pod from ever getting ready."""
    if not gated or install.warm_gates:
        return None
    return Doubt(
        "the pool's lifecycle.warmGate is left out, since this installation opens none:"
        " operator.warmGates of the chart allows it"
    )


def _look(engine: Mapping[str, Any], kind: EngineKind) -> Skipped | Doubt | None:
    name = str(engine["name"])
    try:
        found = launches(engine)
    except Unreadable:
        return _guess(name, " ".join(command_line(engine)))
    if len(found) == 1:
        ours = found
    else:
        ours = [launch for launch in found if runs_engine(" ".join(launch.words), kind)]
    told = next((told for launch in ours if (told := _hidden(name, launch)) is not None), None)
    if told is None and not any(_is_plain(launch, kind) for launch in ours):
        return _guess(name, " ".join(command_line(engine)))
    return told


def _is_plain(launch: Launch, kind: EngineKind) -> bool:
    """The program is the engine or Python, and not one that starts others (tini, numactl)."""
    program = launch.words[0].rpartition("/")[2] if launch.words else ""
    return bool(_PYTHON.fullmatch(program)) or runs_engine(program, kind)


def _hidden(name: str, launch: Launch) -> Skipped | None:
    socket = launch.changes.get(_SOCKET, None if launch.bare else "kept")
    if socket is None or (launch.bare and _PATH not in launch.changes):
        return Skipped(SkipReason.CLIENT_HIDDEN, _told_bare(name))
    if _PATH in launch.changes and not _KEEPS_OURS.search(launch.changes[_PATH] or ""):
        return Skipped(SkipReason.CLIENT_HIDDEN, _told_path(name))
    if (flag := _isolated(launch.words)) is not None:
        return Skipped(SkipReason.CLIENT_HIDDEN, _told_flag(name, flag))
    listed = launch.changes.get(_PLUGINS)
    if listed is not None and "onggi" not in re.split(r"[,\s]+", listed) and "$" not in listed:
        return Skipped(
            SkipReason.PLUGINS_RESTRICTED,
            f"the command of container {name} sets {_PLUGINS} without onggi; add it to the list",
        )
    return None


def _isolated(words: tuple[str, ...]) -> str | None:
    """The flag by which this Python ignores its variables: before the script, `-m` or `-c`."""
    if not words or not _PYTHON.fullmatch(words[0].rpartition("/")[2]):
        return None
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        if _ISOLATES.fullmatch(words[at]):
            return words[at]
        at += 2 if words[at] in _PYTHON_WITH_VALUE else 1
    return None


def _guess(name: str, line: str) -> Doubt | None:
    """The same by the look of the text, where it is not plain which part starts the engine."""
    sets = _SETS_PATH.search(line)
    if sets and not _KEEPS_OURS.search(sets["value"]):
        return Doubt(_told_path(name))
    if _BARE_ENVIRONMENT.search(line):
        return Doubt(_told_bare(name))
    if isolated := _ISOLATED_PYTHON.search(line):
        return Doubt(_told_flag(name, isolated["flag"]))
    return None


def _told_path(name: str) -> str:
    return (
        f"the command of container {name} sets PYTHONPATH, which hides Onggi's client: write"
        " PYTHONPATH=...:$PYTHONPATH"
    )


def _told_bare(name: str) -> str:
    return (
        f"the command of container {name} empties the environment (env -i), so the engine will"
        " not find Onggi's client: keep PYTHONPATH and ONGGI_SOCKET"
    )


def _told_flag(name: str, flag: str) -> str:
    return (
        f"the command of container {name} starts Python with {flag}, which ignores"
        " PYTHONPATH, so the engine will not find Onggi's client: leave the flag out"
    )
