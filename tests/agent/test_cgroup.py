"""The container's memory limit, read from trees as the kernel writes them."""

from pathlib import Path

import pytest

from onggi_sidecar.cgroup import memory_limit_bytes

GIB = 1024**3


@pytest.mark.parametrize(
    ("file", "text", "limit"),
    [
        ("memory.max", "4294967296\n", 4 * GIB),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "4294967296\n", 4 * GIB),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("memory.max", "", None),
    ],
)
def test_the_limit_is_the_containers_and_never_guessed(
    tmp_path: Path, file: str, text: str, limit: int | None
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert memory_limit_bytes(tmp_path) == limit


def test_without_a_cgroup_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path) is None
