"""Wrong arguments of each call: told at the surface, by name, with what would be right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import onggi
from onggi import BadRequest, Client, LoadOutcome, SpaceSpec, StoreOutcome, block_keys, fingerprint
from onggi_core.errors import OnggiError

PAGE = 4096
PATIENT_S = 30.0
"""The agent is a thread here, and a busy machine may let it wait."""
SPACE = SpaceSpec(b"f" * 16, PAGE, 16)
KEYS = block_keys(list(range(64)), 16)
BUFFERS = [bytearray(PAGE) for _ in KEYS]
K = b"k" * 16


class Whole:
    """A whole number as numpy and torch have them."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.fixture
def client(agent: Any) -> Iterator[Client]:
    made = Client(agent.socket_path, spaces=[SPACE], deadline_s=PATIENT_S)
    assert made.attach(PATIENT_S)
    yield made
    made.close()


def spaces(**wrong: Any) -> list[SpaceSpec]:
    """Two of them; `wrong` is of the second."""
    fields = {"fingerprint": b"f" * 16, "page_bytes": PAGE, "block_tokens": 16, **wrong}
    return [SPACE, SpaceSpec(**fields)]


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"socket_path": 7}, TypeError, "socket_path is 7; use text or a path"),
        ({"socket_path": None}, TypeError, "socket_path is None; use text or a path"),
        ({"socket_path": ""}, ValueError, "socket_path is ''; use a path of 1 to 107 bytes"),
        ({"socket_path": "a\0b"}, ValueError, "use a path of 1 to 107 bytes"),
        ({"socket_path": "x" * 108}, ValueError, "use a path of 1 to 107 bytes"),
        ({"socket_path": "\ud800"}, ValueError, "no path can be so"),
        ({"spaces": SPACE}, TypeError, "spaces is a SpaceSpec; use a list of them"),
        ({"spaces": None}, TypeError, "spaces is None; use a list"),
        ({"spaces": []}, ValueError, "spaces has 0 entries; use 1 to 64"),
        ({"spaces": [SPACE] * 65}, ValueError, "spaces has 65 entries; use 1 to 64"),
        ({"spaces": [{"page_bytes": 1}]}, TypeError, "spaces[0] is a dict; use a SpaceSpec"),
        ({"spaces": {SPACE: 1}}, TypeError, "spaces is a dict; use a list"),
        ({"spaces": (s for s in [SPACE])}, TypeError, "spaces is a generator; use a list"),
        ({"spaces": spaces(page_bytes=1.5)}, TypeError, "[1].page_bytes is 1.5; use a whole"),
        ({"spaces": spaces(page_bytes="1")}, TypeError, "[1].page_bytes is '1'; use a whole"),
        ({"spaces": spaces(page_bytes=0)}, ValueError, "[1].page_bytes is 0; use 1 or more"),
        ({"spaces": spaces(page_bytes=1 << 64)}, ValueError, "616; use 1 or more, below 2**64"),
        ({"spaces": spaces(block_tokens=None)}, TypeError, "[1].block_tokens is None; use a whole"),
        ({"spaces": spaces(block_tokens=-1)}, ValueError, "[1].block_tokens is -1; use 1 or more"),
        ({"spaces": spaces(block_tokens=1 << 32)}, ValueError, "use 1 or more, below 2**32"),
        ({"spaces": spaces(fingerprint="f" * 16)}, TypeError, "spaces[1].fingerprint is 'fff"),
        ({"spaces": spaces(fingerprint=b"ab")}, ValueError, "[1].fingerprint has 2 bytes; use 16"),
        ({"engine": 7}, TypeError, "engine is 7; use a str"),
        ({"engine": "x" * 257}, ValueError, "use up to 256 bytes of UTF-8"),
        ({"engine": "\ud800"}, ValueError, "use up to 256 bytes of UTF-8"),
        ({"deadline_s": "1"}, TypeError, "deadline_s is '1'; use a number of seconds"),
        ({"deadline_s": None}, TypeError, "deadline_s is None; use a number of seconds"),
        ({"deadline_s": 0}, ValueError, "deadline_s is 0; use a number of seconds, more than 0"),
        ({"deadline_s": -1}, ValueError, "deadline_s is -1; use a number of seconds, more than"),
        ({"deadline_s": float("inf")}, ValueError, "deadline_s is inf; use a number of seconds"),
        ({"deadline_s": float("nan")}, ValueError, "deadline_s is nan; use a number of seconds"),
        ({"deadline_s": 61}, ValueError, "deadline_s is 61; use a number of seconds, more than"),
    ],
)
def test_a_client_is_made_of_what_it_needs_or_not_at_all(
    wrong: dict[str, Any], kind: type[Exception], says: str
) -> None:
    given: dict[str, Any] = {"socket_path": "/nowhere", "spaces": [SPACE], **wrong}
    with pytest.raises(kind) as refused:
        Client(given.pop("socket_path"), **given)
    assert says in str(refused.value)


