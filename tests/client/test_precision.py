"""The bytes that come back are the bytes that went in: every dtype, odd sizes, odd values.

Through a real agent, from its host tier and, after its end, from its disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_harness import AgentProcess, soon

from onggi import Client, SpaceSpec, block_keys
from onggi.torch_pages import TorchPages

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

BLOCKS = 6
KEYS = block_keys(list(range(BLOCKS * 16)), 16)
DTYPES = ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8"]
SHAPES = [(2, 16, 64), (1,), (3, 5, 7), (4099,), (2, 4096), (1023, 9)]
"""Pages of 1 element, an odd number of them, not a multiple of 8 or of 4 KiB, and round ones."""

AWKWARD = {
    "float32": [0x80000000, 0x00000001, 0x807FFFFF, 0x7F800001, 0x7FC0DEAD, 0xFF800000],
    "bfloat16": [0x8000, 0x0001, 0x807F, 0x7F81, 0x7FFE, 0xFF80],
    "float16": [0x8000, 0x0001, 0x83FF, 0x7C01, 0x7FFE, 0xFC00],
    "float8_e4m3fn": [0x80, 0x01, 0x87, 0x7F, 0xFF, 0x00],
    "float8_e5m2": [0x80, 0x01, 0x83, 0x7D, 0xFF, 0xFC],
    "int8": [0x80, 0x01, 0x7F, 0xFF, 0x00, 0x55],
    "uint8": [0x80, 0x01, 0x7F, 0xFF, 0x00, 0x55],
}
"""Negative zero, denormals, NaNs with a payload (signalling ones too), infinity; or the ends."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    folder = tmp_path_factory.mktemp("agent")
    with AgentProcess(folder, memory="32MiB", disk="64MiB") as agent:
        yield agent


def blocks_of(dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    """[BLOCKS, *shape]: random bits with the awkward values among them."""
    kind = getattr(torch, dtype)
    size = torch.empty(0, dtype=kind).element_size()
    count = BLOCKS
    for part in shape:
        count *= part
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]
    raw = torch.frombuffer(bytearray(os.urandom(count * size)), dtype=integer)
    for at, value in enumerate(AWKWARD[dtype]):
        bits = value - (1 << 8 * size) if size > 1 and value >> (8 * size - 1) else value
        raw[(at + seed) % count] = bits
    return raw.view(kind).reshape(BLOCKS, *shape)


def bits(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy())


@pytest.fixture
def client_of() -> Iterator[Any]:
    """Makes clients of an agent, one a name; closed at the end."""
    made = []

    def make(agent: AgentProcess, name: str, page_bytes: int) -> Client:
        space = SpaceSpec(name.encode().ljust(16, b".")[-16:], page_bytes, 16)
        made.append(Client(agent.socket, spaces=[space], deadline_s=30.0))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_comes_back(
    agent: AgentProcess, client_of: Any, dtype: str, shape: tuple[int, ...]
) -> None:
    went = blocks_of(dtype, shape, len(shape))
    page_bytes = went[0].numel() * went.element_size()
    client = client_of(agent, f"{DTYPES.index(dtype)}/{SHAPES.index(shape)}", page_bytes)
    order = [5, 0, 3, 2, 1, 4]
    keep = TorchPages(client, went)
    assert soon(lambda: keep.store(KEYS, order).existing == BLOCKS)  # a busy agent attaches late
    came = torch.zeros_like(went)
    assert TorchPages(client, came).load(KEYS, order) == BLOCKS
    assert bits(came) == bits(went)
    rows = [torch.zeros_like(went[0]) for _ in KEYS]  # and without TorchPages
    assert client.load(KEYS, rows) == BLOCKS
    assert b"".join(map(bits, rows)) == b"".join(bits(went[block]) for block in order)


def test_every_bit_comes_back_from_disk(tmp_path: Path, client_of: Any) -> None:
    went = {dtype: blocks_of(dtype, (4099,), 1) for dtype in DTYPES}
    with AgentProcess(tmp_path, memory="16MiB", disk="64MiB") as agent:
        clients = {
            dtype: client_of(agent, dtype, tensor[0].numel() * tensor.element_size())
            for dtype, tensor in went.items()
        }
        written = 0
        for dtype, client in clients.items():
            keep = TorchPages(client, went[dtype])
            assert soon(lambda keep=keep: keep.store(KEYS, range(BLOCKS)).existing == BLOCKS)
            written += BLOCKS * client.spaces[0].page_bytes
        assert soon(lambda: client.stats().get("written_bytes") == written)
        agent.stop()
        agent.start()
        for dtype, client in clients.items():
            assert soon(lambda client=client: client.lookup(KEYS).pending == BLOCKS)
            came = torch.zeros_like(went[dtype])
            assert TorchPages(client, came).load(KEYS, range(BLOCKS), wait_s=30.0) == BLOCKS
            assert bits(came) == bits(went[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_with_gaps_is_refused_and_the_message_says_what_is_right(
    agent: AgentProcess, client_of: Any, dtype: str
) -> None:
    whole = blocks_of(dtype, (2, 16, 64), 1)
    page_bytes = whole[0].numel() * whole.element_size()
    client = client_of(agent, f"gaps/{dtype}", page_bytes)
    for wrong in (whole.transpose(1, 2), whole[:, :, :, ::2], whole[::2]):
        with pytest.raises(ValueError, match=r"pages has strides \(.*hand in a contiguous tensor"):
            TorchPages(client, wrong)
    gaps = whole[0].transpose(0, 1)
    with pytest.raises(ValueError, match=r"pages\[0\] has strides .*contiguous tensor"):
        client.store(KEYS[:1], [gaps])
    assert client.lookup(KEYS).pending == 0
    assert soon(lambda: client.store(KEYS[:1], [whole[0]]).existing == 1)
    with pytest.raises(ValueError, match=r"pages\[0\] has strides .*contiguous tensor"):
        client.load(KEYS[:1], [gaps])
