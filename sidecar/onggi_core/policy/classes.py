"""Classes of blocks: how often a block was asked for again, as far as anybody remembers.

Measured on conversations, nothing else that a cache can see tells blocks apart as well: of those
asked for once a quarter is asked for again, of those asked for eight times nearly all. Depth in the
prompt, the length of the prompt and what its run branched off added nothing to it.
"""

from __future__ import annotations

from typing import Final

CLASSES: Final = 8
"""A class a count; the last one takes all higher counts."""

COUNT_MAX: Final = CLASSES - 1

PROVEN: Final = 1
"""From this class on a block has been asked for again at least once."""
