"""The pools that the engine has shown, and the one of its main KV in the form it asks for."""

from __future__ import annotations

from typing import Any, Final

from onggi.connectors.sglang.guard import log
from onggi.connectors.sglang.pools import FlatPool, Pool
from onggi.connectors.sglang.start import STANDS_BACK, Maker, attach

KV: Final = "kv"
"""SGLang's name of its main pool."""


class ShownPools:
    """Filled while the engine starts, and read by its threads from then on."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._closed = False
        self._named: dict[str, Pool] = {}
        self.packed: FlatPool | None = None
        """The main pool in the form of the plain interface, where the engine uses that."""
        self.is_logical = False
        """The main pool has no memory: other pools carry what belongs to its pages."""

    def get(self, name: Any) -> Pool | None:
        return self._named.get(_plain(name))

    @property
    def main(self) -> Pool | None:
        return self._named.get(KV) if self._maker.options.interface_v1 else self.packed

    def show(self, name: Any, host: Any) -> None:
        """Once for each pool; again, with another, in place of the one before."""
        name = _plain(name)
        if name == KV:
            self.is_logical = getattr(host, "kv_buffer", None) is None
            if self.is_logical:
                return
            if not self._maker.options.interface_v1:
                self._show_packed(host)
                return
        present = self._named.pop(name, None)
        if present is None or present.host is not host:
            pool = self._made(name, host)
            if present is not None:
                present.client.close()
            present = pool
        if present is not None:
            self._named[name] = present

    def _show_packed(self, host: Any) -> None:
        if self.packed is None or self.packed.host is not host:
            pool = self._made(KV, host, packed=True)
            assert pool is None or isinstance(pool, FlatPool)
            self.packed = pool

    def _made(self, name: str, host: Any, *, packed: bool = False) -> Pool | None:
        if self._closed or not self._maker.options.socket:
            return None
        try:
            return self._maker.pool(name, host, packed=packed)
        except STANDS_BACK as why:
            log.warning("onggi: pool %s is not kept: %s", name, why)
            return None

    def attach(self) -> None:
        """All pools are shown: wait a little for the agent."""
        pools = self._all()
        there = attach(pools) if pools else False
        names = ", ".join([*self._named, *([KV] if self.packed else ())]) or "no pool"
        log.info("onggi: keeps %s; agent %s", names, "attached" if there else "not there yet")

    def close(self) -> None:
        self._closed = True
        pools = self._all()
        self._named, self.packed = {}, None
        for pool in pools:
            pool.client.close()

    def _all(self) -> list[Pool]:
        return [*self._named.values(), *([self.packed] if self.packed else ())]


def _plain(name: Any) -> str:
    return str(getattr(name, "value", name))
