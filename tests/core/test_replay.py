"""The replay: what it reads, what it counts, what it draws; and the target on a public trace."""

from __future__ import annotations

import itertools
import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_streams import trace_lines

from onggi_core.policy import ghosts
from onggi_core.policy.names import PolicyName
from onggi_core.replay.belady import belady
from onggi_core.replay.picture import picture
from onggi_core.replay.report import Report, short
from onggi_core.replay.simulate import replay
from onggi_core.replay.table import table
from onggi_core.replay.trace import Prompt, Trace, TraceRefused

NAMED = ("lru", "arc", "s3-fifo", "second-sight", "hazard")
"""The policies by one rule each; worth and its like combine two."""
SIZES = {"0.94M": 1_835, "1.9M": 3_710, "4.7M": 9_179, "9.4M": 18_359, "18.7M": 36_523}
"""Blocks of 512 tokens."""


def line(ids: object, timestamp: object = 0) -> str:
    return json.dumps({"timestamp": timestamp, "hash_ids": ids})


def test_a_trace_is_read_request_by_request() -> None:
    trace = Trace()
    lines = [line([5, 6], 1), "", line([5, 9], 2.5)]
    prompts = list(trace.read(lines))
    assert [prompt.blocks for prompt in prompts] == [(0, 1), (0, 2)]
    assert prompts[0].keys[0] == prompts[1].keys[0]
    assert len({key for prompt in prompts for key in prompt.keys}) == trace.distinct == 3


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["[1, 2"], "line 1: the line is '[1, 2', should be a JSON object"),
        (["7"], "line 1: the line is 7, should be a JSON object"),
        ([line([1]), line(None)], "line 2: hash_ids is None, should be a list of 1 to"),
        ([line([])], "line 1: hash_ids is [], should be a list of 1 to"),
        ([line([1, "2"])], "line 1: hash_ids[1] is '2', should be a whole number"),
        ([line([1, True])], "line 1: hash_ids[1] is True, should be a whole number"),
        ([line([1], None)], "line 1: timestamp is None, should be a number"),
        ([line([1], float("nan"))], "line 1: timestamp is nan, should be a number"),
        ([line([1], 9), "", line([1], 8)], "line 3: timestamp is 8, should be no less than"),
        (["x" * 1_000], "line 1: the line is 'xxxxxxxxxx"),
    ],
)
def test_a_wrong_line_is_refused_by_number_and_field(lines: list[str], says: str) -> None:
    with pytest.raises(TraceRefused) as refused:
        list(Trace().read(lines))
    assert str(refused.value).startswith(says)
    assert len(str(refused.value)) < 150


def test_a_hit_is_a_block_of_the_leading_run_alone() -> None:
    trace = Trace()
    prompts = [trace.prompt(ids) for ids in ([1, 2, 3], [1, 2, 4], [9, 2, 3], [1, 2, 3])]
    tier = replay(prompts, 10, PolicyName.LRU)
    assert (tier.hits, tier.asked) == (0 + 2 + 0 + 3, 12)


requests = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=12)


