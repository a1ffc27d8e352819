"""Blocks in torch tensors, on the CPU, where torch is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from onggi import Client, SpaceSpec, block_keys
from onggi.torch_pages import TorchPages

torch: Any = pytest.importorskip("torch", reason="torch is not installed here")

KEYS = block_keys(list(range(64)), 16)
SPACE = SpaceSpec(b"t" * 16, 2 * 16 * 64 * 2, 16)


@pytest.fixture
def client(agent: Any) -> Iterator[Client]:
    client = Client(agent.socket_path, spaces=[SPACE], deadline_s=30.0)
    yield client
    client.close()


def cache(seed: int, blocks: int = 6) -> Any:
    """[blocks, K and V, tokens, width] bfloat16, random."""
    torch.manual_seed(seed)
    return torch.randn(blocks, 2, 16, 64).to(torch.bfloat16)


def test_blocks_come_back_bit_for_bit_in_any_order(client: Client) -> None:
    first, second = cache(1), cache(2)
    assert TorchPages(client, first).store(KEYS, [5, 0, 3, 2]).stored == 4
    untouched = second[0].clone()
    assert TorchPages(client, second).load(KEYS, [1, 2, 3, 4]) == 4
    assert torch.equal(second[1:5], first[[5, 0, 3, 2]])
    assert torch.equal(second[0], untouched)


def test_the_client_takes_tensors_itself(client: Client) -> None:
    first, second = cache(1), cache(2)
    assert client.store(KEYS, list(first[:4])).stored == 4
    assert client.load(KEYS, list(second[:4])) == 4
    assert torch.equal(second[:4], first[:4])


def test_a_wrong_tensor_is_named(client: Client) -> None:
    with pytest.raises(ValueError, match="hand in a contiguous tensor"):
        TorchPages(client, cache(1).transpose(1, 2))
    with pytest.raises(ValueError, match=r"torch.float32 of shape .* this space has pages of 4096"):
        TorchPages(client, cache(1).float())
    with pytest.raises(ValueError, match=r"pages\[0\] has 8192 bytes"):
        client.store(KEYS[:1], [cache(1)[0].float()])
    with pytest.raises(ValueError, match=r"pages\[0\] has strides"):
        client.store(KEYS[:1], [cache(1)[0].transpose(0, 1)])


@pytest.mark.parametrize(
    ("blocks", "kind", "says"),
    [
        ([0, 1, 2, -1], ValueError, "blocks has -1; pages has 6 blocks, from 0"),
        ([0, 1, 2, 6], ValueError, "blocks has 6; pages has 6 blocks, from 0"),
        ([0, 1, 2], ValueError, "blocks has 3 entries for 4 keys; use one each"),
        ([0, 1, 2, 0.5], TypeError, "blocks is 0.5; use a whole number"),
        (None, TypeError, "blocks is None; use a list"),
    ],
)
def test_blocks_that_are_not_there_are_named(
    client: Client, blocks: Any, kind: type[Exception], says: str
) -> None:
    pages = TorchPages(client, cache(1))
    with pytest.raises(kind, match=says):
        pages.store(KEYS, blocks)
    with pytest.raises(kind, match=says):
        pages.load(KEYS, blocks)


def test_what_is_no_tensor_of_blocks_is_named(client: Client) -> None:
    for wrong in (None, [1], torch.tensor(1.0)):
        with pytest.raises(TypeError, match="hand in a tensor of shape"):
            TorchPages(client, wrong)
    with pytest.raises(ValueError, match="space is 1; this client has 1, from 0"):
        TorchPages(client, cache(1), space=1)
