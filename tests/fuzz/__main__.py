"""One target under atheris, which is led by the coverage of the code it fuzzes:

    python -m tests.fuzz config_file -max_total_time=60

Arguments behind the target are libFuzzer's. An input that breaks the target is written to the
current folder, and its bytes belong into found.py once the reader is mended.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["onggi_core", "onggi_sidecar"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    name, *options = sys.argv[1:]
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="onggi-corpus-") as corpus:
        for number, seed in enumerate(target.seeds):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, corpus], target.one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
