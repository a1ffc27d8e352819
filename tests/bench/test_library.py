"""The part that measures contexts that do not fit, with sizes that say nothing about speed."""

import dataclasses

import pytest

pytest.importorskip("torch", reason="torch is not installed here")

from bench.library.part import PLAIN, entry, libraries
from bench.library.scenarios import DEVICE_PART, LARGE, SCENARIOS, SMALL
from bench.sizes import QUICK


def test_a_context_four_times_its_budget_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.library.part.SCENARIOS", SCENARIOS[:1])
    (found,) = libraries(dataclasses.replace(QUICK, library_scale=16))
    rows = {row.name.partition("/")[2]: row.value for row in found.rows}
    assert found.row.name == "library_32k_x4"
    assert found.row.value > 0.0
    assert PLAIN in found.row.peers
    assert rows["needed-without-onggi"] == DEVICE_PART * rows["device-budget"]
    assert rows["device-used"] <= rows["device-budget"]
    assert rows["host"] > rows["device-budget"]
    assert rows["brought-a-token"] > 0.0
    assert 0.0 <= rows["transfer-hidden"] <= 1.0


def test_what_does_not_fit_on_the_device_has_no_peer() -> None:
    names = ("context", "budget", "device", "host", "disk", "brought")
    seen = {f"{name}_mib": 1.0 for name in names}
    seen |= {"token_s": 1.0, "plain_s": None, "prefill_s": 1.0, "hidden": 0.5, "device": "cuda"}
    found = entry(SCENARIOS[0], 1, seen)
    assert found.row.absent == {PLAIN: "it does not fit on this device"}
    assert "at full size" in found.how


def test_scenarios_are_as_large_as_their_names_say() -> None:
    sizes = [scenario.context_bytes(LARGE) >> 30 for scenario in SCENARIOS]
    assert sizes == [16, 32, 32, 64]
    assert SCENARIOS[0].scaled(4).context_bytes(SMALL) == 128 << 20
