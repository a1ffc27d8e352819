"""Onggi as one of several connectors of an engine (vLLM's MultiConnector)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1


def has_the_handshake(connector: Any, vllm_config: Any) -> bool:
    """Whether a worker's connector may say at the handshake what its rank is.

    Of several connectors vLLM takes the first one's word and hands it to the scheduler sides of
    all: one with a handshake of its own ends the engine over a word of another kind, and so do most
    over one from a second rank of a pipeline. What is not said then comes with the first step.
    """
    others = _siblings(connector)
    if not others:
        return True
    if int(vllm_config.parallel_config.pipeline_parallel_size) > 1:
        return False
    silent = KVConnectorBase_V1.get_handshake_metadata
    return all(type(one).get_handshake_metadata is silent for one in others)


def _siblings(connector: Any) -> Sequence[Any]:
    """The worker's other connectors, of whatever depth."""
    group = get_kv_transfer_group() if has_kv_transfer_group() else connector
    found, todo = [], [group]
    while todo:
        one = todo.pop()
        if hasattr(one, "sub_connectors"):
            todo += one.sub_connectors
        elif one is not connector:
            found.append(one)
    return found
