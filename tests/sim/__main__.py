"""Replays a seed: `python -m tests.sim --seed 7 --steps 2000 --config usual`.

With --seeds N it runs N seeds from --seed on and stops at the first that fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.sim.config import ANY, CONFIGS
from tests.sim.runner import run, shrink


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--config", default="usual", choices=[*CONFIGS, ANY])
    parser.add_argument("--shrink", action="store_true", help="search the shortest run that fails")
    asked = parser.parse_args()
    begun_s, steps = time.perf_counter(), 0
    happened: Counter[str] = Counter()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        ended = run(seed, asked.config, asked.steps)
        steps += ended.steps
        happened += ended.happened
        if ended.checker:
            print((shrink(ended) if asked.shrink else ended).report())
            return 1
    took_s = time.perf_counter() - begun_s
    print(f"{asked.seeds} seeds, {steps} steps, {took_s:.1f} s: nothing broke")
    for what, count in sorted(happened.items()):
        print(f"{count:>8} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
