"""Webhook and controller as a user without a name, as OpenShift gives one, and a read-only root."""

import re
from pathlib import Path
from typing import Any

import pytest
from nameless import nameless, why_not

pytestmark = pytest.mark.cluster

DOCKERFILE = Path(__file__).resolve().parents[2] / "operator/Dockerfile"


def image_environment() -> dict[str, str]:
    """Without PATH, which leads to the image's interpreter."""
    last = DOCKERFILE.read_text().rpartition("FROM ")[2].replace("\\\n", " ")
    (line,) = re.findall(r"^ENV (.*)$", last, re.MULTILINE)
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, _, value in pairs if name != "PATH"}


@pytest.mark.parametrize("part", ["webhook", "controller"])
def test_a_user_without_a_name_will_do(installed: Any, part: str, tmp_path: Path) -> None:
    """Below a root that nobody can write; what the chart mounts at /tmp is all it has."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    assert image_environment()["LOGNAME"] == "onggi"
    with installed.process(part) as running:
        running.stop()
        running.prefix = nameless(tmp_path)
        running.overrides |= {**image_environment(), "TMPDIR": str(tmp_path)}
        running.start()
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()
        running.start()
