"""The command line: `onggi agent`, `install-client`, `doctor`, `replay`, `version`."""

import argparse
import itertools
import os
import re
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from onggi_core.variables import nearest

EXIT_REFUSED: Final = 1
"""An agent that cannot start as asked; as process.py's, which needs what may not be there."""
EXIT_CONFIG: Final = 2
"""A wrong flag, variable or file field; argparse's own code for the same thing."""
EXIT_PIPE: Final = 128 + signal.SIGPIPE
"""As a shell says of a command that its reader was done with."""

COMMANDS: Final = ("agent", "install-client", "doctor", "replay", "version")

AGENT_FLAGS: Final = (
    ("memory", "SIZE"),
    ("memory-max", "SIZE"),
    ("disk", "SIZE"),
    ("disk-max", "SIZE"),
    ("disk-path", "FOLDER"),
    ("disk-claim", "HOW"),
    ("socket", "PATH"),
    ("extent", "SIZE"),
    ("http-host", "ADDRESS"),
    ("http-port", "PORT"),
    ("mode", "MODE"),
    ("shutdown-deadline-s", "SECONDS"),
    ("io-deadline-s", "SECONDS"),
    ("log-level", "LEVEL"),
)
"""Flags that fields of the configuration have; explained by agent_help."""


EXAMPLES: Final = """\
the first steps on one machine, engine and agent each in a terminal of its own:
  onggi agent --memory 4GiB --socket /dev/shm/onggi/agent.sock
  onggi install-client ~/onggi-client
  ONGGI_SOCKET=/dev/shm/onggi/agent.sock PYTHONPATH=~/onggi-client \\
    python -m vllm.entrypoints.openai.api_server --model MODEL
and to see whether it works, and why not:
  onggi doctor

onggi COMMAND --help says more of each."""
INSTALL_EXAMPLE: Final = """\
example, for vLLM:
  onggi install-client ~/onggi-client
  ONGGI_SOCKET=/dev/shm/onggi/agent.sock PYTHONPATH=~/onggi-client \\
    python -m vllm.entrypoints.openai.api_server --model MODEL

FOLDER is made if need be. An empty one is best: all in it comes on the engine's path. An older
client in it is replaced."""


NEEDS_EXTRA: Final = (
    "onggi agent needs the extra agent: pip install 'onggi[agent]'"
    " (from a checkout: pip install '.[agent]')"
)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; its exit code."""
    signal.signal(signal.SIGTERM, _end_before_start)
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _command(arguments)
    except ModuleNotFoundError as missing:
        if arguments[:1] != ["agent"] or (missing.name or "onggi").startswith("onggi"):
            raise  # a part of ours is not there: a bug, or half an installation
        print(f"{NEEDS_EXTRA}; here is no {missing.name}", file=sys.stderr)
        return EXIT_REFUSED


def _command(arguments: list[str]) -> int:
    parser = _parser(arguments[:1])
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_CONFIG
    if said := _no_command(arguments[0]):
        print(f"onggi: {said}", file=sys.stderr)
        return EXIT_CONFIG
    parsed, unknown = parser.parse_known_args(arguments)
    if unknown:
        parsed.command.error(_not_understood(parsed.command, unknown))
    run: Any = parsed.run
    try:
        code: int = run(parsed)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough, as `head` does
        if run is _agent:  # nobody reads what it prints: this is a fault of its own
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
        return EXIT_PIPE
    return code


def _folder(written: str) -> Path:
    """Of a flag: an unset variable of a script's is not the folder it runs in."""
    if not written:
        raise argparse.ArgumentTypeError("it is empty; name a folder (. for this one)")
    return Path(written)


def _not_understood(command: argparse.ArgumentParser, unknown: list[str]) -> str:
    """What a subcommand says of the first thing it does not know."""
    word = next((word for word in unknown if word.startswith("-")), unknown[0])
    flag = word.partition("=")[0]
    if not flag.startswith("-"):
        return f"{word!r} was not expected"
    known = _options(command)
    written = f"--{flag.lstrip('-').replace('_', '-')}"
    agents = command.prog.endswith(" agent") and written not in known
    if agents and (variable := _variable_of(written)):
        return f"there is no {flag}; that setting has the variable {variable}"
    if meant := nearest(written, known):
        return f"there is no {flag}; did you mean {meant}?"
    return f"there is no {flag}; there are {', '.join(known) or 'no options'}"


def _options(command: argparse.ArgumentParser) -> list[str]:
    return re.findall(r"--[a-z][a-z-]*", command.format_usage())


def _no_command(word: str) -> str:
    """What is wrong with a first word; empty where it is right, or argparse says it as well."""
    flag = word.partition("=")[0]
    if flag.startswith("--") and flag not in ("--help", "--version"):
        if flag[2:] in dict(AGENT_FLAGS):
            return f"{flag} belongs to a command: onggi agent {flag} ..."
        if meant := nearest(flag, ("--help", "--version")):
            return f"there is no {flag}; did you mean {meant}?"
        return f"there is no {flag}; begin with a command: {', '.join(COMMANDS)}"
    if word in COMMANDS or word.startswith("-") or not (meant := nearest(word, COMMANDS)):
        return ""
    return f"there is no {word}; did you mean {meant}?"


