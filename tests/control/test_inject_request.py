"""What annotations ask for, and how a wrong one is told."""

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (
            {"onggi.dev/poool": "main"},
            "annotation onggi.dev/poool does not exist; did you mean onggi.dev/pool?",
        ),
        (
            {"onggi.dev/inject": "ture"},
            'annotation onggi.dev/inject is "ture"; did you mean true?'
            ' (it takes "true" or "false")',
        ),
        (
            {"onggi.dev/inject": "False"},
            'annotation onggi.dev/inject is "False"; did you mean false?'
            ' (it takes "true" or "false")',
        ),
        (
            {"onggi.dev/pool": ""},
            "annotation onggi.dev/pool is missing or empty; it names the KVCachePool",
        ),
        (
            {"onggi.dev/memory": "16GB"},
            "annotation onggi.dev/memory: '16GB' has the unit 'GB', which is 2**30 bytes to"
            " some and 10**9 to others; write 16Gi or 16G",
        ),
        (
            {"onggi.dev/memory": "1Mi"},
            'annotation onggi.dev/memory is "1Mi"; it must be at least 64Mi',
        ),
        (
            {"onggi.dev/disk": "1"},
            'annotation onggi.dev/disk is "1"; it must be at least 64Mi, or 0 for no disk',
        ),
        (
            {"onggi.dev/container": "A B"},
            'annotation onggi.dev/container is "A B", which is no container name',
        ),
    ],
)
def test_a_wrong_annotation_is_told_with_what_would_be_right(
    kit: Any, annotations: dict[str, str], message: str
) -> None:
    assert kit.skipped(kit.pod(annotations=annotations)) == ("UnknownAnnotation", message)


def test_a_misspelt_pool_alone_is_told(kit: Any) -> None:
    body = kit.pod()
    body["metadata"]["annotations"] = {"onggi.dev/poool": "main"}
    assert "did you mean onggi.dev/pool?" in kit.skipped(body)[1]


def test_every_documented_key_with_a_valid_value_is_silent(kit: Any) -> None:
    annotations = {
        "onggi.dev/pool": "main",
        "onggi.dev/inject": "true",
        "onggi.dev/container": "engine",
        "onggi.dev/memory": "512Mi",
        "onggi.dev/disk": "1Gi",
    }
    outcome = kit.plan(kit.pod(annotations=annotations), disk=kit.EMPTY_DIR)
    assert outcome.warnings == ()
    assert "memory 512Mi, disk 1Gi (EmptyDir)" in outcome.status


@pytest.mark.parametrize(
    "annotations", [{"onggi.dev/inject": "false"}, {"onggi.dev/inject": "false", "onggi.dev/x": ""}]
)
def test_opting_out_wins_over_everything(kit: Any, annotations: dict[str, str]) -> None:
    assert kit.plan(kit.pod(annotations=annotations)) == kit.Untouched("opted out")


def test_a_pod_that_says_nothing_is_not_touched(kit: Any) -> None:
    body = kit.pod()
    for annotations in ({}, {"else": "x"}, None):
        body["metadata"]["annotations"] = annotations
        assert kit.plan(body) == kit.Untouched("asks for nothing")


@pytest.mark.parametrize(
    ("key", "size", "message"),
    [
        (
            "onggi.dev/memory",
            "2Gi",
            "annotation onggi.dev/memory asks for 2Gi, and pool main gives a pod 1Gi",
        ),
        (
            "onggi.dev/disk",
            "1Gi",
            "annotation onggi.dev/disk asks for 1Gi, and pool main has no disk tier",
        ),
    ],
)
def test_more_than_the_pool_gives_is_refused_with_both_numbers(
    kit: Any, key: str, size: str, message: str
) -> None:
    assert kit.skipped(kit.pod(annotations={key: size})) == ("SizeOverPool", message)


def test_a_pod_may_go_without_the_pools_disk(kit: Any) -> None:
    after = kit.inject(kit.pod(annotations={"onggi.dev/disk": "0"}), disk=kit.HOST_PATH)
    assert kit.env_of(kit.agent(after))["ONGGI_AGENT_DISK"] == "0"
    assert "onggi-disk" not in {volume["name"] for volume in after["spec"]["volumes"]}
