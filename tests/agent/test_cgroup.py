"""The container's memory limit, read from trees as the kernel writes them."""

from pathlib import Path

import pytest

from onggi_sidecar.cgroup import memory_limit_bytes

GIB = 1024**3


V1_NONE = "9223372036854771712\n"


def write(tree: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return tree


def limit_of(tree: Path, groups: str = "0::/\n") -> int | None:
    (tree / "groups").write_text(groups)
    return memory_limit_bytes(tree, tree / "groups")


V1_CACHE = {"memory/memory.usage_in_bytes": str(4 * GIB), "memory/memory.stat": "cache 3758096384"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "4294967296\n"}, 4 * GIB),
        ({"memory/memory.limit_in_bytes": "4294967296\n"}, 4 * GIB),
        ({"memory.max": "max\n"}, None),
        ({"memory/memory.limit_in_bytes": V1_NONE}, None),
        ({"memory.max": "4294967296\n", "memory.current": str(4 * GIB)}, 4 * GIB),
        ({"memory/memory.limit_in_bytes": "4294967296\n", **V1_CACHE}, 4 * GIB),
        ({"memory.max": ""}, None),
    ],
)
def test_the_limit_is_the_containers_and_never_guessed(
    tmp_path: Path, files: dict[str, str], limit: int | None
) -> None:
    """Page cache counted as used left next to nothing: kekzl/imp#2070."""
    assert limit_of(write(tmp_path, files)) == limit


def test_the_tightest_of_all_groups_above_counts(tmp_path: Path) -> None:
    """Outside a container the process's own group lies deep in the tree."""
    write(
        tmp_path,
        {
            "memory/memory.limit_in_bytes": V1_NONE,
            "memory/pods/memory.limit_in_bytes": "2147483648\n",
            "memory/pods/a/memory.limit_in_bytes": "4294967296\n",
            "memory/other/memory.limit_in_bytes": "1\n",
        },
    )
    assert limit_of(tmp_path, "5:devices:/x\n4:cpu,memory:/pods/a\n0::/\n") == 2 * GIB
    assert (
        limit_of(
            write(tmp_path / "v2", {"a/b/memory.max": "1024", "a/memory.max": "max"}), "0::/a/b\n"
        )
        == 1024
    )


def test_a_group_of_the_nodes_that_is_not_seen_from_inside_leaves_the_root(tmp_path: Path) -> None:
    write(tmp_path, {"memory/memory.limit_in_bytes": "1073741824\n"})
    assert limit_of(tmp_path, "4:memory:/kubepods/pod1/c1\n") == GIB


def test_without_a_cgroup_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path, tmp_path / "none") is None