def _variable_of(flag: str) -> str:
    """Of a setting of the agent's that has no flag; empty for what is no setting."""
    from onggi_sidecar.config import ENV_PREFIX, AgentConfig

    field = flag.removeprefix("--").replace("-", "_")
    return ENV_PREFIX + field.upper() if field in AgentConfig.model_fields else ""


def _end_before_start(_number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM while modules are still being loaded, which process 1 of a container would otherwise
    not hear at all."""
    sys.exit(0)


def _leave_before_start(_number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM or SIGINT before the agent listens to them: nothing was made, so nothing is left.
    Not by an exception: importing runs callbacks that swallow it, and the agent would then start
    and never end."""
    os._exit(0)


def _parser(command: list[str]) -> argparse.ArgumentParser:
    """command: the one that is run. What only another one needs is not loaded."""
    parser = argparse.ArgumentParser(
        prog="onggi",
        description="Keeps the KV cache that an LLM engine would throw away, in host memory and on"
        " disk, and gives it back.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Command)
    agent = commands.add_parser(
        "agent",
        help="keep blocks for the engines of this machine, in memory and on disk",
        allow_abbrev=False,
        add_help=False,
    )
    agent.add_argument("-h", "--help", action=_PrintAgentHelp, nargs=0)
    agent.add_argument("--config", metavar="FILE")
    for flag, metavar in AGENT_FLAGS:
        agent.add_argument(f"--{flag}", metavar=metavar)
    agent.set_defaults(run=_agent, command=agent)
    install = commands.add_parser(
        "install-client",
        help="put the client into a folder that an engine loads it from",
        description="Put the client (Python sources, nothing else) into a folder for an engine's"
        " PYTHONPATH.",
        epilog=INSTALL_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    install.add_argument("folder", metavar="FOLDER", type=_folder, help="such as ~/onggi-client")
    install.set_defaults(run=_install_client, command=install)
    doctor = commands.add_parser(
        "doctor", help="say why an engine has no cache, or a slow one", allow_abbrev=False
    )
    if command == ["doctor"]:
        from onggi_sidecar.doctor import command as doctor_command

        doctor_command.add_flags(doctor)
        doctor.set_defaults(run=doctor_command.run, command=doctor)
    replay = commands.add_parser(
        "replay",
        help="say what each size of a cache would have found of recorded requests",
        allow_abbrev=False,
    )
    if command == ["replay"]:
        from onggi_sidecar import replay_command

        replay_command.add_flags(replay)
        replay.set_defaults(run=replay_command.run, command=replay)
    said = commands.add_parser("version", help="print the version")
    said.set_defaults(run=_version, command=said)
    return parser


def _agent(parsed: argparse.Namespace) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave_before_start)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the agent listens to it
    # The agent's libraries take half a second to load and the other commands need none of them.
    from onggi_sidecar.agreement import RUNNING, idle_settings
    from onggi_sidecar.config import ConfigRefused, load_config, unread_variables
    from onggi_sidecar.log import set_up_logging, warn
    from onggi_sidecar.process import run_agent

    given = {k: v for k, v in vars(parsed).items() if k not in ("run", "command") and v is not None}
    try:
        config = load_config(given, os.environ)
    except ConfigRefused as refused:
        for line in (*refused.lines, *unread_variables(os.environ)):
            print(f"onggi agent: {line}", file=sys.stderr)
        return EXIT_CONFIG
    set_up_logging(config.log_level.value)
    for sentence in unread_variables(os.environ):
        warn("unknown_variable", sentence)
    for sentence in idle_settings(config):
        warn("setting_unused", sentence)
    return run_agent(config, lambda: load_config(given, os.environ, context=RUNNING))


def _install_client(parsed: argparse.Namespace) -> int:
    from onggi_sidecar.install_client import install_client

    print(install_client(parsed.folder))
    return 0


class _Command(argparse.ArgumentParser):
    """Says of an option that there is not before what is missing, of which it may be the cause:
    `onggi replay --trce FILE`."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known = {*_options(self), "--help"}
        for word in itertools.takewhile("--".__ne__, args or ()):
            if word.startswith("--") and word.partition("=")[0] not in known:
                self.error(_not_understood(self, [word]))
        return super().parse_known_args(args, namespace)


class _PrintVersion(argparse.Action):
    """Looked up only when it is asked for: it costs a walk over installed packages."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        parser.exit(_version(argparse.Namespace()))


class _PrintAgentHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> NoReturn:
        from onggi_sidecar.agent_help import agent_help

        print(agent_help({flag.replace("-", "_"): metavar for flag, metavar in AGENT_FLAGS}))
        parser.exit()


def _version(_: argparse.Namespace) -> int:
    from importlib.metadata import version

    print(version("onggi"))
    return 0
