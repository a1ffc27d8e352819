"""Figures as text, and the page they are written into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.entries import Against, AtMost, Entry, Row, Unit, shown
from bench.headline import HEADLINES, headlines
from bench.machine import facts
from bench.parts import PARTS
from bench.report import BEGIN, END, ORDER, PAGE, README, NoMarks, figures, table, write_page

SLOW = Entry(
    Row("load_4mib", 6.0, Unit.GIB_PER_S, {"memcpy": 8.0}, {"mooncake": "libx.so is not here"}),
    (Against("memcpy", 0.9),),
    "python -m bench load",
    "One memmove.",
    (Row("load_4mib/16KiB-pages", 3.0, Unit.GIB_PER_S, {"memcpy": 8.0}),),
)
QUICK = Entry(
    Row("readopt_1m_s", 1.5, Unit.SECONDS), (AtMost(2.0),), "python -m bench memory", "A restart."
)


def result() -> dict[str, Any]:
    entries = {e.row.name: e.as_json("2026-01-02") for e in (QUICK, SLOW)}
    entries["load_4mib"] |= {"commit": "abc", "load_average": [1.5, 1.0, 1.0]}
    return {**facts(), "entries": entries, "seconds": {"load": 12.4}}


def test_values_are_shown_in_units_a_person_reads() -> None:
    assert shown(14.123, "GiB/s") == "14.12 GiB/s"
    assert shown(83.14e-6, "s") == "83.1 us"
    assert shown(0.00124, "s") == "1.24 ms"
    assert shown(2.5, "s") == "2.50 s"
    assert shown(12_345.6, "bytes") == "12,346 bytes"
    assert shown(0.2178, "hit rate") == "0.2178 hit rate"


def test_a_table_has_a_line_a_figure_and_one_for_each_further_size() -> None:
    lines = table([SLOW.as_json("")]).splitlines()

    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == [
        "load_4mib",
        "6.00 GiB/s",
        "memcpy 8.00 GiB/s (0.75), mooncake not measured",
        ">= 0.9 of memcpy",
        "**no**",
    ]
    assert lines[3].startswith("| load_4mib/16KiB-pages | 3.00 GiB/s | memcpy 8.00 GiB/s (0.38)")
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("value", "said"), [(83e-6, "<= 1000 us"), (0.002, "<= 1 ms"), (2.0, "<= 0.001 s")]
)
def test_a_target_is_in_the_unit_of_its_figure(value: float, said: str) -> None:
    assert AtMost(0.001).said(Row("lookup_128_p99", value, Unit.SECONDS)) == said


def test_sizes_that_say_nothing_are_not_judged() -> None:
    rows = table([SLOW.as_json(""), QUICK.as_json("")], judged=False).splitlines()[2:]
    assert {row.split("|")[-2].strip() for row in rows} == {"-", ""}


def test_the_page_says_what_falls_short_and_what_is_missing_and_how_it_was_measured() -> None:
    text = figures(result())

    assert "* `load_4mib`: 6.00 GiB/s, target >= 0.9 of memcpy; 0.75 of memcpy" in text
    assert "`readopt_1m_s`: 1.50 s, target" not in text
    assert "* mooncake in `load_4mib`: libx.so is not here" in text
    assert "* `load_4mib` (`python -m bench load`): One memmove." in text
    assert "load 12 s" in text
    assert "* `python -m bench load`: 2026-01-02, commit abc, load 1.5\n" in text
    assert "* `python -m bench memory`: 2026-01-02\n" in text
    assert text.index("load_4mib") < text.index("readopt_1m_s")


def test_only_what_is_between_the_marks_is_written(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    readme = tmp_path / "README.md"
    for file in (page, readme):
        file.write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")

    write_page(result(), page, readme)
    once = page.read_text(), readme.read_text()
    write_page(result(), page, readme)

    for text in once:
        assert text.startswith(f"# Before\n\n{BEGIN}\n")
        assert text.endswith(f"{END}\n\nAfter.\n")
        assert "old" not in text
    assert (page.read_text(), readme.read_text()) == once


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page, other = tmp_path / "performance.md", tmp_path / "README.md"
    page.write_text("# Nothing to fill\n")
    other.write_text(f"{BEGIN}\nold\n{END}\n")

    for first, second in ((page, other), (other, page)):
        with pytest.raises(NoMarks):
            write_page(result(), first, second)

    assert page.read_text() == "# Nothing to fill\n"
    assert "old" in other.read_text()


def test_the_readme_has_what_was_measured_beside_others_by_names_people_know() -> None:
    entry = Entry(
        Row("load_16mib", 6.0, Unit.GIB_PER_S, {"memcpy": 8.0, "mooncake": 3.0, "redis": 1.0}),
        (Against("memcpy", 0.9),),
        "python -m bench load",
        "One memmove.",
    )
    lines = headlines({"entries": {"load_16mib": entry.as_json("")}}).splitlines()
    assert lines[2:] == [
        "| 16 MiB of blocks into the engine | 6.00 GiB/s "
        "| Mooncake 3.00 GiB/s, one thread's memcpy 8.00 GiB/s |"
    ]


def test_the_readme_has_the_figures_of_the_page() -> None:
    _, _, shown_here = README.read_text().partition(BEGIN)
    shown_here, _, _ = shown_here.partition(END)
    page = PAGE.read_text()
    for headline in HEADLINES:
        (row,) = (line for line in shown_here.splitlines() if f"| {headline.words} |" in line)
        (entry,) = (line for line in page.splitlines() if line.startswith(f"| {headline.figure} "))
        assert row.split("|")[2].strip() == entry.split("|")[2].strip()


def test_the_page_names_every_part_and_figure_and_has_a_place_for_them() -> None:
    text = PAGE.read_text()

    assert text.count(BEGIN) == text.count(END) == 1
    head = text.partition(BEGIN)[0]
    assert {part for part in PARTS if f"`python -m bench {part}`" not in head} == set()
    assert {name for name in ORDER if f"`{name}`" not in head} == set()
