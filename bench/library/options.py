"""What a child is told on its command line: which context, at which scale."""

from __future__ import annotations

import argparse

from bench.library.scenarios import SCENARIOS, Scenario, Shape, by_name, scaled


def parser(about: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--scenario", required=True, choices=[each.name for each in SCENARIOS])
    made.add_argument("--scale", type=int, required=True)
    return made


def context_of(options: argparse.Namespace) -> tuple[Scenario, Shape]:
    return scaled(by_name(options.scenario), options.scale)
