"""The alerts by themselves: what promtool says of them, and what each must tell a person."""

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from scene import CHART

RULES = CHART / "files/alerts.yaml"
CASES = Path(__file__).parent / "alerts.yaml"
NO_WAIT = {"OnggiWebhookFaults", "OnggiDiskFaults", "OnggiCorruptBlocks", "OnggiClientFaults"}
"""They count faults that no rolling update causes, over a window."""


def rules() -> dict[str, Any]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def test_promtool_finds_no_fault(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", "--lint-fatal", str(RULES)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def test_each_alert_fires_when_it_should_and_not_before(promtool: str, tmp_path: Path) -> None:
    """Texts are left out here: promtool would have each expected alert repeat them."""
    bare = yaml.safe_load(RULES.read_text())
    for group in bare["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(bare))
    cases = {"rule_files": ["rules.yaml"], **yaml.safe_load(CASES.read_text())}
    for case in cases["tests"]:
        case.pop("name")  # known to promtool from 2.53 on
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    done = subprocess.run(
        [promtool, "test", "rules", str(tmp_path / "cases.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_for_firing_and_one_for_not() -> None:
    firing, quiet = set(), set()
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for asked in case["alert_rule_test"]:
            (firing if asked["exp_alerts"] else quiet).add(asked["alertname"])
    assert firing == rules().keys()
    assert quiet == rules().keys()


@pytest.mark.parametrize("name", sorted(rules()))
def test_an_alert_tells_what_why_and_where_to_look(name: str) -> None:
    rule = rules()[name]
    assert rule["annotations"].keys() == {"summary", "description", "command"}
    assert rule["annotations"]["command"].startswith("kubectl ")
    assert rule["labels"]["severity"] in ("info", "warning")
    assert ("for" in rule) != (name in NO_WAIT)


def test_the_chart_renders_the_same_rules(documents: dict[tuple[str, str], Any]) -> None:
    rendered = copy.deepcopy(documents["PrometheusRule", "onggi"]["spec"])
    assert rendered == yaml.safe_load(RULES.read_text())
