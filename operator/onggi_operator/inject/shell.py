"""A command line taken apart as far as is needed to see with which variables and flags the engine
is started: `sh -c` texts, assignments, `env`. Not a shell: what it cannot read it says so."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from onggi_operator.inject.engine import command_line

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_SEPARATORS: Final = frozenset(";&|()")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=(.*)", re.DOTALL)
_PREFIXES: Final = frozenset({"exec", "nohup", "time", "command"})
"""Words after which a command follows as if they were not there."""

_BRANCHES: Final = frozenset({"if", "for", "while", "until", "case", "{", "function"})
"""What follows may happen or not, and where it holds is more than is read here."""

_COMMENT: Final = re.compile(r"^\s*#.*$", re.MULTILINE)

_ENV_WITH_VALUE: Final = frozenset({"-u", "--unset", "-C", "--chdir", "-S", "--split-string"})


class Unreadable(Exception):
    """A text with branches, substitutions or an open quote, or arguments of a program that only the
    image names."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One program as it is started. `changes` are variables that differ from the container's own:
    their new text, None for one that is taken away; `bare` when all of them are."""

    words: tuple[str, ...]
    changes: Mapping[str, str | None] = field(default_factory=dict)
    bare: bool = False


def launches(container: Mapping[str, Any]) -> list[Launch]:
    """Every program that the container's command starts, in order. Raises Unreadable."""
    words = command_line(container)
    if not container.get("command"):
        raise Unreadable("the image's own program takes these arguments")
    text = _shell_text(words)
    if text is None:
        return [_launch(words, {})]
    variables: dict[str, str | None] = {}
    return [
        launch for simple in _commands(text) if (launch := _in_shell(simple, variables)) is not None
    ]


def _shell_text(words: Sequence[str]) -> str | None:
    """What `sh -c TEXT` runs."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    at = 1
    while at < len(words) and words[at][:1] in ("-", "+"):
        flags = words[at]
        if "c" in flags and not flags.startswith("--"):
            # `bash -c -e TEXT` is legal and nobody writes it.
            return words[at + 1] if at + 1 < len(words) else None
        at += 2 if flags.endswith(("o", "O")) else 1
    return None


def _commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell text, as words without their quotes."""
    joined = _COMMENT.sub("", text.replace("\\\n", " ")).replace("\n", " ; ")
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    simple: list[str] = []
    try:
        for word in lexer:
            if word.startswith("<<") or (simple and simple[-1].endswith("$") and word[0] == "("):
                raise Unreadable(f"{word} makes text that is not known before it runs")
            if word and set(word) <= _SEPARATORS:
                yield simple
                simple = []
            elif not simple and word in _BRANCHES:
                raise Unreadable(f"{word} may or may not run what follows")
            else:
                simple.append(word)
    except ValueError as fault:
        raise Unreadable(str(fault)) from fault
    yield simple


def _in_shell(words: Sequence[str], variables: dict[str, str | None]) -> Launch | None:
    """One command of a shell, which may be an assignment that holds for those behind it."""
    while words and words[0] in _PREFIXES:
        words = words[1:]
    if not words:
        return None
    if words[0] in ("export", "declare", "typeset"):
        variables.update(_assignments(words[1:]))
        return None
    if words[0] == "unset":
        variables.update(dict.fromkeys(words[1:]))
        return None
    if all(_ASSIGNMENT.fullmatch(word) for word in words):
        variables.update(_assignments(words))
        return None
    return _launch(words, variables)


def _launch(words: Sequence[str], variables: Mapping[str, str | None]) -> Launch:
    """Assignments in front of a program, and what `env` does to it."""
    changes, bare = dict(variables), False
    rest = list(words)
    while rest:
        if rest[0] in _PREFIXES:
            rest.pop(0)
        elif match := _ASSIGNMENT.fullmatch(rest[0]):
            changes[match[1]] = match[2]
            rest.pop(0)
        elif rest[0].rpartition("/")[2] == "env":
            bare = _through_env(rest, changes) or bare
        else:
            break
    return Launch(tuple(rest), changes, bare)


def _through_env(rest: list[str], changes: dict[str, str | None]) -> bool:
    """Takes `env` and its flags off `rest`; whether it empties the environment."""
    rest.pop(0)
    bare = False
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag in ("-", "-i", "--ignore-environment"):
            bare = True
            changes.clear()
        elif flag in _ENV_WITH_VALUE and rest:
            name = rest.pop(0)
            if flag in ("-u", "--unset"):
                changes[name] = None
        elif flag.startswith("--unset="):
            changes[flag.partition("=")[2]] = None
    return bare


def _assignments(words: Sequence[str]) -> dict[str, str | None]:
    found = (_ASSIGNMENT.fullmatch(word) for word in words)
    return {match[1]: match[2] for match in found if match}
