"""Which pod a bearer token belongs to, by TokenReview, remembered for a while.

An agent reports every few seconds; a review for each report would be the busiest caller that the
API server has. What is remembered is the answer to a digest of the token, never the token.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from onggi_operator.kube.client import ApiClient, Unreachable
from onggi_operator.names import TOKEN_AUDIENCE

KNOWN_FOR_S: Final = 600.0
"""How long a token of a deleted pod is still believed. At 10,000 pods this makes 17 reviews a
second; such a report changes counters at most."""

BELIEVED_FOR_S: Final = 3600.0
"""The same while the API server cannot be asked: a token lives no longer than an hour."""

ASK_AGAIN_S: Final = 5.0
"""While the API server cannot be asked, reports do not wait in line to find that out."""

REFUSED_FOR_S: Final = 30.0
"""How long a bad token stays bad without asking again."""

REMEMBERED_MAX: Final = 20_000
"""As many as there may be agents; the longest unused goes first."""

REVIEWS_MAX: Final = 8
"""At once; reports beyond wait in line, within their own time limit."""

TOKEN_CHARS_MAX: Final = 16 * 1024
"""A service account's token is about 1 KiB."""

REVIEWS_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"
_ACCOUNT_PREFIX: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Caller:
    """The pod that a token is bound to."""

    namespace: str
    pod: str
    uid: str


class Identities:
    """`clock` is monotonic."""

    def __init__(self, api: ApiClient, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[float, Caller | None]] = OrderedDict()
        self._away_until_s = 0.0
        self._reviews = asyncio.Semaphore(REVIEWS_MAX)

    async def caller(self, token: str) -> Caller | None:
        """None for a token that is not good, or not bound to a pod, or not meant for Onggi.
        Raises ApiError, Unreachable when the API server cannot be asked about a token that it did
        not vouch for within the hour."""
        if not token or len(token) > TOKEN_CHARS_MAX:
            return None
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        remembered = self._known.get(digest)
        if remembered is not None and self._clock() < remembered[0]:
            self._known.move_to_end(digest)
            return remembered[1]
        believed = self._believed(remembered)
        if believed is not None and self._clock() < self._away_until_s:
            return believed
        try:
            async with self._reviews:
                caller = await self._review(token)
        except Unreachable:
            self._away_until_s = self._clock() + ASK_AGAIN_S
            if believed is None:
                raise
            return believed
        kept_s = REFUSED_FOR_S if caller is None else KNOWN_FOR_S
        self._known[digest] = (self._clock() + kept_s, caller)
        self._known.move_to_end(digest)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return caller

    def _believed(self, remembered: tuple[float, Caller | None] | None) -> Caller | None:
        if remembered is None or remembered[1] is None:
            return None
        until_s, caller = remembered
        return caller if self._clock() < until_s - KNOWN_FOR_S + BELIEVED_FOR_S else None

    async def _review(self, token: str) -> Caller | None:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [TOKEN_AUDIENCE]},
        }
        answer = await self._api.post(REVIEWS_PATH, body)
        return caller_of(answer.get("status") or {})


def caller_of(status: Mapping[str, Any]) -> Caller | None:
    """The pod in a TokenReview's status. The audience is checked again here: a server that does not
    know audiences answers without looking at them."""
    if not status.get("authenticated") or TOKEN_AUDIENCE not in (status.get("audiences") or ()):
        return None
    user = status.get("user") or {}
    name = str(user.get("username", ""))
    extra = user.get("extra") or {}
    pod, uid = list(extra.get(_POD_NAME) or ()), list(extra.get(_POD_UID) or ())
    if not name.startswith(_ACCOUNT_PREFIX) or len(pod) != 1 or len(uid) != 1:
        return None
    return Caller(name.removeprefix(_ACCOUNT_PREFIX).split(":")[0], pod[0], uid[0])
