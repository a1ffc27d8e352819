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


IN_A_POD: Final = ("/opt/onggi", "/run/onggi/agent.sock")
"""Where the webhook puts the client and the socket; a test compares them."""


def told(folder: str = IN_A_POD[0], socket: str = IN_A_POD[1]) -> list[str]:
    """For a terminal. folder: where the client is."""
    return [
        "Where an engine loads no plugins (VLLM_PLUGINS, configure: Manual) its flags are:",
        f"  vLLM    --kv-transfer-config '{json.dumps(VLLM_CONNECTOR, separators=(',', ':'))}'",
        "  SGLang  none: this version brings no connector for it",
        f"and in its environment PYTHONPATH={folder} and ONGGI_SOCKET={socket}.",
    ]
