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
MEANS: Final = {
    "memory": "memory for blocks",
    "memory_max": "what memory may grow to",
    "extent": "the step in which memory is taken and given back; no block is larger",
    "hugepages": "whether the kernel is asked for huge pages, with which copies are faster",
    "disk": "room on disk, where blocks outlive the agent",
    "disk_max": "what disk may grow to",
    "disk_path": "where that is, on a disk of this machine; made in a folder that is there",
    "disk_claim": "shared lets several agents use disk_path, each in a folder of its own below it",
    "socket": "where engines find the agent; the memory lies beside it, so best on a tmpfs",
    "http_host": "where probes, metrics and `onggi doctor` are answered",
    "http_port": "the same",
    "policy": "which blocks stay when there is no more room",
    "mode": "Observe stores nothing and says what would be found; Paused answers nothing",
    "pool": "who this is, for the operator",
    "namespace": "the same",
    "pod_name": "the same",
    "pod_uid": "the same",
    "node_name": "the same",
    "operator_url": "where to report",
    "operator_ca": "whom to trust there",
    "operator_ca_file": "the same",
    "token_file": "what to show there",
    "shutdown_deadline_s": "how long the end may take, to write to disk what lies in memory alone",
    "disk_retention_s": "how long shared folders of dead agents are kept",
    "io_deadline_s": "how long one read or write of the disk may wait",
    "log_level": "how much is logged",
}
_SIZES: Final = ("memory", "extent", "disk")
_SAME_AS: Final = {"memory_max": "memory", "disk_max": "disk"}


def agent_help(flags: Mapping[str, str]) -> str:
    """The page. flags: what stands for the value, by field, where a field has a flag."""
    lines = [
        "usage: onggi agent [--config FILE] [SETTING ...]",
        "",
        "Keep blocks for the engines of this machine, in memory and if asked on disk, and serve",
        "them on a unix socket, until it is told to end. It serves once it logs `listening`.",
        "",
        "example:",
        "  onggi agent --memory 4GiB --disk 40GiB --disk-path ~/onggi-disk"
        " --socket /dev/shm/onggi/agent.sock",
        "",
        "A flag wins over the environment, the environment over the file (--config, or",
        f"{CONFIG_ENV}: YAML with the names below).",
        "",
        "settings (name = default, then its flag and its variable):",
    ]
    for name, field in AgentConfig.model_fields.items():
        default = _shown(name, field.default)
        ways = [f"--{name.replace('_', '-')} {flags[name]}"] if name in flags else []
        ways.append(ENV_PREFIX + name.upper())
        lines += [f"  {name} = {default}", f"      {', '.join(ways)}"]
        lines += [f"      {MEANS[name]}:", f"      {field.description}"]
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