@given(requests=requests, blocks=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_nothing_beats_the_tier_that_knows_the_future(requests, blocks) -> None:
    prompts = tree(requests)
    limit = belady(prompts, blocks)
    for name in PolicyName:
        assert replay(prompts, blocks, name).hit_rate <= limit + 1e-9


def test_the_limit_is_what_all_choices_of_a_small_case_can_give() -> None:
    prompts = tree([[1], [2], [3], [1], [2], [4], [1]])
    assert belady(prompts, 2) == pytest.approx(3 / 7)
    assert belady(prompts, 1) == pytest.approx(2 / 7)


def tree(requests: list[list[int]]) -> list[Prompt]:
    trace = Trace()
    found = []
    for words in requests:
        ids = itertools.accumulate(words, lambda above, word: above * 10 + word, initial=1)
        found.append(trace.prompt(list(ids)[1:]))
    return found


def report() -> Report:
    rates = {
        "belady": (0.2, 0.3),
        "adaptive": (0.11, 0.25),
        "lru": (0.05, 0.25),
        "arc": (0.1, 0.2),
    }
    return Report(7, 700, 300, 512, (940_000, 18_700_000), rates)


def test_the_table_has_a_row_a_size_and_a_sum() -> None:
    lines = table(report()).splitlines()
    assert [line.split()[1] for line in lines] == ["tokens", "---", "940", "18.7", "sum"]
    assert lines[-1].split("|")[3].strip() == "0.3600"
    assert report().best_fixed(0) == ("arc", 0.1)
    assert report().best_fixed(1) == ("lru", 0.25)
    assert short(512) == "512"


def test_the_picture_is_a_line_a_policy_with_its_name() -> None:
    drawn = ET.fromstring(picture(report(), "a <title> & more"))
    texts = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert "a <title> & more" in texts
    assert [text.split()[0] for text in texts[-4:]] == ["belady", "adaptive", "lru", "arc"]
    lines = list(drawn.iter("{http://www.w3.org/2000/svg}polyline"))
    assert len(lines) == 2 * 4
    ends = [float(each.get("y")) for each in drawn.iter("{http://www.w3.org/2000/svg}text")][-4:]
    assert all(abs(a - b) >= 16.9 for a, b in itertools.combinations(ends, 2))


def rates(prompts: list[Prompt], size: str, names: tuple[str, ...]) -> dict[str, float]:
    found = {name: replay(prompts, SIZES[size], PolicyName(name)).hit_rate for name in names}
    print(size, {name: round(rate, 4) for name, rate in found.items()})
    return found


@pytest.mark.timeout(300)
def test_adaptive_is_above_the_best_fixed_policy_where_most_differ() -> None:
    """On the first third of the trace, at the size where the policies lie furthest apart."""
    prompts = list(Trace().read(trace_lines()))[:4_000]
    found = rates(prompts, "1.9M", ("adaptive", *NAMED))
    assert found["adaptive"] >= max(found[name] for name in NAMED) - 0.01
    assert found["adaptive"] > found["lru"] + 0.03
    assert belady(prompts, SIZES["1.9M"]) > found["adaptive"]


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", ["all", "second half"])
def test_adaptive_is_never_a_point_under_the_best_and_above_each_in_sum(part: str) -> None:
    """The target. The second half alone: what was chosen by looking at the first holds there."""
    prompts = list(Trace().read(trace_lines()))
    if part == "second half":
        prompts = prompts[len(prompts) // 2 :]
    sums = dict.fromkeys(("adaptive", *NAMED, "worth", "worth-second-sight"), 0.0)
    for size in SIZES:
        found = rates(prompts, size, tuple(sums))
        assert found["adaptive"] >= max(found.values()) - 0.01
        for name, rate in found.items():
            sums[name] += rate
    print({name: round(rate, 4) for name, rate in sums.items()})
    assert all(sums["adaptive"] > sums[name] for name in NAMED)
    assert sums["adaptive"] > max(sums.values()) - 0.01


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_two_standard_deviations_of_a_lead_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints what the adaptive policy hits on the second half where it changes at two standard
    deviations, and where it changes at as many as it does."""
    prompts = list(Trace().read(trace_lines()))
    prompts = prompts[len(prompts) // 2 :]
    sizes = ("1.9M", "4.7M")
    right = [rates(prompts, size, ("adaptive",))["adaptive"] for size in sizes]
    monkeypatch.setattr(ghosts, "_SURE", 2.0)
    sooner = [rates(prompts, size, ("adaptive",))["adaptive"] for size in sizes]
    assert sum(right) > sum(sooner)


@given(st.lists(st.text(max_size=60), max_size=5))
@settings(max_examples=200, deadline=None)
def test_whatever_is_not_a_trace_is_refused_with_a_sentence(lines: list[str]) -> None:
    if any(line.strip() for line in lines):
        with pytest.raises(TraceRefused, match=r"^line "):
            list(Trace().read(lines))
