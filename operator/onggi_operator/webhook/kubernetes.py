"""Which Kubernetes this is: before native sidecars an agent would hold its pod up for ever."""

import logging
import re
from typing import Final

from onggi_operator.kube.client import ApiClient, ApiError, Unreachable

PATH: Final = "/version"

log = logging.getLogger(__name__)


async def read_version(api: ApiClient) -> tuple[int, int] | None:
    """Major and minor; None where it cannot be read, and the chart's own check has to do."""
    try:
        body = await api.get(PATH)
    except (ApiError, Unreachable) as fault:
        log.warning("the version of Kubernetes could not be read: %s", fault)
        return None
    parts = [re.match(r"\d+", str(body.get(key))) for key in ("major", "minor")]
    numbers = [int(part[0]) for part in parts if part]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None
