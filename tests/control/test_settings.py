"""A wrong setting stops the start with its name, its value and what would be right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onggi_operator.settings import SettingsError, read_controller_settings, read_webhook_settings

ROOT = Path(__file__).resolve().parents[2]
COMMON = {
    "ONGGI_RELEASE_NAMESPACE": "onggi-system",
    "ONGGI_TLS_SECRET": "onggi-tls",
    "ONGGI_WEBHOOK_SERVICE": "onggi-webhook",
    "ONGGI_OPERATOR_SERVICE": "onggi-operator",
    "ONGGI_LEASE": "onggi-operator",
}

NO_CA = {
    "ONGGI_API_SERVER": "https://127.0.0.1:6443",
    "ONGGI_API_CA_FILE": "/no/ca",
    "ONGGI_API_TOKEN_FILE": "/no/token",
}


def test_defaults_stand_where_nothing_is_said() -> None:
    settings = read_controller_settings(COMMON)
    assert (settings.https_port, settings.health_port) == (8443, 8080)
    assert (settings.status_interval_s, settings.heartbeat_interval_s) == (30, 5)


def test_every_wrong_variable_is_named_with_its_value() -> None:
    env = {
        **COMMON,
        "ONGGI_AGENT_IMAGE": "x",
        "ONGGI_HTTPS_PORT": "tcp://10.0.0.1:8443",
        "ONGGI_LOG_LEVEL": "loud",
    }
    with pytest.raises(SettingsError) as refused:
        read_webhook_settings(env)
    text = str(refused.value)
    assert "ONGGI_HTTPS_PORT: " in text
    assert "(is 'tcp://10.0.0.1:8443')" in text
    assert "ONGGI_LOG_LEVEL: Input should be 'debug', 'info', 'warning' or 'error'" in text
    assert "ONGGI_WEBHOOK_CONFIGURATION: Field required" in text


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, "ONGGI_RELEASE_NAMESPACE: Field required"),
        (COMMON, "not in a pod (no KUBERNETES_SERVICE_HOST); set ONGGI_API_SERVER"),
        (COMMON | NO_CA, "ONGGI_API_CA_FILE is /no/ca; name a file that can be read"),
    ],
)
def test_a_start_that_cannot_be_says_why_and_ends_as_a_configuration_fault(
    env: dict[str, str], told: str
) -> None:
    done = started("controller", env)
    assert done.returncode == 78
    assert json.loads(done.stderr)["message"].startswith("cannot start: ")
    assert told in done.stderr


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, "onggi_operator plan: not in a pod (no KUBERNETES_SERVICE_HOST); set ONGGI_API_SERV"),
        (NO_CA, "onggi_operator plan: ONGGI_API_CA_FILE is /no/ca; name a file that can be read"),
        (
            {"KUBERNETES_SERVICE_HOST": "10.96.0.1"},
            "onggi_operator plan: this pod has no /var/run/secrets/kubernetes.io/serviceaccount/ca",
        ),
    ],
)
def test_a_plan_that_cannot_be_asked_for_is_told_to_a_person(
    env: dict[str, str], told: str
) -> None:
    done = started("plan", env)
    assert done.returncode == 78
    (line,) = done.stderr.splitlines()
    assert line.startswith(told)
    assert line.endswith("exec deploy/onggi-operator -- python -m onggi_operator plan")


def started(part: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "onggi_operator", part],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}/operator:{ROOT}/sidecar", **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
