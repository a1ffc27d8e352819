"""An operator that answers every report with the directive of the moment."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Operator:
    """reports: what agents said so far, oldest first."""

    def __init__(self, port: int) -> None:
        self.directive: dict[str, Any] = {"version": 1, "mode": "Active", "interval_s": 1}
        self.reports: list[dict[str, Any]] = []
        self.environment = {
            "ONGGI_AGENT_OPERATOR_URL": f"http://127.0.0.1:{port}",
            "ONGGI_AGENT_POOL": "chat",
            "ONGGI_AGENT_NAMESPACE": "team-a",
            "ONGGI_AGENT_POD_NAME": "chat-0",
        }

    def say(self, **fields: Any) -> None:
        """From the next report on."""
        self.directive = {**self.directive, **fields}


@contextmanager
def an_operator() -> Iterator[Operator]:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            said = self.rfile.read(int(self.headers["Content-Length"]))
            operator.reports.append(json.loads(said))
            body = json.dumps(operator.directive).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    operator = Operator(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield operator
    server.shutdown()
    thread.join()
    server.server_close()
