"""An asynchronous load's pages, copied into its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onggi.client import Client
from onggi.clock import Clock
from onggi.connectors.vllm.copier import Copier
from onggi.connectors.vllm.metadata import LoadJob


def copy_load(
    client: Client, copiers: Sequence[Copier], rank: int, job: LoadJob, after: Any, now_s: Clock
) -> int:
    """Copy a job's pages into its blocks; returns the leading blocks that are right: all that have
    a page, or 0. With pages of several kinds all blocks of all of them, or 0."""
    blocks = _copy_part(client, copiers[job.kind], rank, job, after, now_s)
    if job.also:
        parts = [(blocks, job)] + [
            (_copy_part(client, copiers[part.kind], rank, part, after, now_s), part)
            for part in job.also
        ]
        if any(copied < len(part.block_ids) for copied, part in parts):
            return 0
    return blocks


def _copy_part(
    client: Client, copier: Copier, rank: int, job: LoadJob, after: Any, now_s: Clock
) -> int:
    if not job.wanted or not job.rows:
        return 0
    pages = job.rows[rank]
    arena = client.arena(pages)
    if arena is None or now_s() >= pages.expires_s:
        return 0
    count = min(len(pages.offsets), len(job.block_ids))
    pairs = zip(job.block_ids[:count], pages.offsets[:count], strict=True)
    whole = copier.copy_out(arena, pairs, after) and now_s() < pages.expires_s
    return count if whole else 0
