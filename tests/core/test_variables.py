"""Environment variables: typing errors told from what Kubernetes puts there by itself."""

from __future__ import annotations

import pytest

from onggi_core.variables import is_service_link, misspelt, nearest

KNOWN = ("ONGGI_AGENT_MEMORY", "ONGGI_AGENT_HTTP_PORT", "ONGGI_CONFIG")

LINKS = {
    "ONGGI_AGENT_SERVICE_HOST": "10.0.0.1",
    "ONGGI_AGENT_SERVICE_PORT": "80",
    "ONGGI_AGENT_SERVICE_PORT_METRICS": "80",
    "ONGGI_AGENT_PORT": "tcp://10.0.0.1:80",
    "ONGGI_AGENT_PORT_80_TCP": "tcp://10.0.0.1:80",
    "ONGGI_AGENT_PORT_80_TCP_PROTO": "tcp",
    "ONGGI_AGENT_PORT_80_TCP_PORT": "80",
    "ONGGI_AGENT_PORT_80_TCP_ADDR": "10.0.0.1",
    "ONGGI_AGENT_PORT_53_UDP": "udp://10.0.0.1:53",
    "ONGGI_AGENT_HTTP_PORT": "tcp://[fd00::1]:80",
    "ONGGI_AGENT_WEB_2_SERVICE_HOST": "10.0.0.1",
}
"""Of services named onggi-agent, onggi-agent-http and onggi-agent-web-2."""


@pytest.mark.parametrize(("name", "value"), LINKS.items())
def test_what_kubernetes_makes_for_a_service_is_known_for_it(name: str, value: str) -> None:
    assert is_service_link(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ONGGI_AGENT_HTTP_PORT", "9464"),
        ("ONGGI_AGENT_HTPP_PORT", "9464"),
        ("ONGGI_AGENT_PORT", ""),
        ("ONGGI_AGENT_MEMROY", "tcp://10.0.0.1:80"),
        ("ONGGI_AGENT_HTTP_HOST", "10.0.0.1"),
        ("SERVICE_HOST", "10.0.0.1"),
    ],
)
def test_what_somebody_wrote_is_not(name: str, value: str) -> None:
    assert not is_service_link(name, value)


def test_each_unread_variable_comes_with_the_one_that_was_meant() -> None:
    environment = {
        **LINKS,
        "ONGGI_AGENT_MEMROY": "1GiB",
        "ONGGI_AGENT_HTPP_PORT": "1",
        "ONGGI_AGENT_QQQ": "1",
        "onggi_agent_memory": "1GiB",
        "ONGGI_AGENT_MEMORY": "1GiB",
        "ONGGI_CONFG": "/c",
        "ONGGI_SOCKET": "/s",
        "ONGGI_CONFIGURE": "Manual",
        "ONGGI": "1",
        "PATH": "/",
    }
    assert misspelt(environment, KNOWN, ours="ONGGI_AGENT_", family="ONGGI_") == [
        ("ONGGI_AGENT_HTPP_PORT", "ONGGI_AGENT_HTTP_PORT"),
        ("ONGGI_AGENT_MEMROY", "ONGGI_AGENT_MEMORY"),
        ("ONGGI_AGENT_QQQ", ""),
        ("ONGGI_CONFG", "ONGGI_CONFIG"),
        ("onggi_agent_memory", "ONGGI_AGENT_MEMORY"),
    ]


def test_nothing_is_offered_for_what_is_like_nothing() -> None:
    assert nearest("memroy", ("memory", "mode")) == "memory"
    assert nearest("zzz", ("memory", "mode")) == ""
