"""Tries a context without Onggi: all keys and values on a device of some size, and one token.

    python -m bench.library.stock --scenario 32k_x4 --scale 32 --bytes 200000000

Prints one line of JSON: whether it fits, and how far it came. The device is made no larger than it
is told: on a GPU by torch's share of its memory, without one by the kernel's limit on this
process's data. Keys and values are tensors of just their size, filled in place, so nobody could do
with less: a cache that grows needs room for its old tensor beside its new one.
"""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any, Final

import torch

from bench.library.options import context_of, parser
from bench.library.scenarios import MIB, Scenario, Shape

COMPUTING: Final = 96 * MIB
"""More than the budget, for all else that computing one token needs."""


def main() -> None:
    parsing = parser("one context without Onggi")
    parsing.add_argument("--bytes", type=int, required=True)
    options = parsing.parse_args()
    scenario, shape = context_of(options)
    print(json.dumps(tried(scenario, shape, options.bytes)), flush=True)


def tried(scenario: Scenario, shape: Shape, budget: int) -> dict[str, Any]:
    """Changes what this process may use from now on."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kept: list[tuple[Any, Any]] = []
    _token(shape, [_layer(scenario, shape, device, 128)])  # what the first use loads is no part
    _limit(device, budget + COMPUTING)
    said = ""
    try:
        for _ in range(shape.layers):
            kept.append(_layer(scenario, shape, device, scenario.tokens))
        _token(shape, kept)
    except RuntimeError as full:  # torch's word for no memory, on both kinds of device
        said = str(full).splitlines()[0]
    held = sum(part.numel() * part.element_size() for pair in kept for part in pair)
    return {"fits": not said, "layers": len(kept), "held_mib": held / MIB, "said": said}


def _layer(scenario: Scenario, shape: Shape, device: str, tokens: int) -> tuple[Any, Any]:
    size = (scenario.batch, shape.kv_heads, tokens, shape.head_size)
    kind = {"dtype": getattr(torch, shape.dtype), "device": device}
    return torch.full(size, 0.5, **kind), torch.full(size, 0.5, **kind)


def _token(shape: Shape, kept: list[tuple[Any, Any]]) -> None:
    """Torch's own attention of one token to all of it."""
    for keys, values in kept:
        # the heads of one group, as queries of their key head: so nothing has to be repeated
        queries = keys[:, :, :1].expand(-1, -1, shape.heads // shape.kv_heads, -1)
        torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
    if kept and kept[0][0].device.type == "cuda":
        torch.cuda.synchronize()


def _limit(device: str, more: int) -> None:
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, more / total))
        return
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line
    ]
    now = int(line.split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (now + more, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
