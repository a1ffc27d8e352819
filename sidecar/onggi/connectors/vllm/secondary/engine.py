"""Which engine a tier is made for. vLLM hands a tier the model's name and dtype, and nothing of its
weights, configuration or hash seed, so whoever makes it leaves the rest here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Engine:
    """vllm_config, kv_cache_config: vLLM's, as each connector gets them."""

    vllm_config: Any
    kv_cache_config: Any


_present: Final[ContextVar[Engine | None]] = ContextVar("onggi_engine", default=None)


@contextmanager
def makes_tiers(engine: Engine) -> Iterator[None]:
    """Tiers made inside are this engine's."""
    before = _present.set(engine)
    try:
        yield
    finally:
        _present.reset(before)


def present() -> Engine | None:
    """The engine whose tiers are being made."""
    return _present.get()
