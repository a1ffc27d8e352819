"""The SGLang plugin: a hint at the flags where Onggi is at hand and they are not given.

SGLang is not switched over by itself, as vLLM is: its hierarchical cache takes host memory of a
size that is the user's to choose.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from onggi.connectors.environment import SOCKET_VARIABLE, unread_variables
from onggi.connectors.sglang.guard import log

CONFIG: Final = {
    "backend_name": "onggi",
    "module_path": "onggi.connectors.sglang",
    "class_name": "OnggiStorage",
    "interface_v1": 1,
    "hicache_storage_pass_prefix_keys": True,
}
"""The extra config. Socket, tenant and revision come from the environment."""

FLAGS: Final = (
    "--enable-hierarchical-cache",
    "--hicache-mem-layout page_first",
    "--hicache-storage-backend dynamic",
    f"--hicache-storage-backend-extra-config '{json.dumps(CONFIG, separators=(',', ':'))}'",
)

_SERVERS: Final = frozenset({"launch_server.py", "sglang"})
"""What sys.argv begins with: python -m sglang.launch_server, sglang serve."""

_OTHERS: Final = ("--hicache-storage-backend", "--config")
"""Of a command that has chosen, or may have: nothing is left to say."""


def register() -> None:
    """Entry point of group sglang.srt.plugins, run in each process of the engine's."""
    try:
        for sentence in unread_variables():
            log.warning("onggi: %s", sentence)
        if multiprocessing.parent_process() is None and wanted(sys.argv, os.environ):
            log.warning(
                "onggi: an agent is at hand and not used; to use it add %s", " ".join(FLAGS)
            )
    except Exception as error:  # noqa: BLE001 - a hint must not be in the way
        log.error("onggi: the plugin failed; the engine goes on", exc_info=error)


def wanted(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether the hint is worth a line: to a server's command, whose flags can be seen here. What a
    program hands to sglang.Engine cannot."""
    server = os.path.basename(command[0]) in _SERVERS if command else False
    chosen = any(word.partition("=")[0] in _OTHERS for word in command)
    return server and bool(environment.get(SOCKET_VARIABLE)) and not chosen
