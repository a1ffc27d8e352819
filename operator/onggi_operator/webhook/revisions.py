"""The revisions that this installation ever injected, kept in a ConfigMap so that they outlive an
upgrade: a pool that is pinned to one goes on getting it."""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from onggi_operator.inject.revision import Revision, revision_of
from onggi_operator.kube.client import ApiClient, ApiError, Unreachable
from onggi_operator.settings import WebhookSettings

KEPT_MAX: Final = 100
"""Some years of upgrades; a ConfigMap would hold thousands."""

LOOK_PERIOD_S: Final = 300.0
"""Others write as well: the webhook of another version, while one is rolled out or back."""

LOOK_SOON_S: Final = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """One revision, and when it was first injected (RFC 3339)."""

    agent_image: str
    since: str


def read_records(data: Mapping[str, str]) -> dict[str, Record]:
    """What the ConfigMap holds; entries that are not ours are left out."""
    records = {}
    for name, text in data.items():
        try:
            fields = json.loads(text)
            records[name] = Record(str(fields["agentImage"]), str(fields["since"]))
        except (ValueError, KeyError, TypeError):
            log.warning("revision %s could not be read and is left out", name)
    return records


def changes(
    records: Mapping[str, Record], current: Revision, now: datetime
) -> dict[str, str | None]:
    """What to merge into the ConfigMap: the current revision where it is new, and None for the
    oldest beyond KEPT_MAX."""
    if current.name in records:
        return {}
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    new = json.dumps({"agentImage": current.agent_image, "since": since})
    oldest = sorted(records, key=lambda name: records[name].since)
    gone = oldest[: max(0, len(records) + 1 - KEPT_MAX)]
    return {current.name: new, **dict.fromkeys(gone)}


class Revisions:
    """Writes the current one down, and looks now and then at what others wrote."""

    def __init__(self, api: ApiClient, settings: WebhookSettings) -> None:
        self._api = api
        self._current = revision_of(settings.agent_image)
        namespace, name = settings.release_namespace, settings.revisions_config_map
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self.images: Mapping[str, str] = {self._current.name: self._current.agent_image}
        """Images by the name of their revision."""
        self.known = asyncio.Event()
        """Set once the ConfigMap was read: a pod of a pinned pool must not be skipped before."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look(datetime.now(UTC))
                self.known.set()
            except (ApiError, Unreachable) as fault:
                log.warning("the revisions could not be read: %s", fault)
            await asyncio.sleep(LOOK_PERIOD_S if self.known.is_set() else LOOK_SOON_S)

    async def look(self, now: datetime) -> None:
        """Raises ApiError, Unreachable."""
        current = self._current
        records = read_records((await self._api.get(self._path)).get("data") or {})
        if changed := changes(records, current, now):
            await self._api.patch(self._path, {"data": changed})
            log.info("new revision", extra={"revision": current.name, "image": current.agent_image})
        images = {name: record.agent_image for name, record in records.items()}
        self.images = {**images, current.name: current.agent_image}
