"""Kinds of blocks: layers that keep the same tokens share their pages.

vLLM cuts a model's layers into groups with a block table each. All groups whose layers look back
equally far lose their blocks at the same moment, so they are one kind here: one chain of keys, one
page with the bytes of all of them, one lookup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class StandBack(Exception):
    """This engine's set-up is not cached; the message says why. The engine goes on without."""


@dataclass(frozen=True)
class Kind:
    """groups: the engine's groups that make up a page, by number. block_tokens: of a block. reach:
    tokens before the next one that its layers still need; chunk: its layers need those since the
    last multiple of it; neither: all."""

    groups: tuple[int, ...]
    block_tokens: int
    reach: int | None = None
    chunk: int | None = None

    @property
    def needs_all(self) -> bool:
        return self.reach is None and self.chunk is None

    def first_needed(self, tokens: int) -> int:
        """After so many tokens: the number of the first block that the next one needs."""
        skipped = 0
        if self.reach is not None:
            skipped = max(0, tokens - self.reach)
        elif self.chunk is not None:
            skipped = tokens - tokens % self.chunk
        return skipped // self.block_tokens

    def most_needed(self) -> int:
        """Blocks of a window, at most; 0 if it has no end."""
        span = self.reach if self.reach is not None else self.chunk
        return 0 if span is None else -(-span // self.block_tokens) + 1


def kinds_of(kv_cache_config: Any) -> tuple[Kind, ...]:
    """Kinds of an engine's groups, those that need all tokens first. Raises StandBack."""
    groups: dict[tuple[int, int | None, int | None], list[int]] = {}
    for number, group in enumerate(kv_cache_config.kv_cache_groups):
        if getattr(group, "host_resident", False):
            raise StandBack(f"group {number} lives in host memory, under the engine's own care")
        if not getattr(group.kv_cache_spec, "prefix_cacheable", True):
            continue  # of one request alone: the engine makes it anew
        specs = layer_specs(group.kv_cache_spec)
        looks = {(int(spec.block_size), *_look(spec)) for spec in specs}
        if len(looks) != 1:
            raise StandBack(f"group {number} mixes layers that look back differently far")
        groups.setdefault(looks.pop(), []).append(number)
    if not groups:
        raise StandBack("no group of the model's layers can be cached by prefix")
    kinds = [Kind(tuple(numbers), *look) for look, numbers in groups.items()]
    return tuple(sorted(kinds, key=lambda kind: (not kind.needs_all, kind.groups)))


def layer_specs(spec: Any) -> list[Any]:
    """The specs of a group's layers: of a uniform group the one, of a mixed one each."""
    several = getattr(spec, "kv_cache_specs", None)
    return list(several.values()) if isinstance(several, Mapping) else [spec]


def _look(spec: Any) -> tuple[int | None, int | None]:
    """Reach and chunk of a layer. By the names of vLLM's classes, most special first: what is not
    known here may give up blocks in another way."""
    names = [cls.__name__ for cls in type(spec).__mro__]
    if names[0] in ("SlidingWindowSpec", "SlidingWindowMLASpec"):
        extra = int(getattr(spec, "extra_retained_tokens", 0) or 0)
        return int(spec.sliding_window) - 1 + extra, None
    if names[0] == "ChunkedLocalAttentionSpec":
        return None, int(spec.attention_chunk_size)
    if names[0] in ("FullAttentionSpec", "MLAAttentionSpec"):
        return None, None  # all blocks stay, whatever a window in it says
    raise StandBack(f"layers of kind {names[0]} are not kept yet")
