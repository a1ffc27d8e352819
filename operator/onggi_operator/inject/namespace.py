"""The namespace that a pod is made in, and what it allows."""

from dataclasses import dataclass

from onggi_operator.inject.limits import Limits
from onggi_operator.inject.quota import Quota


@dataclass(frozen=True, slots=True)
class Namespace:
    """`name` is the admission request's, since the pod's own may be missing there."""

    name: str
    limits: tuple[Limits, ...] = ()
    quotas: tuple[Quota, ...] = ()
    pod_security: str | None = None
    """The level that it enforces, where that refuses volumes of the node's."""
