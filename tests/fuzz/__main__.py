"""One target under atheris, which is led by the coverage of the code it fuzzes:

    python -m tests.fuzz config_file -max_total_time=60

Arguments behind the target are libFuzzer's. An input that breaks the target is written to the
current folder, and its bytes belong into found.py once the reader is mended.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

try:
    import atheris
except ModuleNotFoundError:
    sys.exit(
        "atheris is not installed: pip install -e '.[fuzz]' with CPython 3.11 to 3.13 "
        "(without it, `pytest tests/fuzz` runs the same targets on hypothesis)"
    )

with atheris.instrument_imports(include=["onggi_core", "onggi_sidecar"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    name, *options = sys.argv[1:] or [""]
    if name not in TARGETS:
        sys.exit(f"target is {name!r}; name one of {', '.join(TARGETS)}")
    target = TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="onggi-corpus-") as corpus:
        for number, seed in enumerate(target.seeds):
            Path(corpus, str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, corpus], target.one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
