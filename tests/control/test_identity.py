"""Which pod a token belongs to, and how often the API server is asked."""

from itertools import pairwise
from typing import Any

import pytest

from onggi_operator.heartbeat import identity
from onggi_operator.heartbeat.identity import Caller, Identities, Refusal, caller_of
from onggi_operator.kube.client import Unreachable

CALLER = Caller("team-a", "one", "uid-1")


def review(**changes: Any) -> dict[str, Any]:
    return {
        "authenticated": True,
        "audiences": ["onggi"],
        "user": {
            "username": "system:serviceaccount:team-a:default",
            "extra": {
                "authentication.kubernetes.io/pod-name": ["one"],
                "authentication.kubernetes.io/pod-uid": ["uid-1"],
            },
        },
        **changes,
    }


class ReviewApi:
    """Answers reviews and counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self.status: dict[str, Any] = review()
        self.pods = {"one"}
        """Those that the watch has seen."""

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
        assert body["spec"]["audiences"] == ["onggi"]
        self.asked += 1
        return {"status": self.status}


class Clock:
    """A clock that tests move."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def api() -> ReviewApi:
    return ReviewApi()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def identities(api: ReviewApi, clock: Clock) -> Identities:
    return Identities(api, clock, lambda key, _: key[1] in api.pods)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"authenticated": False, "error": "token has expired"},
            "the token is not good: token has expired",
        ),
        ({"authenticated": False}, "the token is not good: the API server does not know it"),
        ({"audiences": ["else"]}, "the token is not for the audience onggi"),
        ({"audiences": None}, "the token is not for the audience onggi"),
        ({"user": {"username": "admin"}}, "the token is not bound to a pod"),
        (
            {"user": {"username": "system:serviceaccount:team-a:default", "extra": {}}},
            "the token is not bound to a pod",
        ),
    ],
)
def test_only_a_pods_token_for_us_names_a_caller(changes: dict[str, Any], why: str) -> None:
    assert caller_of(review()) == CALLER
    assert caller_of(review(**changes)) == Refusal(why)


async def test_a_pod_that_is_gone_is_soon_asked_about_again(
    identities: Identities, api: ReviewApi, clock: Clock
) -> None:
    assert await identities.caller("token") == CALLER
    clock.now_s = identity.UNSEEN_FOR_S
    assert await identities.caller("token") == CALLER
    assert api.asked == 1
    api.pods.clear()
    api.status = review(authenticated=False, error="pod not found")
    assert await identities.caller("token") == Refusal("the token is not good: pod not found")
    assert api.asked == 2


async def test_a_known_token_is_not_reviewed_again_for_a_while(
    identities: Identities, api: ReviewApi, clock: Clock
) -> None:
    for _ in range(100):
        assert await identities.caller("token") == CALLER
    assert api.asked == 1
    clock.now_s = identity.KNOWN_FOR_S
    assert await identities.caller("token") == CALLER
    assert api.asked == 2


async def test_tokens_that_were_reviewed_together_are_not_reviewed_together_again(
    identities: Identities, api: ReviewApi, clock: Clock
) -> None:
    tokens = [f"token {n}" for n in range(200)]
    asked = []
    for part in range(9):
        clock.now_s = identity.KNOWN_FOR_S * (0.5 + part / 16) if part else 0.0
        for token in tokens:
            assert await identities.caller(token) == CALLER
        asked.append(api.asked)
    rounds = [after - before for before, after in pairwise([0, *asked])]
    assert rounds[0] == 200
    assert sum(rounds[1:]) == 200
    assert all(10 <= count <= 45 for count in rounds[1:])


async def test_a_bad_token_stays_bad_for_a_shorter_while(
    identities: Identities, api: ReviewApi, clock: Clock
) -> None:
    api.status = review(authenticated=False)
    assert isinstance(await identities.caller("token"), Refusal)
    assert isinstance(await identities.caller("token"), Refusal)
    assert api.asked == 1
    api.status = review()
    clock.now_s = identity.REFUSED_FOR_S
    assert await identities.caller("token") == CALLER


async def test_what_cannot_be_a_token_is_not_reviewed(
    identities: Identities, api: ReviewApi
) -> None:
    for impossible in ("", "x" * (identity.TOKEN_CHARS_MAX + 1)):
        assert isinstance(await identities.caller(impossible), Refusal)
    assert api.asked == 0


async def test_as_many_are_remembered_as_there_may_be_agents(
    identities: Identities, api: ReviewApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "REMEMBERED_MAX", 2)
    for token in ("a", "b", "a", "c"):
        await identities.caller(token)
    assert api.asked == 3
    await identities.caller("a")
    assert api.asked == 3
    await identities.caller("b")
    assert api.asked == 4


async def test_who_was_vouched_for_is_believed_while_nobody_can_be_asked(
    api: ReviewApi, clock: Clock
) -> None:
    """The API server may be away for minutes; agents go on reporting."""
    identities = Identities(api, clock, lambda key, _: key[1] in api.pods)  # type: ignore[arg-type]
    assert await identities.caller("token") == CALLER

    async def away(path: str, body: dict[str, Any]) -> dict[str, Any]:
        raise Unreachable("away")

    api.post = away  # type: ignore[method-assign]
    clock.now_s = identity.KNOWN_FOR_S + 1
    assert await identities.caller("token") == CALLER
    with pytest.raises(Unreachable):
        await identities.caller("another")
    clock.now_s = identity.BELIEVED_FOR_S + 1
    with pytest.raises(Unreachable):
        await identities.caller("token")
