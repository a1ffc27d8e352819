"""Webhook and controller as a user that has no name, as OpenShift gives one."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

DOCKERFILE = Path(__file__).resolve().parents[2] / "operator/Dockerfile"
NAMELESS = ["unshare", "--user", "--map-user=1000640000", "--map-group=1000640000"]


def image_environment() -> dict[str, str]:
    """Without PATH, which leads to the image's interpreter."""
    last = DOCKERFILE.read_text().rpartition("FROM ")[2].replace("\\\n", " ")
    (line,) = re.findall(r"^ENV (.*)$", last, re.MULTILINE)
    pairs = (word.partition("=") for word in line.split())
    return {name: value for name, _, value in pairs if name != "PATH"}


@pytest.mark.parametrize("part", ["webhook", "controller"])
def test_a_user_without_a_name_will_do(installed: Any, part: str) -> None:
    if shutil.which("unshare") is None or subprocess.run([*NAMELESS, "true"]).returncode:
        pytest.skip("this machine lets nobody make a user namespace")
    who = subprocess.run([*NAMELESS, "id", "-un"], capture_output=True, text=True)
    assert who.returncode != 0
    assert image_environment()["LOGNAME"] == "onggi"
    with installed.process(part) as running:
        running.stop()
        running.prefix = NAMELESS
        running.overrides |= image_environment()
        running.start()
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()
        running.start()
