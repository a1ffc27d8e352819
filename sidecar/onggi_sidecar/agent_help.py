"""What `onggi agent --help` prints: every setting with its flag, variable, default and meaning.

Made from the configuration itself, so that it cannot fall behind. It is asked for rarely and takes
the libraries that the command line otherwise does without, so it is loaded when it is asked for.
"""

from collections.abc import Mapping
from typing import Any, Final

from onggi_core.quantity import format_size
from onggi_sidecar.config import CONFIG_ENV, ENV_PREFIX, AgentConfig

EXIT_CODES: Final = {
    0: "told to end",
    1: "cannot start as asked; the last log line says why",
    2: "a wrong setting; a line on each",
    70: "a bug; the traceback is in the log",
}
_SIZES: Final = ("memory", "extent", "disk")
_SAME_AS: Final = {"memory_max": "memory", "disk_max": "disk"}


def agent_help(flags: Mapping[str, str]) -> str:
    """The page. flags: what stands for the value, by field, where a field has a flag."""
    lines = [
        "usage: onggi agent [--config FILE] [SETTING ...]",
        "",
        "Serve a host and a disk tier on a unix socket. A flag wins over the environment, the",
        f"environment over the file (--config, or {CONFIG_ENV}: YAML with the names below).",
        "",
        "settings (name = default, then its flag and its variable):",
    ]
    for name, field in AgentConfig.model_fields.items():
        default = _shown(name, field.default)
        ways = [f"--{name.replace('_', '-')} {flags[name]}"] if name in flags else []
        ways.append(ENV_PREFIX + name.upper())
        lines += [f"  {name} = {default}", f"      {', '.join(ways)}", f"      {field.description}"]
    lines += ["", "exit codes:"]
    lines += [f"  {code:<3} {meaning}" for code, meaning in EXIT_CODES.items()]
    return "\n".join(lines)


def _shown(name: str, default: Any) -> str:
    if name in _SAME_AS:
        return f"(as {_SAME_AS[name]})"
    if name in _SIZES and default:
        return f"{format_size(default)}B"
    if default is None or default == "":
        return "(none)"
    return str(getattr(default, "value", default))
