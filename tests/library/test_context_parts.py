"""The parts of a context in tiers: shares of the device, pieces, names, what is learned, lanes."""

import threading
from array import array
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

from tests.library.tiered_kit import Counting, agent, noise  # noqa: E402

from onggi_library.context.attention_map import SEEN_MIN, AttentionMap  # noqa: E402
from onggi_library.context.context import TieredContext  # noqa: E402
from onggi_library.context.lane import HostLane  # noqa: E402
from onggi_library.context.memory import DeviceMemory  # noqa: E402
from onggi_library.context.names import Names  # noqa: E402
from onggi_library.context.pieces import Bounds, Cut, Spots  # noqa: E402
from onggi_library.context.share import IN_FLIGHT, Wanted, share  # noqa: E402

often = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@often
@given(
    device_bytes=st.integers(1, 10**9),
    layers=st.integers(1, 80),
    block_tokens=st.sampled_from([1, 16, 128]),
    sinks=st.integers(0, 600),
    recent=st.integers(0, 5000),
    batch=st.integers(1, 8),
    row_bytes=st.sampled_from([8, 1024, 4096]),
)
def test_shares_never_add_up_to_more_than_the_budget(
    device_bytes: int,
    layers: int,
    block_tokens: int,
    sinks: int,
    recent: int,
    batch: int,
    row_bytes: int,
) -> None:
    wanted = Wanted(device_bytes, layers, block_tokens, sinks, recent)
    block = block_tokens * row_bytes * batch
    least = (layers * (-(-sinks // block_tokens) + 1) + IN_FLIGHT) * block
    if device_bytes < least:
        with pytest.raises(ValueError, match=f"need at least {least} "):
            share(wanted, batch, row_bytes)
        return
    mine = share(wanted, batch, row_bytes)
    used = layers * (mine.sinks + mine.tail) + (IN_FLIGHT + mine.hot) * mine.piece
    assert used * block <= device_bytes
    assert mine.run >= 1
    assert mine.piece >= 1
    assert mine.recent * block_tokens < recent + block_tokens


@often
@given(
    block_tokens=st.sampled_from([16, 128, 1000]),
    first=st.integers(0, 9),
    most=st.integers(1, 70),
    ends=st.lists(st.integers(0, 3000), min_size=1, max_size=4),
)
def test_pieces_keep_their_bounds_while_the_context_grows(
    block_tokens: int, first: int, most: int, ends: list[int]
) -> None:
    cut = Cut(block_tokens, first, most)
    for end in sorted(ends):
        pieces = cut.pieces(end)
        covered = [block for bounds in pieces for block in range(bounds.first, bounds.end)]
        assert covered == list(range(first, end))
        assert all(bounds.end - bounds.first <= most for bounds in pieces)
        assert [bounds.first for bounds in pieces] == [
            cut.whole(number).first for number in range(len(pieces))
        ]
        assert all(bounds == cut.whole(number) for number, bounds in enumerate(pieces[:-1]))


def test_pieces_grow_with_the_distance_from_the_start() -> None:
    cut = Cut(128, 1, 64)
    assert [bounds.end - bounds.first for bounds in cut.pieces(128)] == [7, 8, 16, 32, 64]
    assert cut.whole(4) == Bounds(64, 128)


def test_names_of_contexts_that_one_was_made_from() -> None:
    there, here = Names(b"a" * 16), Names(b"b" * 16)
    row = array("Q", there.new(3))
    mine = here.adopt(there.origins, row)
    assert here.keys(mine) == there.keys(row)
    assert not set(here.keys(here.new(3))) & set(here.keys(mine))
    assert [here.mine(number) for number in mine] == [False] * 3
    assert here.mine(0)
    here.keep_all()
    assert not here.mine(0)
    assert here.mine(here.new(1)[0])
    assert Names(b"c" * 16).adopt(here.origins, mine)[0] >> 48 == 2


def test_where_attention_goes_is_learned_and_said_how_surely() -> None:
    learned = AttentionMap()
    spots = [(0, first) for first in range(0, 100, 10)]
    assert learned.choose(spots, 2) == [(0, 90), (0, 80)]
    assert learned.sureness is None
    shares = {first: 0.5 if first in (20, 40) else 0.01 for _, first in spots}
    for _ in range(SEEN_MIN):
        learned.observe(0, shares, [80, 90])
    assert sorted(learned.choose(spots, 2)) == [(0, 20), (0, 40)]
    assert learned.sureness is not None
    assert learned.sureness < 0.1
    for _ in range(20):
        learned.observe(0, shares, [20, 40])
    assert learned.sureness > 0.9
    assert learned.choose(spots, 10) == spots
    learned.observe(0, {}, [])


def test_a_map_that_is_full_has_cells_of_several_blocks() -> None:
    learned = AttentionMap(cells_max=64)
    pieces = dict.fromkeys(range(30), 0.01) | {20: 0.5}
    for _ in range(SEEN_MIN):
        learned.observe(0, pieces, [])
    assert learned.choose([(0, first) for first in range(30)], 1) == [(0, 20)]
    for _ in range(SEEN_MIN):
        learned.observe(1, dict.fromkeys(range(200), 0.001) | {100: 0.9}, [])
    assert learned.nbytes <= 4 * 64
    spots = Spots(Cut(1, 0, 1), [30, 200])
    assert len(spots) == len(list(spots)) == 230
    assert (0, 20) in spots
    assert (1, 200) not in spots
    near = {(0, 20), (0, 21), (0, 22), (0, 23), (1, 100), (1, 101), (1, 102), (1, 103)}
    assert {*learned.choose(spots, 8)} == near, "pieces of a cell are worth the same"
    learned.observe(2, {10_000: 0.5}, [])
    assert learned.nbytes <= 4 * 64


def test_a_piece_that_is_there_goes_only_for_one_that_is_clearly_better() -> None:
    learned = AttentionMap()
    for _ in range(SEEN_MIN):
        learned.observe(0, {0: 0.30, 10: 0.33, 20: 0.6}, [0])
    spots = [(0, 0), (0, 10), (0, 20)]
    assert learned.choose(spots, 1, [(0, 0)]) == [(0, 20)]
    assert learned.choose(spots[:2], 1, [(0, 0)]) == [(0, 0)]
    assert learned.choose(spots[:2], 1) == [(0, 10)]


def test_memory_of_the_device_is_counted_and_bounded() -> None:
    memory = DeviceMemory(1000, "cpu")
    first = memory.take((10, 20), torch.float32)
    assert memory.used_bytes == 800
    with pytest.raises(MemoryError, match="204 more bytes of the device with 800 in use of 1000"):
        memory.take((51,), torch.float32)
    memory.give_back(first)
    memory.take((5,), torch.float16)
    assert (memory.used_bytes, memory.peak_bytes) == (10, 800)


def test_a_lane_fills_its_two_places_in_turn_and_raises_what_went_wrong() -> None:
    lane = HostLane((torch.zeros(1, 4, 1), torch.zeros(1, 4, 1)))
    go_on = threading.Event()

    def fill(number: float) -> Any:
        def write(place: Any) -> int:
            go_on.wait(10)
            place.fill_(number)
            return 2

        return write

    def fail(_place: Any) -> int:
        raise RuntimeError("gone")

    first, second = lane.begin(fill(1.0)), lane.begin(fill(2.0))
    go_on.set()
    one = first()
    two = second()
    assert (one.shape[1], float(one.sum()), float(two.sum())) == (2, 2.0, 4.0)
    third = lane.begin(fail)
    with pytest.raises(RuntimeError, match="gone"):
        third()
    assert float(lane.begin(fill(5.0))().sum()) == 10.0
    assert float(one.sum()) == 2.0
    lane.close()


def test_what_is_made_at_all_does_not_grow_with_the_context() -> None:
    """Counted by torch itself, and not by the library: tensors of the budget and all others."""
    peaks = {}
    with agent() as running:
        for length in (1000, 2000):
            context = TieredContext(
                running.socket,
                layers=2,
                device_bytes=128 * 1024,
                sinks=64,
                recent=64,
                block_tokens=64,
            )
            counting = Counting()
            with context, counting:
                for seed in range(length // 100):
                    for layer in range(2):
                        keys = noise(seed, 1, 1, 100, 16)
                        context.append(layer, keys, keys)
                        context.attend(layer, noise(seed, 1, 2, 100, 16))
            peaks[length] = counting.peak
            assert context.flow.brought_bytes > length
    assert peaks[2000] <= peaks[1000] * 1.05
    assert peaks[2000] < 2000 * 2 * 128


def test_the_next_layers_first_piece_is_on_its_way_before_it_is_asked_for() -> None:
    with agent() as running:
        context = TieredContext(
            running.socket, layers=3, device_bytes=100 * 1024, sinks=0, recent=0, block_tokens=16
        )
        with context:
            for layer in range(3):
                context.append(layer, noise(1, 1, 1, 900, 16), noise(2, 1, 1, 900, 16))
                context.attend(layer, noise(3, 1, 2, 1, 16))
            bringer = context._held.side.bringer
            ahead = []
            for layer in (0, 1, 2, 0, 1):
                ahead.append(bringer._ahead is not None)
                context.append(layer, noise(4, 1, 1, 1, 16), noise(5, 1, 1, 1, 16))
                context.attend(layer, noise(6, 1, 2, 1, 16))
            assert ahead == [True] * 5
