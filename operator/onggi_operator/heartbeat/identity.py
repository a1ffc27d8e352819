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
from onggi_operator.kube.reflector import Key
from onggi_operator.names import TOKEN_AUDIENCE

KNOWN_FOR_S: Final = 1800.0
"""The longest that a token is believed whose pod is seen to be there, which is looked at with each
report. Each is believed for a time of its own from half of this on: ten thousand tokens that were
reviewed together, when this operator began, make some 7 reviews a second and never a burst."""

UNSEEN_FOR_S: Final = 30.0
"""The same for a pod that is not there (any more, or yet)."""

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

TOLD_CHARS_MAX: Final = 300
"""Of the API server's reason."""

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


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a token names no pod."""

    why: str


class Identities:
    """`clock` is monotonic; `is_there` says whether a pod of this uid is seen."""

    def __init__(
        self,
        api: ApiClient,
        clock: Callable[[], float],
        is_there: Callable[[Key, str], bool],
    ) -> None:
        self._api = api
        self._clock = clock
        self._is_there = is_there
        self._known: OrderedDict[bytes, tuple[float, Caller | Refusal]] = OrderedDict()
        """When each token was reviewed, and what came of it."""
        self._away_until_s = 0.0
        self._reviews = asyncio.Semaphore(REVIEWS_MAX)

    async def caller(self, token: str) -> Caller | Refusal:
        """Raises ApiError, Unreachable when the API server cannot be asked about a token that it
        did not vouch for within the hour."""
        if not token or len(token) > TOKEN_CHARS_MAX:
            return Refusal(f"a token has 1 to {TOKEN_CHARS_MAX} characters, this has {len(token)}")
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        remembered = self._known.get(digest)
        if remembered is not None and self._is_kept(digest, *remembered):
            self._known.move_to_end(digest)
            return remembered[1]
        believed = self._believed(remembered)
        if believed is not None and self._clock() < self._away_until_s:
            return believed
        try:
            async with self._reviews:
                answer = await self._review(token)
        except Unreachable:
            self._away_until_s = self._clock() + ASK_AGAIN_S
            if believed is None:
                raise
            return believed
        self._known[digest] = (self._clock(), answer)
        self._known.move_to_end(digest)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return answer

    def _is_kept(self, digest: bytes, reviewed_s: float, answer: Caller | Refusal) -> bool:
        """Whether what a review said still goes."""
        past_s = self._clock() - reviewed_s
        if isinstance(answer, Refusal):
            return past_s < REFUSED_FOR_S
        if not self._is_there((answer.namespace, answer.pod), answer.uid):
            return past_s < UNSEEN_FOR_S
        return past_s < KNOWN_FOR_S * (1 + digest[0] / 255) / 2

    def _believed(self, remembered: tuple[float, Caller | Refusal] | None) -> Caller | None:
        if remembered is None:
            return None
        reviewed_s, answer = remembered
        recent = self._clock() < reviewed_s + BELIEVED_FOR_S
        return answer if recent and isinstance(answer, Caller) else None

    async def _review(self, token: str) -> Caller | Refusal:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [TOKEN_AUDIENCE]},
        }
        answer = await self._api.post(REVIEWS_PATH, body)
        return caller_of(answer.get("status") or {})


def caller_of(status: Mapping[str, Any]) -> Caller | Refusal:
    """The pod in a TokenReview's status. The audience is checked again here: a server that does not
    know audiences answers without looking at them."""
    if not status.get("authenticated"):
        told = str(status.get("error") or "the API server does not know it")[:TOLD_CHARS_MAX]
        return Refusal(f"the token is not good: {told}")
    if TOKEN_AUDIENCE not in (status.get("audiences") or ()):
        return Refusal(f"the token is not for the audience {TOKEN_AUDIENCE}")
    user = status.get("user") or {}
    name = str(user.get("username", ""))
    extra = user.get("extra") or {}
    pod, uid = list(extra.get(_POD_NAME) or ()), list(extra.get(_POD_UID) or ())
    if not name.startswith(_ACCOUNT_PREFIX) or len(pod) != 1 or len(uid) != 1:
        return Refusal("the token is not bound to a pod")
    return Caller(name.removeprefix(_ACCOUNT_PREFIX).split(":")[0], pod[0], uid[0])
