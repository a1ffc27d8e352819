"""What the installation decides, read once from the environment that the chart writes.

A wrong value stops the start with the variable's name, its value and what would be right.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

ENV_PREFIX: Final = "ONGGI_"


class SettingsError(Exception):
    """A variable that is wrong or missing; the message names each one."""


class AccessSettings(BaseModel):
    """For every program: where the API server is, outside a cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    api_ca_file: Path | None = None
    """CA file of the API server outside a cluster; inside one the service account's is used."""
    api_server: str | None = None
    api_token_file: Path | None = None


class _Settings(AccessSettings):
    release_namespace: str = Field(min_length=1, max_length=63)
    """Where Onggi itself runs; its Secret and Services are there."""
    tls_secret: str = Field(min_length=1, max_length=253)
    """Secret that holds the CA and the serving certificate; made empty by the chart."""
    webhook_service: str = Field(min_length=1, max_length=63)
    operator_service: str = Field(min_length=1, max_length=63)
    listen_host: str | None = None
    """None: every address of the pod, of either family."""
    https_port: int = Field(default=8443, ge=1, le=65535)
    health_port: int = Field(default=8080, ge=1, le=65535)
    """Plain HTTP: /healthz, /readyz, /metrics."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class WebhookSettings(_Settings):
    """For `python -m onggi_operator webhook`."""

    webhook_configuration: str = Field(min_length=1, max_length=253)
    """MutatingWebhookConfiguration whose caBundle is kept current."""
    revisions_config_map: str = Field(min_length=1, max_length=253)
    """ConfigMap of the release's namespace that holds what was injected before; the chart's."""
    agent_image: str = Field(min_length=1, max_length=512)
    agent_image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    agent_log_level: Literal["debug", "info", "warning", "error"] = "info"
    heartbeat_port: int = Field(default=8443, ge=1, le=65535)
    warm_gates: bool = False
    """Whether pods may be given a readiness gate; the controller has to open it."""


class ControllerSettings(_Settings):
    """For `python -m onggi_operator controller`."""

    lease: str = Field(min_length=1, max_length=253)
    """Lease of the release's namespace that says which operator leads; the chart's."""
    status_interval_s: float = Field(default=30, ge=1, le=3600)
    """Shortest time between two writes of one pool's counters, or of one node's grants."""
    restart_missed: bool = False
    """Whether pods that the webhook missed are evicted, so that their controllers make new ones."""
    warm_gates: bool = False
    """Whether warm gates of pods are opened, which takes the right to write pods' statuses."""
    resize_requests: bool = False
    """Whether pods' memory requests follow grants, which takes the right to resize pods."""
    node_memory_percent: int = Field(default=50, ge=0, le=100)
    """Of the memory that no pod on a node asked for, what agents may have together."""
    heartbeat_interval_s: float = Field(default=5, ge=1, le=300)
    """What agents are told."""


_Kind = TypeVar("_Kind", bound=AccessSettings)


def read_access_settings(env: Mapping[str, str]) -> AccessSettings:
    """Raises SettingsError naming every wrong variable."""
    return _read(AccessSettings, env)


def read_webhook_settings(env: Mapping[str, str]) -> WebhookSettings:
    """Raises SettingsError naming every wrong variable."""
    return _read(WebhookSettings, env)


def read_controller_settings(env: Mapping[str, str]) -> ControllerSettings:
    """Raises SettingsError naming every wrong variable."""
    return _read(ControllerSettings, env)


def _read(kind: type[_Kind], env: Mapping[str, str]) -> _Kind:
    given = {
        name: env[variable]
        for name in kind.model_fields
        if (variable := ENV_PREFIX + name.upper()) in env
    }
    try:
        return kind.model_validate(given)
    except ValidationError as fault:
        lines = [
            f"{ENV_PREFIX}{'.'.join(map(str, problem['loc'])).upper()}: {problem['msg']}"
            + (f" (is {problem['input']!r})" if problem["type"] != "missing" else "")
            for problem in fault.errors(include_url=False)
        ]
        raise SettingsError("; ".join(lines)) from fault
