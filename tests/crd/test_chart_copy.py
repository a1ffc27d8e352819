"""The chart can only read files of its own folder, so it carries a copy of each schema."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_chart_carries_the_same_schemas() -> None:
    """To mend: cp crds/v1alpha1/*.yaml charts/onggi/files/crds/"""
    sources = {path.name: path.read_text() for path in (ROOT / "crds/v1alpha1").glob("*.yaml")}
    copies = {path.name: path.read_text() for path in (ROOT / "charts/onggi/files/crds").iterdir()}
    assert sources
    assert copies == sources
