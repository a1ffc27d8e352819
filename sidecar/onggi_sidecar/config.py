"""What the agent is asked to be: flags over environment over file, checked before anything starts.

This is the one home of the agent's defaults. A wrong field never starts an agent that does
something else: every wrong field is named with its value and what would be right.
"""

import reprlib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from onggi_core.heartbeat import Mode
from onggi_core.policy.names import FIXED, PolicyName
from onggi_core.variables import is_service_link, misspelt, nearest
from onggi_sidecar.agreement import MIB, STARTING, FieldsDisagree, broken_rules
from onggi_sidecar.arena.huge import Asked
from onggi_sidecar.cgroup import memory_limit_bytes
from onggi_sidecar.disk.folder import Claim
from onggi_sidecar.fields import Address, Host, Place, Retention, Size, in_any_case, read_as
from onggi_sidecar.others import whose
from onggi_sidecar.share import SHARED_FIELDS, resolve_shares, says_a_share

ENV_FAMILY: Final = "ONGGI_"
ENV_PREFIX: Final = "ONGGI_AGENT_"
CONFIG_ENV: Final = "ONGGI_CONFIG"
CONFIG_FILE_BYTES_MAX: Final = 1024 * 1024
MEMORY_DEFAULT_BYTES: Final = 1024 * MIB

_NOT_YAML: Final = (yaml.YAMLError, UnicodeDecodeError, ValueError, LookupError, AttributeError)
"""The last three are what PyYAML's constructors stumble over in `2020-13-45` or `!!bool maybe`."""

_SHOWN = reprlib.Repr()
"""A few names for lists in a file can stand for more text than memory holds."""
_SHOWN.maxlevel = 2
_SHOWN.maxstring = _SHOWN.maxother = 200


class ConfigRefused(Exception):
    """The configuration is wrong. lines: one a field, each a sentence."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class LogLevel(str, Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class AgentConfig(BaseModel):
    """Sizes in bytes once read; written as 1GiB, 1Gi or plain bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory: Size = Field(
        MEMORY_DEFAULT_BYTES,
        description="a size such as 1GiB, or 1% to 99% of the container's memory limit: the arena",
    )
    memory_max: Size = Field(
        0, description="0 for the same as memory, or what it may grow to while the agent runs"
    )
    extent: Size = Field(
        64 * MIB, description="a power of two of at least 1MiB: the step in which memory is touched"
    )
    hugepages: Annotated[Asked, in_any_case(Asked)] = Field(Asked.AUTO, description="Auto or Off")
    disk: Size = Field(0, description="0 for no disk tier, or a size of at least 16MiB")
    disk_max: Size = Field(
        0, description="0 for the same as disk, or what it may grow to while the agent runs"
    )
    disk_path: Place | None = Field(None, description="a folder for the disk tier")
    disk_claim: Annotated[Claim, in_any_case(Claim)] = Field(
        Claim.EXCLUSIVE, description="exclusive or shared"
    )
    socket: Place = Field(
        Path("/run/onggi/agent.sock"), description="the path of the socket to listen on"
    )
    http_host: Host = Field(
        "127.0.0.1", description="an address or a host's name to serve /metrics on"
    )
    http_port: int = Field(
        9464, ge=0, le=65535, description="a port up to 65535, 0 for any free one"
    )
    policy: Annotated[PolicyName, in_any_case(PolicyName)] = Field(
        PolicyName.ADAPTIVE, description="adaptive, or one of " + ", ".join(FIXED)
    )
    mode: Annotated[Mode, in_any_case(Mode)] = Field(
        Mode.ACTIVE, description="Active, Observe or Paused"
    )
    pool: str = Field("", description="the pool's name")
    namespace: str = Field("", description="the pod's namespace")
    pod_name: str = Field("", description="the pod's name")
    pod_uid: str = Field("", description="the pod's uid")
    node_name: str = Field("", description="the node's name")
    operator_url: Address = Field(
        "", description="empty, or the operator's address, such as https://onggi.onggi:8443"
    )
    operator_ca: str = Field("", description="certificates in PEM form")
    operator_ca_file: Place | None = Field(None, description="a file of certificates in PEM form")
    token_file: Place | None = Field(None, description="the file of the service-account token")
    shutdown_deadline_s: float = Field(
        10.0, gt=0, le=600, description="seconds, more than 0 and up to 600"
    )
    disk_retention_s: Retention = Field(0, description="0 to keep them, or seconds up to 315360000")
    io_deadline_s: float = Field(
        2.0, gt=0, le=600, description="seconds, more than 0 and up to 600"
    )
    log_level: Annotated[LogLevel, in_any_case(LogLevel)] = Field(
        LogLevel.INFO, description="debug, info, warning or error"
    )

    _memory_said: str = PrivateAttr("")
    """How memory came about, where it was asked for as a share."""

    @property
    def arena_bytes_max(self) -> int:
        """What the arena's file is made for."""
        return max(self.memory, self.memory_max)

    @property
    def disk_bytes_max(self) -> int:
        """What the disk tier is cut for."""
        return max(self.disk, self.disk_max)

    @property
    def memory_said(self) -> str:
        return self._memory_said

    @model_validator(mode="after")
    def _fields_fit_together(self, info: ValidationInfo) -> "AgentConfig":
        if broken := broken_rules(self, info.context):
            raise FieldsDisagree(broken)
        return self


