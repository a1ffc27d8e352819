"""What the engine's command does to the variables by which it would find the client."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onggi_operator.inject.shell import Unreadable, launches

WORDS = (
    "env", "-i", "-u", "-", "sh", "-c", "exec", "export", "unset", "PYTHONPATH=/x", "A=1", ";",
    "&&", "|", "(", ")", "$(", "`x`", "'", '"', "#", "\\", "<<", "if", "then", "fi", "python", "-I",
    "vllm", "serve", "--unset=A", "", "2>&1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["sh", "-c", "PYTHONPATH=/app exec vllm serve m"], "$PYTHONPATH"),
        (["sh", "-c", "cd /app; export PYTHONPATH='/app'; vllm serve m"], "$PYTHONPATH"),
        (["bash", "-ec", "PYTHONPATH=/app\nvllm serve m"], "$PYTHONPATH"),
        (["sh", "-c", "unset PYTHONPATH && vllm serve m"], "$PYTHONPATH"),
        (["bash", "-euo", "pipefail", "-c", "unset PYTHONPATH; vllm serve m"], "$PYTHONPATH"),
        (["bash", "-o", "pipefail", "+x", "-c", "env -i vllm serve m"], "env -i"),
        (["env", "PYTHONPATH=/app", "vllm", "serve", "m"], "$PYTHONPATH"),
        (["env", "-u", "PYTHONPATH", "vllm", "serve", "m"], "$PYTHONPATH"),
        (["env", "-i", "vllm", "serve", "m"], "env -i"),
        (["sh", "-c", "exec env - PATH=/bin vllm serve m"], "env -i"),
        (["sh", "-c", "env -i PYTHONPATH=$PYTHONPATH vllm serve m"], "ONGGI_SOCKET"),
        (["/usr/bin/env", "--ignore-environment", "vllm"], "env -i"),
        (["env", "-u", "ONGGI_SOCKET", "vllm", "serve"], "ONGGI_SOCKET"),
        (["python3", "-I", "-m", "vllm.entrypoints.openai.api_server"], "-I"),
        (["python", "-u", "-E", "-m", "vllm.entrypoints.openai.api_server"], "-E"),
        (["/opt/venv/bin/python3.12", "-X", "dev", "-uE", "-m", "vllm.entrypoints"], "-uE"),
        (["sh", "-c", "pip list; python3 -I -m vllm.entrypoints.openai.api_server"], "-I"),
    ],
)
def test_an_engine_that_would_never_find_the_client_gets_no_agent(
    kit: Any, command: list[str], word: str
) -> None:
    """An agent that nobody asks takes memory for nothing, and its pod looks served."""
    reason, message = kit.skipped(kit.pod(kit.engine(command=command)))
    assert reason == "ClientHidden"
    assert message.startswith("the command of container engine ")
    assert word in message


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "PYTHONPATH=/app:$PYTHONPATH vllm serve m"],
        ["sh", "-c", "export PYTHONPATH=${PYTHONPATH}:/app && vllm serve m"],
        ["sh", "-c", "PYTHONPATH=/opt/onggi:/app vllm serve m"],
        ["sh", "-c", "PYTHONPATH=/tools python prepare.py && exec vllm serve m"],
        ["sh", "-c", "python -I warm.py; exec vllm serve m --port 8000"],
        ["sh", "-c", "# don't set PYTHONPATH=/app\nexec vllm serve m"],
        ["sh", "-c", "PYTHONPATH=$(pwd):$PYTHONPATH vllm serve m"],
        ["sh", "-c", "env -i PYTHONPATH=$PYTHONPATH ONGGI_SOCKET=$ONGGI_SOCKET vllm serve m"],
        ["env", "MODEL=m", "vllm", "serve", "m"],
        ["env"],
        ["sh", "-c"],
        ["python3", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"],
        ["python3", "-m", "vllm.entrypoints.cli.main", "-E"],
    ],
)
def test_a_command_that_keeps_the_client_is_injected_without_a_word(
    kit: Any, command: list[str]
) -> None:
    outcome = kit.plan(kit.pod(kit.engine(command=command)))
    assert outcome.warnings == ()
    assert "note:" not in outcome.status
    assert (
        kit.patched(kit.pod(kit.engine(command=command)), outcome)["spec"]["containers"][0][
            "command"
        ]
        == command
    )


@pytest.mark.parametrize(
    ("container", "word"),
    [
        ({"command": ["sh", "-c", "if [ -d /app ]; then export PYTHONPATH=/app; fi; vllm"]}, "..."),
        ({"command": ["sh", "-c", "PYTHONPATH=/app ./start.sh; ./more.sh"]}, "$PYTHONPATH"),
        ({"command": ["sh", "-c", "echo 'open; PYTHONPATH=/app vllm serve"]}, "$PYTHONPATH"),
        ({"args": ["python3", "-I", "-m", "vllm.entrypoints.openai.api_server"]}, "-I"),
        ({"command": ["tini", "--", "python3", "-I", "-m", "vllm.entrypoints.api"]}, "-I"),
        ({"command": ["numactl", "-N", "0", "env", "-i", "vllm", "serve"]}, "env -i"),
        ({"command": ["sh", "-c", "X=$(env -i date); env -i ./start.sh"]}, "env -i"),
    ],
)
def test_what_may_hide_the_client_is_written_on_the_pod(
    kit: Any, container: dict[str, Any], word: str
) -> None:
    """Injected all the same: it is not plain which part of the text starts the engine."""
    outcome = kit.plan(kit.pod(kit.engine(**container)))
    (warning,) = outcome.warnings
    assert word in warning
    assert outcome.status.endswith(f"; note: {warning}")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"hostNetwork": True}, True),
        ({"hostNetwork": True, "dnsPolicy": "ClusterFirst"}, True),
        ({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}, False),
        ({"hostNetwork": True, "dnsPolicy": "None"}, False),
        ({"dnsPolicy": "ClusterFirst"}, False),
    ],
)
def test_a_host_network_without_cluster_dns_is_noted(
    kit: Any, spec: dict[str, Any], told: bool
) -> None:
    """Host-network pods left out without a word (istio/istio#9002)."""
    outcome = kit.plan(kit.pod(**spec))
    assert ("set dnsPolicy to ClusterFirstWithHostNet" in outcome.status) is told
    assert len(outcome.warnings) == told


def test_plugins_that_a_command_restricts_are_told(kit: Any) -> None:
    body = kit.pod(kit.engine(command=["sh", "-c", "VLLM_PLUGINS=lora exec vllm serve m"]))
    assert kit.skipped(body) == (
        "PluginsRestricted",
        "the command of container engine sets VLLM_PLUGINS without onggi; add it to the list",
    )
    body = kit.pod(kit.engine(command=["sh", "-c", "VLLM_PLUGINS=lora,onggi exec vllm serve m"]))
    assert kit.plan(body).warnings == ()


@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_any_text_is_read_or_said_to_be_unreadable(words: list[str]) -> None:
    for command in ([*words], ["sh", "-c", " ".join(words)], ["bash", "-ec", "\n".join(words)]):
        with contextlib.suppress(Unreadable):
            for launch in launches({"name": "e", "command": command}):
                assert all(isinstance(word, str) for word in launch.words)


@given(st.text(max_size=60))
def test_any_characters_are(text: str) -> None:
    with contextlib.suppress(Unreadable):
        launches({"name": "e", "command": ["sh", "-c", text]})
