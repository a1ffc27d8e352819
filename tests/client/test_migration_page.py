"""docs/migration.md names settings of others: each is looked up in what they ship, and each setting
that they have is on the page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
PACKAGES = "lib/python3.11/site-packages"
CONNECTORS = "distributed/kv_transfer/kv_connector/v1"
SHIPPED = (
    CACHE / "onggi-bench" / "lmcache" / PACKAGES / "lmcache",
    CACHE / "onggi-bench" / "mooncake" / PACKAGES / "mooncake",
    CACHE / "onggi-e2e" / "engine" / PACKAGES / "vllm",
    CACHE / "onggi-e2e" / "sglang" / PACKAGES / "sglang",
)
"""`make bench` installs the first two, `make soak` the others."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "migration.md"
LMCACHE, VLLM, SGLANG = SHIPPED[0], SHIPPED[2], SHIPPED[3]
OPTION = r'add_argument\(\s*"(--[a-z][\w-]+)"'
SETTINGS = (
    (LMCACHE, "v1/config.py", r'^    "(\w+)": \{'),
    (LMCACHE, "v1/distributed/config.py", OPTION),
    (LMCACHE, "v1/multiprocess/config.py", OPTION),
    (LMCACHE, "v1/mp_observability/config.py", OPTION),
    (LMCACHE, "integration/vllm/*.py", r"\b(lmcache\.mp\.[a-z]\w*)"),
    (VLLM, "distributed/mooncake_store.py", r'config\.get\("(\w+)"'),
    (VLLM, f"{CONNECTORS}/mooncake/**/*.py", r'extra_config\.get\(\s*"(\w+)"'),
    (VLLM, "envs.py", r'^    "(\w*MOONCAKE\w*)":'),
    (SGLANG, "srt/mem_cache/storage/mooncake_store/*.py", r"\b(MOONCAKE_[A-Z_]+)"),
)
"""Where each of them says what its settings are."""
FILE_BYTES_MAX = 16 << 20
"""Larger ones are libraries, and no list of settings."""


def written() -> Iterator[str]:
    """What the left column has in quotes, without what is set; `blend_*` for all that begin so."""
    for line in PAGE.read_text().splitlines():
        if not line.startswith("| ") or line.startswith("| you had"):
            continue
        for quoted in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
            if word := re.match(r"[\w./:-]*[\w*]", quoted):
                yield word[0]


def named() -> Iterator[str]:
    """Of these options, variables, keys, metrics and paths."""
    for word in written():
        if re.search(r"[_/.:-]|[A-Z]{3}", word):
            yield word.rstrip("*")


@pytest.fixture(scope="module")
def installed() -> None:
    missing = [str(folder) for folder in SHIPPED if not folder.is_dir()]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")


@pytest.fixture(scope="module")
def shipped(installed: None) -> bytes:
    files = (file for folder in SHIPPED for file in folder.rglob("*") if file.is_file())
    wanted = (f for f in files if f.suffix == ".py" or f.name == "mooncake_master")
    return b"\0".join(f.read_bytes() for f in wanted if f.stat().st_size <= FILE_BYTES_MAX)


OFTEN_SET = {
    *("remote_serde", "enable_p2p", "enable_controller", "blocking_timeout_secs", "numa_mode"),
    *("internal_api_server_enabled", "enable_blending", "gds_path"),
    *("enable_pd", "chunk_size", "local_cpu", "local_disk", "max_local_disk_size", "remote_url"),
    *("save_decode_cache", "use_layerwise", "cache_policy", "extra_config", "priority_limit"),
}
"""Of LMCache's guide to its configuration: in full on the page, for whoever looks for the name."""


def test_what_is_often_set_is_found_by_its_whole_name() -> None:
    assert set(written()) >= OFTEN_SET


def test_the_page_names_what_it_is_asked_for() -> None:
    assert {"max_local_cpu_size", "--l1-size-gb", "MOONCAKE_MASTER", "lmcache:num_hit_tokens"} <= {
        *named()
    }


def test_each_name_is_one_of_theirs(shipped: bytes) -> None:
    def there(name: str) -> bool:
        as_field = name.lstrip("-").replace("-", "_")
        return name.encode() in shipped or as_field.encode() in shipped

    assert [name for name in dict.fromkeys(named()) if not there(name)] == []


@pytest.mark.parametrize(("package", "files", "says"), SETTINGS)
def test_each_setting_of_theirs_is_on_the_page(
    installed: None, package: Path, files: str, says: str
) -> None:
    text = "\n".join(file.read_text() for file in sorted(package.glob(files)))
    theirs = set(re.findall(says, text, re.MULTILINE)) - {"--my-arg"}  # of a docstring
    whole = {word for word in written() if not word.endswith("*")}
    begins = tuple(word.rstrip("*") for word in written() if word.endswith("*"))
    assert len(theirs) > 5
    assert {one for one in theirs - whole if not one.startswith(begins)} == set()
