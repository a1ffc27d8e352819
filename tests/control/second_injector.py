"""Another mutating webhook beside ours, as a mesh has one: it adds what it is told to."""

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from onggi_operator.tls.certificates import renewed


@contextlib.contextmanager
def running(
    server: Any, folder: Path, name: str, patch: list[dict[str, Any]], *, namespace: str
) -> Iterator[None]:
    """Serve and register it for one namespace. Configurations are called in the order of their
    names; it patches a pod that has no container `mesh-proxy` yet."""
    bundle, _ = renewed({}, ["localhost"], now=datetime.now(UTC))
    httpd = HTTPServer(("127.0.0.1", 0), _handler(patch))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain, key = folder / f"{name}.crt", folder / f"{name}.key"
    chain.write_bytes(bundle.leaf)
    key.write_bytes(bundle.leaf_key)
    context.load_cert_chain(chain, key)
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    hook = {
        "name": f"{name}.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "clientConfig": {
            "url": f"https://localhost:{httpd.server_port}/",
            "caBundle": base64.b64encode(bundle.ca_bundle).decode(),
        },
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }
    server.apply(path, body)
    try:
        yield
    finally:
        server.request("DELETE", f"{path}/{name}")
        httpd.shutdown()
        thread.join()
        httpd.server_close()


def _handler(patch: list[dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = review["request"]
            names = {one["name"] for one in request["object"]["spec"]["containers"]}
            response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
            if "mesh-proxy" not in names:
                response["patchType"] = "JSONPatch"
                response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
            answer = {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": response,
            }
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
