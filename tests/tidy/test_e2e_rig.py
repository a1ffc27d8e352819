"""What the end-to-end tests stand on, as far as it needs no cluster."""

import ast
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
E2E = ROOT / "e2e"


@pytest.fixture(autouse=True)
def _on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(E2E), *sys.path])


def test_every_feature_has_its_place_in_the_order() -> None:
    tree = ast.parse((E2E / "features/conftest.py").read_text())
    order = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "ORDER"
        and node.value is not None
    )
    assert sorted(order) == sorted(path.name for path in E2E.glob("features/test_*.py"))


def test_the_testing_page_names_every_feature() -> None:
    page = (ROOT / "docs/testing.md").read_text()
    for path in E2E.glob("features/test_*.py"):
        assert f"`features/{path.name}`" in page


def test_no_feature_waits_by_a_number() -> None:
    for path in E2E.glob("features/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "until":
                assert isinstance(node.args[2], ast.Name), f"{path.name}:{node.lineno}"


def test_figures_are_summed_over_labels_and_kept_by_label() -> None:
    from rig.figures import read_figures

    text = '# HELP a b\nhits_total{tier="host"} 2.0\nhits_total{tier="disk"} 3.0\nup 1.0\n'
    assert read_figures(text) == {
        'hits_total{tier="host"}': 2.0,
        'hits_total{tier="disk"}': 3.0,
        "hits_total": 5.0,
        "up": 1.0,
    }


@pytest.mark.parametrize(
    ("prompt_tokens", "reusable"), [(1, 0), (32, 0), (33, 32), (1500, 1472), (1504, 1472)]
)
def test_the_block_of_the_last_token_is_never_reusable(prompt_tokens: int, reusable: int) -> None:
    from rig.engine import reusable_tokens

    assert reusable_tokens(prompt_tokens) == reusable


def test_prompts_of_two_seeds_share_no_block() -> None:
    from rig.engine import BLOCK_TOKENS, prompt

    first, second = prompt(1, 4 * BLOCK_TOKENS), prompt(2, 4 * BLOCK_TOKENS)
    assert prompt(1, 4 * BLOCK_TOKENS) == first
    assert first[:BLOCK_TOKENS] != second[:BLOCK_TOKENS]


def _stream(*events: dict[str, Any]) -> io.BytesIO:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return io.BytesIO("".join([*lines, "data: [DONE]\n\n"]).encode())


def test_a_stream_is_read_to_tokens_and_usage() -> None:
    from rig.engine import Answer, _read

    usage = {"prompt_tokens": 64, "prompt_tokens_details": {"cached_tokens": 32}}
    events = (
        {"choices": [{"token_ids": [5]}]},
        {"choices": [{"token_ids": [6, 7]}]},
        {"choices": [], "usage": usage},
    )
    answer = _read(_stream(*events), 0.0)  # type: ignore[arg-type]
    assert answer == Answer((5, 6, 7), 64, 32, answer.first_token_s)
    assert answer.first_token_s > 0


def test_an_error_in_the_stream_is_a_failed_request() -> None:
    from rig.engine import _read

    with pytest.raises(AssertionError):
        _read(_stream({"error": {"message": "no"}, "choices": []}), 0.0)  # type: ignore[arg-type]


def test_an_image_has_its_archive() -> None:
    from node.places import archive_of

    assert archive_of("localhost/onggi-agent:dev").name == "onggi-agent-dev.tar"


def test_the_example_engine_asks_for_its_pool_and_sets_nothing_of_ours() -> None:
    pool = yaml.safe_load((ROOT / "examples/pool.yaml").read_text())
    template = yaml.safe_load((ROOT / "examples/vllm.yaml").read_text())["spec"]["template"]
    assert template["metadata"]["annotations"] == {"onggi.dev/pool": pool["metadata"]["name"]}
    assert "onggi" not in json.dumps(template["spec"]).lower()


def test_a_deployed_engine_keeps_the_examples_annotation() -> None:
    from rig.workloads import engine_deployment

    template = engine_deployment("chat")["spec"]["template"]
    assert template["metadata"]["annotations"] == {"onggi.dev/pool": "chat"}
    names = {volume["name"] for volume in template["spec"]["volumes"]}
    (engine,) = template["spec"]["containers"]
    assert {mount["name"] for mount in engine["volumeMounts"]} == names


def test_the_page_has_the_commands_that_are_typed() -> None:
    from rig.pages import commands

    words = {head: [line.split()[:2] for line in commands(head)] for head in ("Drain", "Upgrade")}
    assert words == {
        "Drain": [["kubectl", verb] for verb in ("cordon", "wait", "drain", "uncordon")],
        "Upgrade": [["helm", "upgrade"], ["helm", "rollback"]],
    }
    first, *others = commands("Uninstall")
    assert first.startswith("helm uninstall onggi ")
    assert all(line.startswith("kubectl delete ") for line in others)
    with pytest.raises(KeyError):
        commands("Who gets it")


def test_the_version_before_differs_by_number_and_schema(tmp_path: Path) -> None:
    from rig import previous

    made = previous.chart(tmp_path)
    about = yaml.safe_load((made / "Chart.yaml").read_text())
    now = yaml.safe_load((ROOT / "charts/onggi/Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == previous.VERSION != now["version"]
    schema = "files/crds/kvcachepools.yaml"
    crd, today = (yaml.safe_load((at / schema).read_text()) for at in (made, ROOT / "charts/onggi"))
    assert previous.NEWER not in previous._status(crd)
    assert previous.NEWER in previous._status(today)


def test_a_stand_in_listens_where_it_is_asked() -> None:
    from rig.engine import PORT
    from rig.stand_in import PROGRAM, deployment

    assert f"\nPORT = {PORT}\n" in PROGRAM.read_text()
    template = deployment("red", "pool", "node1")["spec"]["template"]
    assert template["metadata"]["annotations"] == {"onggi.dev/pool": "pool"}
