"""The flags by which an engine is given the client by hand."""

import json
from collections.abc import Mapping
from typing import Any, Final

VLLM_CONNECTOR: Final = {
    "kv_connector": "OnggiConnector",
    "kv_connector_module_path": "onggi.connectors.vllm",
    "kv_role": "kv_both",
    "kv_load_failure_policy": "recompute",
}
"""What the plugin fills in where it is loaded; a test compares the two."""

SGLANG_CONFIG: Final = {
    "backend_name": "onggi",
    "module_path": "onggi.connectors.sglang",
    "class_name": "OnggiStorage",
    "interface_v1": 1,
    "hicache_storage_pass_prefix_keys": True,
}
SGLANG_FLAGS: Final = (
    "--enable-hierarchical-cache --hicache-mem-layout page_first",
    "--hicache-storage-backend dynamic",
)
"""What its plugin hints at; a test compares the two."""


IN_A_POD: Final = ("/opt/onggi", "/run/onggi/agent.sock")
"""Where the webhook puts the client and the socket; a test compares them."""


def told(folder: str = IN_A_POD[0], socket: str = IN_A_POD[1]) -> list[str]:
    """For a terminal. folder: where the client is."""
    return [
        "Where an engine loads no plugins (VLLM_PLUGINS, configure: Manual), and for SGLang in any"
        " case, its flags are:",
        f"  vLLM    --kv-transfer-config '{_compact(VLLM_CONNECTOR)}'",
        f"  SGLang  {' '.join(SGLANG_FLAGS)}",
        f"          --hicache-storage-backend-extra-config '{_compact(SGLANG_CONFIG)}'",
        f"and in its environment PYTHONPATH={folder} and ONGGI_SOCKET={socket}.",
    ]


def _compact(config: Mapping[str, Any]) -> str:
    return json.dumps(config, separators=(",", ":"))
