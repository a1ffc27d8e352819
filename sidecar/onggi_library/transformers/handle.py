"""What a model is given in place of keys and values: where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NoReturn

from onggi_library.context.context import TieredContext

FOLLOW: Final = "hand in what it was given followed by new tokens, or take an empty one"


@dataclass(frozen=True)
class Handle:
    """Keys or values of one layer of a context, which no tensor holds."""

    context: TieredContext
    layer: int

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"keys and values of an OnggiCache have no {name!r}: they lie in tiers, and only the "
            'attention implementation "onggi" reads them. Call '
            'model.set_attn_implementation("onggi"); a model that looks at keys between its cache '
            "and its attention cannot be used"
        )


def is_handle(keys: Any) -> bool:
    return isinstance(keys, Handle)


def had(tokens: int) -> str:
    """How a sentence begins that refuses what does not follow on what a cache has."""
    return f"this cache already has {tokens} tokens"
