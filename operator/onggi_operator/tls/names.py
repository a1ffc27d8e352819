"""The host names that the serving certificate is for."""

from typing import Final, Protocol

SUFFIXES: Final = ("", ".cluster.local")
"""Agents and the API server use the short form; people with curl the long one."""


class _Services(Protocol):
    @property
    def release_namespace(self) -> str: ...
    @property
    def webhook_service(self) -> str: ...
    @property
    def operator_service(self) -> str: ...


def serving_hosts(settings: _Services) -> tuple[str, ...]:
    """Both Services' names: webhook and controller serve one certificate from one Secret."""
    services = (settings.webhook_service, settings.operator_service)
    return tuple(
        f"{name}.{settings.release_namespace}.svc{suffix}"
        for name in services
        for suffix in SUFFIXES
    )
