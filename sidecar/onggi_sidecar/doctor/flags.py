"""The flags by which an engine is given the client by hand."""

import json
from typing import Final

VLLM_CONNECTOR: Final = {
    "kv_connector": "OnggiConnector",
    "kv_connector_module_path": "onggi.connectors.vllm",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}
"""What the plugin fills in where it is loaded; a test compares the two."""


def told() -> list[str]:
    """For a terminal."""
    return [
        "Where an engine loads no plugins (VLLM_PLUGINS, configure: Manual) its flags are:",
        f"  vLLM    --kv-transfer-config '{json.dumps(VLLM_CONNECTOR, separators=(',', ':'))}'",
        "  SGLang  none: this version brings no connector for it",
        "and in its environment PYTHONPATH=/opt/onggi and ONGGI_SOCKET=/run/onggi/agent.sock.",
    ]
