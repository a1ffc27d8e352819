"""docs/api.md tells the schema and the code as they are."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_page_is_current() -> None:
    """To mend: python crds/reference.py"""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "crds/reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (ROOT / "docs/api.md").read_text()


def test_every_reason_and_type_has_a_sentence() -> None:
    from onggi_operator.inject.outcome import SkipReason
    from onggi_operator.plan.conditions import Reason, Type

    text = (ROOT / "docs/api.md").read_text()
    for member in (*SkipReason, *Reason, *Type):
        assert f"| `{member.value}` | " in text
