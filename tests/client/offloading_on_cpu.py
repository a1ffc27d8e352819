"""vLLM's own offloading on a CPU: its copies between device and host memory are CUDA's alone.

A plugin of vLLM's for the tests, which gives TieringOffloadingSpec a worker that copies by memmove.
All else is vLLM's own: scheduler, host memory, tiers, metrics.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def install(folder: Path) -> None:
    """A folder for PYTHONPATH with this file and the note by which vLLM finds it."""
    folder.mkdir()
    (folder / "offloading_on_cpu.py").write_text(Path(__file__).read_text())
    info = folder / "offloading_on_cpu-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offloading-on-cpu\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\noffloading_on_cpu = offloading_on_cpu:register\n"
    )


def register() -> None:
    from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

    def get_worker(self: Any, kv_caches: Any) -> Any:
        if not self._worker:
            self._worker = HostWorker(self, kv_caches)
        return self._worker

    TieringOffloadingSpec.get_worker = get_worker


class HostWorker:
    """OffloadingWorker: each transfer is over when it was submitted."""

    def __init__(self, spec: Any, kv_caches: Any) -> None:
        from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion

        self._chunk = spec.blocks_per_chunk
        self._region = SharedOffloadRegion(
            engine_id=spec.config.engine_id,
            num_chunks=spec.num_chunks,
            rank=spec.config.parallel.rank,
            kv_bytes_per_chunk=spec.kv_bytes_per_chunk,
            cpu_page_size=spec.cpu_page_size_per_worker,
        )
        self._refs = kv_caches.group_data_refs
        self._pages = [each.page_size_bytes for each in kv_caches.tensors]
        self._device = [each.tensor for each in kv_caches.tensors]
        self._host = [
            self._region.create_next_worker_view(page * self._chunk) for page in self._pages
        ]
        self._finished: list[Any] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._move(job_id, src_spec, dst_spec, to_host=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._move(job_id, dst_spec, src_spec, to_host=False)

    def _move(self, job_id: int, device: Any, host: Any, *, to_host: bool) -> bool:
        from vllm.v1.kv_offload.base import TransferResult

        began, moved, block_at, chunk_at = time.monotonic(), 0, 0, 0
        for group, (blocks, first) in enumerate(
            zip(device.group_sizes, device.block_indices, strict=True)
        ):
            skipped = first % self._chunk if blocks else 0
            for number in range(blocks):
                block = int(device.block_ids[block_at + number])
                chunk, part = divmod(skipped + number, self._chunk)
                moved += self._copy(
                    group, block, int(host.block_ids[chunk_at + chunk]), part, to_host=to_host
                )
            block_at += blocks
            chunk_at += -(-(skipped + blocks) // self._chunk) if blocks else 0
        assert block_at == len(device.block_ids)
        assert chunk_at == len(host.block_ids)
        took = time.monotonic() - began
        self._finished.append(TransferResult(job_id, True, moved, took))
        return True

    def _copy(self, group: int, block: int, chunk: int, part: int, *, to_host: bool) -> int:
        for ref in self._refs[group]:
            tensor, nbytes = ref.tensor_idx, ref.page_size_bytes
            begin = part * self._pages[tensor]
            here = self._device[tensor][block, :nbytes]
            there = self._host[tensor][chunk, begin : begin + nbytes]
            (there if to_host else here).copy_(here if to_host else there)
        return sum(ref.page_size_bytes for ref in self._refs[group])

    def get_finished(self) -> list[Any]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Nothing is under way."""

    def shutdown(self) -> None:
        self._device.clear()
        self._host.clear()
        self._region.cleanup()
