"""Makes the tables of docs/api.md from the schema and the code: `python crds/reference.py`.

Between `<!-- name -->` and `<!-- /name -->` the page belongs to this program, the rest to people.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/api.md"
SCHEMAS: Final = ROOT / "crds/v1alpha1"
OPERATOR: Final = ROOT / "operator/onggi_operator"


def page() -> str:
    """The page as it should be."""
    text = PAGE.read_text()
    for name, lines in _tables().items():
        section = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        body = "\n".join(lines) + "\n"
        text, count = section.subn(lambda m, body=body: m[1] + body + m[2], text)  # type: ignore[misc]
        if count != 1:
            raise LookupError(f"{PAGE} has {count} sections named {name}")
    return text


def _tables() -> dict[str, list[str]]:
    return {
        **_kind("kvcachepools", ""),
        **_kind("kvcachenodes", "node-"),
        "annotations": _table(("key", "what it does"), _annotations()),
        "skips": _table(("reason", "means"), _members("inject/outcome.py", "SkipReason")),
        "conditions": _table(("type", "means"), _members("plan/conditions.py", "Type")),
        "reasons": _table(
            ("reason", "(type, status) meaning"), _members("plan/conditions.py", "Reason")
        ),
        "moves": _table(("reason", "means"), _members("plan/rebalance.py", "Why")),
    }


def _kind(plural: str, prefix: str) -> dict[str, list[str]]:
    """What of a kind a user sets, and what the operator answers."""
    crd = yaml.safe_load((SCHEMAS / f"{plural}.yaml").read_text())
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
    return {
        f"{prefix}columns": _table(
            ("column", "what it shows"),
            ((column["name"].upper(), column.get("description", "")) for column in columns),
        ),
        f"{prefix}fields": _table(
            ("field", "type", "default", "what it does"),
            (_row("spec", properties["spec"], needed=False), *_fields(properties["spec"])),
        ),
        f"{prefix}status": _table(
            ("field", "type", "what it says"),
            ((path, kind, text) for path, kind, _, text in _fields(properties["status"], "status")),
        ),
    }


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines]


def _fields(schema: dict[str, Any], path: str = "spec") -> Iterator[tuple[str, ...]]:
    """Every field below `schema`, in the order of the file."""
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        if "items" in child:
            yield _row(f"{here}[]", child, needed=name in required)
            yield from _fields(child["items"], f"{here}[]")
        else:
            yield _row(here, child, needed=name in required)
            yield from _fields(child, here)


def _row(path: str, schema: dict[str, Any], *, needed: bool) -> tuple[str, ...]:
    told = schema.get("description", "").strip()
    if rules := _rules(schema):
        told += f" Rules: {'; '.join(rules)}."
    if of_each := _rules(schema.get("items", {})):
        told += f" Rules of each: {'; '.join(of_each)}."
    return f"`{path}`", _type(schema), _default(schema, needed=needed), told.strip()


def _rules(schema: dict[str, Any]) -> list[str]:
    """In the order of the file, each once."""
    rules = schema.get("x-kubernetes-validations", [])
    return list(dict.fromkeys(rule["message"] for rule in rules))


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if schema.get("type") == "array":
        return "list"
    return str(schema.get("format", schema.get("type", "")))


def _default(schema: dict[str, Any], *, needed: bool) -> str:
    if "default" not in schema:
        return "required" if needed else ""
    if schema["default"] == {}:
        return ""
    if schema.get("type") == "array":
        return "one tier of type Memory"
    value = schema["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _annotations() -> Iterator[tuple[str, ...]]:
    sys.path.insert(0, str(ROOT / "operator"))
    from onggi_operator.names import ANNOTATIONS

    return ((f"`{key}`", told) for key, told in ANNOTATIONS.items())


def _members(file: str, name: str) -> Iterator[tuple[str, ...]]:
    """An enum's values with the sentence below each, which only the source knows."""
    tree = ast.parse((OPERATOR / file).read_text())
    (found,) = [one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name]
    for member, told in zip(found.body, found.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(told, ast.Expr):
            value, text = member.value, told.value
            yield f"`{ast.literal_eval(value)}`", " ".join(str(ast.literal_eval(text)).split())


if __name__ == "__main__":
    PAGE.write_text(page())