Call = Callable[[Client], Any]

CALLS: dict[str, tuple[Call, type[Exception], str]] = {
    "keys of text": (lambda c: c.lookup(["k" * 16]), TypeError, "keys[0] is 'kkk"),
    "no keys": (lambda c: c.lookup(None), TypeError, "keys is None; use a list"),
    "one key": (lambda c: c.lookup(K), TypeError, "keys[0] is 107; use 16 bytes"),
    "a set": (lambda c: c.prefetch({K}), TypeError, "keys is a set; use a list"),
    "no name": (lambda c: c.discard([K, "a"]), TypeError, "keys[1] is 'a'; use 16 bytes"),
    "a dict": (lambda c: c.lookup({K: 1}), TypeError, "keys is a dict; use a list"),
    "a generator": (lambda c: c.lookup(k for k in KEYS), TypeError, "keys is a generator; use"),
    "a short key": (lambda c: c.prefetch([K, b"abc"]), ValueError, "keys[1] is b'abc' of 3 bytes"),
    "lengths that make up for each other": (
        lambda c: c.store([b"a" * 15, b"b" * 17], BUFFERS[:2]),
        ValueError,
        "of 15 bytes; use 16",
    ),
    "too many keys": (lambda c: c.lookup([K] * 65537), ValueError, "keys has 65537 entries"),
    "a wait of text": (lambda c: c.load_prepare(KEYS, wait_s="1"), TypeError, "wait_s is '1'"),
    "a wait of none": (lambda c: c.load(KEYS, BUFFERS, wait_s=None), TypeError, "wait_s is None"),
    "an attach of text": (lambda c: c.attach("1"), TypeError, "wait_s is '1'; use a number"),
    "a wait that is no number": (
        lambda c: c.load(KEYS, BUFFERS, wait_s=float("nan")),
        ValueError,
        "wait_s is nan; use a number of seconds",
    ),
    "a wait below zero": (
        lambda c: c.load(KEYS, BUFFERS, wait_s=-1),
        ValueError,
        "wait_s is -1; use a number of seconds from 0 on",
    ),
    "a wait far below zero": (
        lambda c: c.load_prepare(KEYS, wait_s=-(10**400)),
        ValueError,
        "use a number of seconds from 0 on",
    ),
    "a time to wait for a load that is over": (
        lambda c: c.load_prepare(KEYS).wait(-0.5),
        ValueError,
        "timeout_s is -0.5; use a number of seconds from 0 on",
    ),
    "a time to wait for a load that is no number": (
        lambda c: c.load_prepare(KEYS).wait(float("nan")),
        ValueError,
        "timeout_s is nan; use a number of seconds from 0 on",
    ),
    "pages in one piece of another size": (
        lambda c: c.store(KEYS, bytearray(4 * PAGE - 1)),
        ValueError,
        "pages has 16383 bytes; 4 pages of 4096 were named",
    ),
    "one piece to load into that is too small": (
        lambda c: c.load(KEYS, bytearray(PAGE)),
        ValueError,
        "pages has 4096 bytes; 4 pages of 4096 were named",
    ),
    "a parent of text": (
        lambda c: c.store(KEYS, BUFFERS, parent="p" * 16),
        TypeError,
        "parent is 'pppppppppppppppp'; use 16 bytes",
    ),
    "a short parent": (lambda c: c.store_prepare(KEYS, parent=b""), ValueError, "parent is b''"),
    "a space of text": (lambda c: c.store(KEYS, BUFFERS, space="0"), TypeError, "space is '0'"),
    "half a space": (lambda c: c.load(KEYS, BUFFERS, space=0.5), TypeError, "space is 0.5; use"),
    "no such space": (lambda c: c.store_prepare(KEYS, space=1), ValueError, "space is 1; this"),
    "no pages": (lambda c: c.store(KEYS, None), TypeError, "pages is None; use a list"),
    "pages by name": (lambda c: c.load(KEYS, {"a": 1}), TypeError, "pages is a dict; use a list"),
    "a page of numbers": (lambda c: c.store(KEYS, [1] * 4), ValueError, "pages[0] is a int; hand"),
    "a load that is none": (
        lambda c: c.finish_load(None, LoadOutcome.LOADED),
        TypeError,
        "load is None; use a Load",
    ),
    "a store's outcome": (
        lambda c: c.finish_load(onggi.outcomes.NO_LOAD, StoreOutcome.SEALED),
        TypeError,
        "outcome is <StoreOutcome.SEALED: 1>; use a LoadOutcome",
    ),
    "more blocks than it has": (
        lambda c: c.finish_load(onggi.outcomes.NO_LOAD, LoadOutcome.LOADED, blocks=1),
        ValueError,
        "blocks is 1; this load has 0",
    ),
    "a ticket that is none": (
        lambda c: c.finish_store(7, StoreOutcome.SEALED),
        TypeError,
        "ticket is 7; use a StoreTicket",
    ),
    "an outcome of a number": (
        lambda c: c.finish_store_later(c.store_prepare(KEYS), 1),
        TypeError,
        "outcome is 1; use a StoreOutcome",
    ),
    "pages that are none": (lambda c: c.copy_out(None, BUFFERS), TypeError, "pages is None; use"),
    "an arena of nothing": (lambda c: c.arena("x"), TypeError, "pages is 'x'; use a Pages"),
    "whether it holds nothing": (lambda c: c.holds([]), TypeError, "pages is a list; use a Pages"),
    "no buffers": (
        lambda c: c.copy_in(c.store_prepare(KEYS).pages(), None),
        TypeError,
        "buffers is None; use a list",
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_argument_of_a_call_is_named(what: str, client: Client) -> None:
    call, kind, says = CALLS[what]
    with pytest.raises(kind) as refused:
        call(client)
    assert says in str(refused.value)
    assert client.store(KEYS, BUFFERS).refused == 0  # and the client is as good as before


def test_a_wait_that_no_float_holds_is_as_long_as_there_is(client: Client) -> None:
    assert client.store(KEYS, BUFFERS).stored == 4
    assert client.load(KEYS, BUFFERS, wait_s=10**400) == 4


def test_paths_and_whole_numbers_of_any_kind_simply_work(agent: Any) -> None:
    fields = {"fingerprint": bytearray(b"f" * 16), "page_bytes": Whole(PAGE)}
    client = Client(Path(agent.socket_path), spaces=spaces(**fields)[1:], deadline_s=60)
    assert client.attach(PATIENT_S)
    pages = [bytes([n]) * PAGE for n in range(4)]
    keys = [bytearray(key) for key in KEYS]
    assert client.store(tuple(keys), pages, space=Whole(0)).stored == 4
    into = [bytearray(PAGE) for _ in KEYS]
    assert client.load(KEYS, into, wait_s=30) == 4
    assert into == pages
    client.close()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: block_keys([1] * 16, 0), "block_tokens is 0; use a whole number, 1 or more"),
        (lambda: block_keys([1] * 16, "16"), "block_tokens is '16'; use a whole number"),
        (lambda: block_keys(None, 16), "token_ids is None; use a list"),
        (lambda: block_keys(b"x" * 64, 16), "token_ids is 'bytes'; use a sequence of whole"),
        (lambda: block_keys("x" * 16, 16), "token_ids is 'str'; use a sequence of whole"),
        (lambda: block_keys([1.5] * 16, 16), "token_ids is 1.5; ids are whole, 0 to"),
        (lambda: block_keys([-1] * 16, 16), "token_ids is -1; ids are whole, 0 to"),
        (lambda: block_keys([1] * 16, 16, parent="p" * 16), "parent is 'pppppppppppppppp'; use"),
        (lambda: block_keys([1] * 16, 16, parent=b"p"), "parent is b'p'; use 16 bytes"),
        (lambda: block_keys([1] * 16, 16, ["x"]), "extras is ['x']; use a mapping of block"),
        (lambda: block_keys([1] * 16, 16, {0: [("lora", 1)]}), "extras[0] is [('lora', 1)]; use"),
        (lambda: block_keys([1] * 16, 16, {0: 7}), "extras[0] is 7; use pairs of texts"),
        (lambda: fingerprint({}), "fields is {}; name at least the model"),
        (lambda: fingerprint({1: "a"}), "fields is 1; use text for its names"),
        (lambda: fingerprint({"a": 1.5}), "fields[a] is 1.5; use text or a whole number"),
    ],
)
def test_what_makes_keys_refuses_by_a_value_error_that_is_exported(
    call: Callable[[], Any], says: str
) -> None:
    with pytest.raises(ValueError) as refused:
        call()
    assert isinstance(refused.value, BadRequest)
    assert isinstance(refused.value, OnggiError)
    assert says in str(refused.value)
