"""Prefix hashes of a request's blocks, from everything that changes the bytes of its KV cache.

vLLM's own block hashes are not used: they may be seeded by process, and they pickle. In the order
in which they are hashed, a block's extras are: the adapter (name, path, version of its files) on
every block; each multimodal item that overlaps the block, with its place in it; the salt, on block
0, which changes all blocks after it too; the embeddings, where the prompt came as such.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from onggi_core.identity import ROOT, Extra, block_keys


class RequestKeys:
    """Keys of one request, made as its tokens become known. Not thread-safe."""

    def __init__(
        self, request: Any, block_tokens: int, *, adapter: Sequence[Extra] = (), life: str = ""
    ) -> None:
        """adapter: extras of the request's LoRA (see adapters.py). life: set after the engine's
        caches were reset by hand, so that nothing from before is found again."""
        self._request = request
        self._block_tokens = block_tokens
        self._adapter = tuple(adapter)
        self._life = life
        self._keys: list[bytes] = []

    @property
    def block_tokens(self) -> int:
        return self._block_tokens

    def upto(self, blocks: int) -> list[bytes]:
        """Keys of the first `blocks` blocks, or of as many as are full of known tokens. All that
        are full are made at once: the last one is wanted when the prompt is saved.

        A streaming session may take tokens back; then the keys are made anew.
        """
        tokens = self._request.all_token_ids
        size = self._block_tokens
        full = len(tokens) // size
        if len(self._keys) > full:
            self._keys = []
        have = len(self._keys)
        if min(blocks, full) > have:
            self._keys += block_keys(
                tokens[have * size : full * size],
                size,
                self._extras_from(have, full) if self._has_extras() else None,
                parent=self._keys[-1] if have else ROOT,
            )
        return self._keys[:blocks]

    def _has_extras(self) -> bool:
        """False: the tokens say it all, as for nearly every request."""
        request = self._request
        return bool(
            self._adapter
            or self._life
            or request.cache_salt
            or request.mm_features
            or request.prompt_embeds is not None
        )

    def _extras_from(self, first: int, end: int) -> dict[int, list[Extra]]:
        """Of blocks `first` to `end`, counted from the first of them; without those of none."""
        extras = {n: self._extras(first + n) for n in range(end - first)}
        return {n: e for n, e in extras.items() if e}

    def _extras(self, block: int) -> list[Extra]:
        request, size = self._request, self._block_tokens
        begin, end = block * size, (block + 1) * size
        extras = list(self._adapter)
        for item in request.mm_features or ():
            at, length = item.mm_position.offset, item.mm_position.length
            if at < end and begin < at + length:
                extras.append(("mm", f"{item.identifier}@{at - begin}"))
        if block == 0:
            if request.cache_salt:
                extras.append(("cache_salt", request.cache_salt))
            if self._life:
                extras.append(("life", self._life))
        embeds = request.prompt_embeds
        if embeds is not None and begin < embeds.shape[0]:
            extras.append(("prompt_embeds", _digest(embeds[begin:end])))
        return extras


def _digest(embeds: Any) -> str:
    """Of a [tokens, hidden] tensor: its bytes, its dtype and its shape."""
    import torch

    flat = embeds.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{flat.dtype} {tuple(flat.shape)}".encode())
    digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
