"""Who leads, by a Lease: never two at once, whatever is lost, late or frozen."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onggi_operator.lead.lease import LEASE_S, RENEW_S, RETRY_S, Candidate, Standing, read_lease

NOW = "2026-01-01T00:00:00.000000Z"


def body(version: int = 1, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version)}, "spec": spec}


@dataclass
class Api:
    """Keeps one Lease as the API server does: a version that is not the present one is refused."""

    version: int = 1
    spec: dict[str, Any] = field(default_factory=dict)

    def read(self) -> dict[str, Any]:
        return body(self.version, **self.spec)

    def write(self, change: dict[str, Any]) -> dict[str, Any] | None:
        if change["metadata"]["resourceVersion"] != str(self.version):
            return None
        self.version += 1
        self.spec = {**self.spec, **change["spec"]}
        return self.read()


def turn(candidate: Candidate, api: Api, now_s: float) -> None:
    """As the elector does it when all goes well."""
    if not candidate.holds:
        candidate.see(read_lease(api.read()), now_s=now_s)
    bid = candidate.bid(now_s=now_s, now=f"{now_s}")
    if bid is not None:
        if (taken := api.write(bid)) is None:
            candidate.see(read_lease(api.read()), now_s=now_s)
        else:
            candidate.won(read_lease(taken), sent_s=now_s)


def test_the_first_one_leads_and_the_second_waits_until_it_is_gone() -> None:
    api, one, two = Api(), Candidate("one"), Candidate("two")
    assert one.standing(0) is Standing.VACANT
    turn(one, api, 0)
    turn(two, api, 1)
    assert (one.standing(1), two.standing(1)) == (Standing.LEADING, Standing.FOLLOWING)
    turn(two, api, 15.9)
    assert two.standing(15.9) is Standing.FOLLOWING, "it saw the renewal at 1"
    assert one.standing(10) is Standing.UNSURE, "and the one before has stopped long since"
    turn(two, api, 16)
    assert two.standing(16) is Standing.LEADING
    assert api.spec["leaseTransitions"] == 2
    turn(one, api, 17)
    assert one.standing(17) is Standing.FOLLOWING


def test_who_could_not_renew_goes_on_where_nobody_else_led() -> None:
    api, one = Api(), Candidate("one")
    turn(one, api, 0)
    assert (one.left_s(4), one.left_s(300)) == (6, 0)
    assert one.holds
    turn(one, api, 300)
    assert one.standing(300) is Standing.LEADING
    assert api.spec["leaseTransitions"] == 1


def test_a_lease_given_up_is_taken_at_once() -> None:
    api, one, two = Api(), Candidate("one"), Candidate("two")
    turn(one, api, 0)
    turn(two, api, 1)
    released = one.release(now=NOW)
    assert one.standing(1) is not Standing.LEADING, "before it is told to anybody"
    assert released is not None
    assert api.write(released)
    turn(two, api, 2)
    assert two.standing(2) is Standing.LEADING
    assert one.release(now=NOW) is None


def test_a_holder_that_was_taken_out_of_the_lease_is_left_the_time_to_notice() -> None:
    """Somebody emptied the Lease, wrote nonsense into it, or deleted and made it again."""
    for wrong in ({}, {"holderIdentity": "nobody"}, {"leaseDurationSeconds": LEASE_S}):
        api, one, two = Api(), Candidate("one"), Candidate("two")
        turn(one, api, 0)
        turn(two, api, 1)
        api.version, api.spec = 100, dict(wrong)
        turn(two, api, 2)
        assert one.standing(2) is Standing.LEADING, "it does not know yet"
        assert two.standing(2) is Standing.FOLLOWING, wrong
        turn(two, api, 15.9)
        assert two.standing(15.9) is Standing.FOLLOWING, wrong
        assert one.standing(15.9) is Standing.UNSURE
        turn(two, api, 16)
        assert two.standing(16) is Standing.LEADING, wrong


def test_the_holder_itself_takes_an_emptied_lease_again() -> None:
    api, one = Api(), Candidate("one")
    turn(one, api, 0)
    api.version, api.spec = 100, {}
    turn(one, api, 2)
    assert one.standing(2) is not Standing.LEADING
    turn(one, api, 4)
    assert one.standing(4) is Standing.LEADING


def test_a_lease_with_as_many_transitions_as_there_may_be_can_still_be_taken() -> None:
    api, one = Api(spec={"leaseTransitions": 2**31 - 1}), Candidate("one")
    turn(one, api, 0)
    assert one.standing(0) is Standing.LEADING
    assert api.spec["leaseTransitions"] == 2**31 - 1


def test_a_lost_answer_is_found_out_by_looking() -> None:
    api, one = Api(), Candidate("one")
    one.see(read_lease(api.read()), now_s=0)
    bid = one.bid(now_s=0, now=NOW)
    assert bid is not None
    api.write(bid)
    assert not one.holds
    turn(one, api, 2)
    assert one.holds


def test_others_go_by_the_time_that_a_holder_promised() -> None:
    api, two = Api(spec={"holderIdentity": "x", "leaseDurationSeconds": 40}), Candidate("two")
    turn(two, api, 0)
    turn(two, api, 39)
    assert two.standing(39) is Standing.FOLLOWING
    turn(two, api, 40)
    assert two.standing(40) is Standing.LEADING


STEPS = st.lists(
    st.tuples(
        st.sampled_from((0, 1, 2)),
        st.sampled_from(("look", "turn", "deaf", "late", "release")),
        st.sampled_from((0.0, 0.5, RETRY_S, 4.9, 5.1, RENEW_S, LEASE_S - 0.1, LEASE_S, 40.0)),
    ),
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_never_two_at_once(steps: list[tuple[int, str, float]]) -> None:
    """`deaf`: a bid is taken and its answer lost. `late`: it arrives after the next step."""
    api, now_s = Api(), 0.0
    candidates = [Candidate(name) for name in ("one", "two", "three")]
    on_their_way: list[tuple[Candidate, dict[str, Any], float]] = []
    for who, what, pause_s in steps:
        one, arriving = candidates[who], on_their_way
        on_their_way = []
        if what == "look":
            one.see(read_lease(api.read()), now_s=now_s)
        elif what == "turn":
            turn(one, api, now_s)
        elif what == "release":
            if (released := one.release(now=f"{now_s}")) is not None:
                api.write(released)
        elif (bid := one.bid(now_s=now_s, now=f"{now_s}")) is not None:
            if what == "deaf":
                api.write(bid)
            else:
                on_their_way = [(one, bid, now_s)]
        now_s += pause_s
        for sender, bid, sent_s in arriving:
            if (taken := api.write(bid)) is not None:
                sender.won(read_lease(taken), sent_s=sent_s)
        leading = [one.me for one in candidates if one.standing(now_s) is Standing.LEADING]
        assert len(leading) <= 1
