"""docs/migration.md names settings of others: each is looked up in what they ship."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
PACKAGES = "lib/python3.11/site-packages"
SHIPPED = (
    CACHE / "onggi-bench" / "lmcache" / PACKAGES / "lmcache",
    CACHE / "onggi-bench" / "mooncake" / PACKAGES / "mooncake",
    CACHE / "onggi-e2e" / "engine" / PACKAGES / "vllm",
    CACHE / "onggi-e2e" / "sglang" / PACKAGES / "sglang",
)
"""`make bench` installs the first two, `make soak` the others."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
FILE_BYTES_MAX = 16 << 20
"""Larger ones are libraries, and no list of settings."""


def named() -> Iterator[str]:
    """Of the left column: options, variables, keys, metrics and paths, without what is set."""
    for line in PAGE.read_text().splitlines():
        if not line.startswith("| ") or line.startswith("| you had"):
            continue
        for quoted in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
            word = re.match(r"[\w./:-]*\w", quoted)
            if word and re.search(r"[_/.:-]|[A-Z]{3}", word[0]):
                yield word[0]


@pytest.fixture(scope="module")
def shipped() -> bytes:
    missing = [str(folder) for folder in SHIPPED if not folder.is_dir()]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    files = (file for folder in SHIPPED for file in folder.rglob("*") if file.is_file())
    wanted = (f for f in files if f.suffix == ".py" or f.name == "mooncake_master")
    return b"\0".join(f.read_bytes() for f in wanted if f.stat().st_size <= FILE_BYTES_MAX)


def test_the_page_names_what_it_is_asked_for() -> None:
    assert {"max_local_cpu_size", "--l1-size-gb", "MOONCAKE_MASTER", "lmcache:num_hit_tokens"} <= {
        *named()
    }


def test_each_name_is_one_of_theirs(shipped: bytes) -> None:
    def there(name: str) -> bool:
        as_field = name.lstrip("-").replace("-", "_")
        return name.encode() in shipped or as_field.encode() in shipped

    assert [name for name in dict.fromkeys(named()) if not there(name)] == []