def load_config(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    limit_bytes: Callable[[], int | None] = memory_limit_bytes,
    context: str = STARTING,
) -> AgentConfig:
    """Read file, environment and flags. flags: only those given, by field name, with `config`
    for the file. limit_bytes: the container's memory limit, asked where a share of it is wanted.
    context: RUNNING for an agent that runs already.
    Raises ConfigRefused with a line for every wrong field."""
    given = dict(flags)
    file = given.pop("config", None) or environment.get(CONFIG_ENV)
    values: dict[str, Any] = {}
    unread: list[str] = []
    if file:
        try:
            values = _read_file(Path(file))
        except ConfigRefused as refused:
            unread = refused.lines
    source = dict.fromkeys(values, f"in {file}")
    for field in AgentConfig.model_fields:
        name = ENV_PREFIX + field.upper()
        if (value := environment.get(name)) and not is_service_link(name, value):
            values[field], source[field] = value, f"in {name}"
    for field, wanted in given.items():
        values[field], source[field] = wanted, f"in --{field.replace('_', '-')}"
    resolved = resolve_shares(values, limit_bytes, MEMORY_DEFAULT_BYTES)
    config, problems = _validated(resolved.values, values, context, whole=not unread)
    if config is None or unread:
        raise ConfigRefused(unread + _lines(problems, values, source))
    config._memory_said = resolved.said  # noqa: SLF001  a field would be a setting
    return config


def _validated(
    resolved: Mapping[str, Any], values: Mapping[str, Any], context: str, *, whole: bool
) -> tuple[AgentConfig | None, dict[str, str]]:
    """The configuration, or what is wrong of each field: by itself, and beside those that are
    right by themselves. whole: nothing is missing that would be beside them."""
    problems: dict[str, str] = {}
    for _ in range(2):
        sound = {field: value for field, value in resolved.items() if field not in problems}
        try:
            config = AgentConfig.model_validate(sound, context=context)
        except ValidationError as refused:
            for error in refused.errors():
                cause = error.get("ctx", {}).get("error")
                if not isinstance(cause, FieldsDisagree):
                    field = str(error["loc"][0])
                    problems[field] = _right(field, cause, values.get(field), error["type"])
                elif whole:
                    problems |= {
                        field: read_as(values.get(field)) + right
                        for field, right in cause.problems(problems).items()
                    }
        else:
            return (None if problems else config), problems
    return None, problems


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            read = yaml.safe_load(file.read(CONFIG_FILE_BYTES_MAX))
    except OSError as fault:
        raise ConfigRefused([f"config: cannot read {path}: {fault.strerror}"]) from fault
    except _NOT_YAML as wrong:
        raise ConfigRefused(
            [f"config: {path} is not YAML: {' '.join(str(wrong).split())}"]
        ) from wrong
    except RecursionError as wrong:
        raise ConfigRefused([f"config: {path} is nested too deep"]) from wrong
    if read is None:
        return {}
    if not isinstance(read, dict) or not all(isinstance(name, str) for name in read):
        raise ConfigRefused([f"config: {path} should hold fields, such as `memory: 1GiB`"])
    if others := whose(read, AgentConfig.model_fields):
        raise ConfigRefused([f"config: {path} {others}"])
    return read


def _lines(
    problems: Mapping[str, str], values: Mapping[str, Any], source: Mapping[str, str]
) -> list[str]:
    lines = []
    listed = False
    for field, right in problems.items():
        end = ""
        if field not in AgentConfig.model_fields and " " not in field and not listed:
            known = ", ".join(AgentConfig.model_fields)
            end, listed = f"{' ' if right.endswith('?') else '; '}there are {known}", True
        there = "missing or at its default"
        if field in values:
            there = f"{_SHOWN.repr(values[field])} ({source[field]}) is wrong"
        lines.append(f"{field}: {there}; {right}{end}")
    return lines


def _right(field: str, cause: object, value: object, kind: str) -> str:
    known = AgentConfig.model_fields
    if field not in known:
        meant = f"; did you mean {near}?" if (near := nearest(field, known)) else ""
        return f"no such field{meant}"
    problem = f"it {cause}; " if isinstance(cause, ValueError) else ""
    if says_a_share(value):
        problem = ""
        if field not in SHARED_FIELDS:
            problem = f"a share of the memory limit is for {' and '.join(SHARED_FIELDS)} alone; "
    elif kind == "string_type":
        problem = "it is no text; put it in quotes; "
    elif "; " in problem[:-2]:  # it says what to write already
        return problem[:-2]
    return f"{problem}write {known[field].description}"


def unread_variables(environment: Mapping[str, str]) -> list[str]:
    """A sentence on each variable that looks like the agent's and is none."""
    known = [CONFIG_ENV, *(ENV_PREFIX + field.upper() for field in AgentConfig.model_fields)]
    return [
        f"{name} is no variable of the agent's and was not read; "
        + (f"did you mean {meant}?" if meant else "`onggi agent --help` lists those that are")
        for name, meant in misspelt(environment, known, ours=ENV_PREFIX, family=ENV_FAMILY)
    ]
