"""The part that measures contexts that do not fit, with sizes that say nothing about speed."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed here")

from bench.library.page import side_by_side
from bench.library.part import COPY, DISK, PLAIN, STOCK, child, entry, libraries
from bench.library.scenarios import DEVICE_PART, LARGE, SCALE, SCENARIOS, SMALL, scaled
from bench.sizes import QUICK


def test_a_context_four_times_its_budget_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.library.part.SCENARIOS", SCENARIOS[3:])
    (found,) = libraries(QUICK)
    rows = {row.name.partition("/")[2]: row.value for row in found.rows}
    assert found.row.name == "library_512k_x1_disk"
    assert found.row.value > 0.0
    assert found.row.peers.keys() == {PLAIN, COPY, DISK}
    assert min(found.row.peers.values()) > 0.0
    assert rows["needed-without-onggi"] == DEVICE_PART * rows["device-budget"]
    assert rows["device-used"] <= rows["device-budget"] < rows["disk"]
    assert rows["brought-a-token"] > 0.0
    assert rows["read-from-disk-a-token"] > 0.0
    assert 0.0 <= rows["transfer-hidden"] <= 1.0
    assert 0.0 < rows["asked-for-ahead"] <= 64.0


def test_without_onggi_the_budget_is_too_small_and_the_whole_is_enough() -> None:
    scenario, shape = scaled(SCENARIOS[0], SCALE)
    whole = scenario.context_bytes(shape)
    within = child("stock", SCENARIOS[0], SCALE, whole // DEVICE_PART)
    assert (within["fits"], within["layers"] < shape.layers) == (False, True)
    assert within["said"]
    control = child("stock", SCENARIOS[0], SCALE, whole)
    assert (control["fits"], control["layers"], control["said"]) == (True, shape.layers, "")


def seen(**other: Any) -> dict[str, Any]:
    sizes = ("context", "budget", "device", "host", "disk", "brought", "read", "queue")
    found: dict[str, Any] = {f"{name}_mib": 1.0 for name in sizes}
    found |= {"token_s": 1.0, "plain_s": None, "copy_s": 0.5, "disk_s": None, "prefill_s": 1.0}
    found |= {"hidden": 0.5, "device": "cuda", "context_mib": 4.0}
    found["stock_within"] = {"fits": False, "layers": 1, "held_mib": 1.0, "said": "no memory"}
    found["stock_whole"] = {"fits": True, "layers": 4, "held_mib": 4.0, "said": ""}
    return found | other


def test_what_does_not_fit_on_the_device_has_no_peer() -> None:
    found = entry(SCENARIOS[0], 1, seen())
    assert found.row.absent == {
        STOCK: "it does not fit: tried with 1 MiB, memory ended with 1 layers, 1 of 4 MiB; with all"
        " of it the same run ends well",
        PLAIN: "it does not fit on this device",
    }
    assert found.row.peers == {COPY: 0.5}
    assert "at full size" in found.how
    fits = {"fits": True, "layers": 4, "held_mib": 4.0, "said": ""}
    assert entry(SCENARIOS[0], 1, seen(stock_within=fits)).row.absent[STOCK].startswith("it fits: ")


def test_the_page_has_them_side_by_side() -> None:
    entries = [
        entry(SCENARIOS[0], SCALE, seen(plain_s=0.25)).as_json("2026-01-02"),
        entry(SCENARIOS[3], SCALE, seen(disk_s=0.75)).as_json("2026-01-02"),
    ]
    assert side_by_side([]) == ""
    lines = side_by_side(entries).splitlines()
    assert lines[2:] == [
        "| 32K tokens, batch 4 | it does not fit | 1.00 s | 250.00 ms | 500.00 ms | 1, 1, 1 MiB |"
        " 1 MiB | 50% |",
        "| 512K tokens, batch 1 | it does not fit | 1.00 s | it does not fit on this device |"
        " 500.00 ms / 750.00 ms | 1, 1, 1 MiB | 1 MiB | 50% |",
    ]


def test_one_factor_scales_all_of_them() -> None:
    full = [scenario.context_bytes(LARGE) >> 30 for scenario in SCENARIOS]
    assert full == [16, 32, 32, 64]
    for scenario in SCENARIOS:
        assert scaled(scenario, 1) == (scenario, LARGE)
        assert scaled(scenario, SCALE) == (scenario, SMALL)
        some, shape = scaled(scenario, 4 * SCALE)
        assert some.tokens * 4 == scenario.tokens
        assert some.context_bytes(shape) * 4 * SCALE == scenario.context_bytes(LARGE)
    with pytest.raises(ValueError, match="scale is 48; use 1 for the full size, or a multiple of"):
        scaled(SCENARIOS[0], 48)
