"""The vLLM plugin: turns the connector on where ONGGI_SOCKET is set and the user set none.

vLLM runs `register` in each of its processes. It wraps the one function through which every way of
starting vLLM makes its configuration, so any command, wrapper script or image works untouched. It
never overrides: a connector, an offloading size or a launch that Onggi would break is left alone,
with a line that says so.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
from typing import Any

from onggi.connectors.environment import (
    CONFIGURE_VARIABLE,
    SOCKET_VARIABLE,
    unread_variables,
)
from onggi.connectors.vllm.guard import log

CONNECTOR = "OnggiConnector"
MODULE = "onggi.connectors.vllm"
OFFLOADING = "OnggiOffloadingConnector"
_MARK = "_onggi_wrapped"


def register() -> None:
    """Entry point of group vllm.general_plugins. Idempotent, and never raises: an exception from a
    plugin would stop the engine."""
    try:
        for sentence in unread_variables():
            log.warning("onggi: %s", sentence)
        _give_a_name()
        if not os.environ.get(SOCKET_VARIABLE):
            if multiprocessing.parent_process() is None:  # once, and not for each rank
                log.info(
                    "onggi: the client is here and takes no part; to use it set %s to the path of"
                    " an agent's socket",
                    SOCKET_VARIABLE,
                )
            return
        if os.environ.get(CONFIGURE_VARIABLE) == "Manual":
            log.info(
                "onggi: the pool says configure: Manual, so the connector is the user's to set"
            )
            return
        from vllm.engine.arg_utils import EngineArgs

        _wrap(EngineArgs)
    except Exception as error:  # noqa: BLE001 - see above
        log.error("onggi: could not register; the engine goes on without it", exc_info=error)


def _give_a_name() -> None:
    """vLLM finds the classes of several connectors (MultiConnector) by name when it counts what
    they did, whatever module the configuration names: without it the engine would end."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    with contextlib.suppress(ValueError):  # it has the name already
        KVConnectorFactory.register_connector(CONNECTOR, MODULE, CONNECTOR)


def _wrap(engine_args: Any) -> None:
    original = engine_args.create_engine_config
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _fill(self):
            return original(self, *args, **kwargs)
        try:
            config = original(self, *args, **kwargs)
            why = _why_not(config)
        except Exception as error:  # noqa: BLE001 - tried again without us: then it is the user's
            why = f"the engine's configuration failed with it ({error})"
        if not why:
            return config
        log.warning("onggi: not turned on: %s", why)
        self.kv_transfer_config = None
        return original(self, *args, **kwargs)

    setattr(create_engine_config, _MARK, True)
    engine_args.create_engine_config = create_engine_config


def _fill(engine_args: Any) -> bool:
    """Put our connector where none is set. False: the user's own settings stay as they are."""
    present = engine_args.kv_transfer_config
    if present is not None:
        name = getattr(present, "kv_connector", None)
        if name not in (CONNECTOR, OFFLOADING) and CONNECTOR not in _names_within(present):
            log.warning(
                "onggi: not turned on: kv_transfer_config names %s already; take it out, or name %s"
                " in it",
                name,
                CONNECTOR,
            )
        return False
    if getattr(engine_args, "kv_offloading_size", None):
        log.warning(
            "onggi: not turned on: kv_offloading_size is %s; take it out, or name %s in"
            " kv_transfer_config to have Onggi behind vLLM's own offloading",
            engine_args.kv_offloading_size,
            OFFLOADING,
        )
        return False
    if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        log.warning(
            "onggi: not turned on: vLLM takes no connector with expandable_segments:True; take it"
            " out of PYTORCH_CUDA_ALLOC_CONF"
        )
        return False
    from vllm.config import KVTransferConfig

    engine_args.kv_transfer_config = KVTransferConfig(
        kv_connector=CONNECTOR,
        kv_connector_module_path=MODULE,
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
    )
    log.info("onggi: connector turned on; agent expected at %s", os.environ[SOCKET_VARIABLE])
    return True


def _names_within(kv_transfer_config: Any) -> list[str]:
    """Of the connectors that one of several (MultiConnector) has."""
    extra = getattr(kv_transfer_config, "kv_connector_extra_config", None) or {}
    return [one.get("kv_connector", "") for one in extra.get("connectors", ())]


def _why_not(config: Any) -> str:
    """A set-up that starts without a connector and not with one."""
    if getattr(config.model_config, "is_encoder_decoder", False):
        return "encoder-decoder models take no connector"
    return ""
