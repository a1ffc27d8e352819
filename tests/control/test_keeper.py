"""Keepers of one Secret: whoever comes first renews, the other serves what the first one wrote."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onggi_operator.kube.client import ApiError, Conflict, Unreachable
from onggi_operator.tls.keeper import CertificateKeeper

HOSTS = ("onggi-webhook.onggi-system.svc",)


class SecretApi:
    """The API server's side of one Secret: a patch under an old resource version is refused."""

    def __init__(self) -> None:
        self.data: dict[str, str] = {}
        self.version = 1
        self.away = False
        self.read_only = False
        self.before_patch: Any = None

    async def get(self, path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/onggi-system/secrets/onggi-tls"
        if self.away:
            raise Unreachable("away")
        return {"metadata": {"resourceVersion": str(self.version)}, "data": dict(self.data)}

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.read_only:
            raise ApiError(403, "Forbidden", "may not")
        if self.before_patch is not None:
            act, self.before_patch = self.before_patch, None
            await act()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict(409, "Conflict", "changed")
        self.data.update(body["data"])
        self.version += 1
        return {}


def keeper(api: SecretApi, now: datetime | None = None) -> CertificateKeeper:
    moment = now or datetime.now(UTC)
    return CertificateKeeper(
        api,  # type: ignore[arg-type]
        namespace="onggi-system",
        secret="onggi-tls",
        hosts=HOSTS,
        now=lambda: moment,
    )


async def test_the_first_makes_and_the_second_takes() -> None:
    api = SecretApi()
    first, second = keeper(api), keeper(api)
    await first.check()
    await second.check()
    assert api.version == 2
    assert first.ca_pem == second.ca_pem is not None
    assert first.ready.is_set()


async def test_who_loses_the_race_serves_what_the_winner_wrote() -> None:
    api = SecretApi()
    first, second = keeper(api), keeper(api)
    api.before_patch = second.check
    await first.check()
    assert api.version == 2
    assert first.ca_pem == second.ca_pem


async def test_a_leaf_near_its_end_is_renewed_while_serving() -> None:
    api = SecretApi()
    await keeper(api).check()
    before = base64.b64decode(api.data["tls.crt"])
    later = keeper(api, datetime.now(UTC) + timedelta(days=61))
    await later.check()
    assert base64.b64decode(api.data["tls.crt"]) != before
    assert (later.ca_pem or "").encode() == base64.b64decode(api.data["ca.crt"])


async def test_one_that_starts_when_renewing_fails_serves_what_is_there_to_its_end() -> None:
    """A month is left when renewing is due; a replica that starts then must have it too."""
    api = SecretApi()
    await keeper(api).check()
    before = dict(api.data)
    api.read_only = True
    began = datetime.now(UTC)
    late = keeper(api, began + timedelta(days=89))
    await late.check()
    assert late.ready.is_set()
    assert (late.ca_pem or "").encode() == base64.b64decode(before["ca.crt"])
    with pytest.raises(ApiError):
        await keeper(api, began + timedelta(days=91)).check()
    assert api.data == before


async def test_an_expired_certificate_is_looked_at_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = SecretApi()
    await keeper(api).check()
    api.read_only = True
    now = datetime.now(UTC) + timedelta(days=89)
    one = keeper(api)
    one._now = lambda: now  # type: ignore[method-assign]
    waits: list[float] = []

    async def sleep(time_s: float) -> None:
        nonlocal now
        waits.append(time_s)
        now += timedelta(days=1) - timedelta(seconds=30)
        if len(waits) == 4:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await one.run()
    assert waits[0] == 60
    assert waits[1] == pytest.approx(30, abs=2)
    assert waits[2:] == [2, 2]


async def test_who_waits_hears_of_another_certificate_at_once() -> None:
    api = SecretApi()
    one = keeper(api)
    await one.check()
    before = one.ca_pem
    await one.changed(3600)
    waiting = asyncio.create_task(one.changed(3600))
    await asyncio.sleep(0)
    await one.check()
    assert not waiting.done()
    api.data["ca.key"] = ""
    await one.check()
    await asyncio.wait_for(waiting, 60)
    assert one.ca_pem != before
    assert (one.ca_pem or "").endswith(before or "-")
    await one.changed(0.01)


async def test_an_api_server_that_is_away_changes_nothing() -> None:
    api = SecretApi()
    one = keeper(api)
    await one.check()
    served = one.ca_pem
    api.away = True
    with pytest.raises(Unreachable):
        await one.check()
    assert one.ca_pem == served
