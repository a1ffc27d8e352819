"""What a Prometheus is shown: webhook and operator as far as they count, and the Prometheus."""

import asyncio
import contextlib
import json
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from agent_process import until
from aiohttp import web
from prometheus_client import CollectorRegistry

from onggi_operator.health import health_app
from onggi_operator.heartbeat.desk import Desk
from onggi_operator.heartbeat.endpoint import HeartbeatServer
from onggi_operator.metrics import PoolMetrics
from onggi_operator.webhook.server import AdmissionServer

CHART = Path(__file__).resolve().parents[2] / "charts/onggi"


class Prometheus:
    """On loopback, its data in a folder of its own."""

    def __init__(self, program: str, folder: Path, jobs: list[dict[str, Any]]) -> None:
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(CHART / "files/alerts.yaml")],
            "scrape_configs": jobs,
        }
        path = folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(configuration))
        self.url = ""
        self._log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._folder = folder

    def wait(self) -> None:
        def address() -> str | None:
            text = (self._folder / "log").read_text()
            assert self.process.poll() is None, text
            for line in text.splitlines():
                if "Listening on" in line:
                    return line.partition("address=")[2].split()[0]
            return None

        host = f"http://{until('Prometheus to listen', address)}"

        def ready() -> bool:
            """It listens before it has opened its data, and answers 503 until then."""
            try:
                with urllib.request.urlopen(f"{host}/-/ready", timeout=30):
                    return True
            except urllib.error.HTTPError as not_yet:
                not_yet.close()
                return False

        until("Prometheus to be ready", ready)
        self.url = f"{host}/api/v1"

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self.url}/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            said = json.load(answer)
        assert said["status"] == "success", said
        return said["data"]

    def ask(self, expression: str) -> list[tuple[dict[str, str], float]]:
        found = self.get("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def value(self, expression: str) -> float | None:
        found = self.ask(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self._log.close()


def broken() -> Any:
    raise RuntimeError("what nobody thought of")


class OnePool:
    def __init__(self, kit: Any) -> None:
        self._kit = kit

    async def pool(self, namespace: str, name: str) -> Any:
        return self._kit.POOL

    def namespace(self, name: str) -> Any:
        return self._kit.Namespace(name)


class Control:
    """Webhook and operator as far as they count, served in a thread."""

    def __init__(self, kit: Any, world: Any) -> None:
        webhook, operator = CollectorRegistry(), CollectorRegistry()
        operator.register(PoolMetrics(lambda: world.snapshot(now_s=100), lambda: 100))
        admission = AdmissionServer(OnePool(kit), broken, webhook)  # type: ignore[arg-type]
        beats = HeartbeatServer(lambda: Desk(world, None), None, lambda: 100, operator)  # type: ignore[arg-type]
        self._apps = {
            "webhook": health_app(lambda: None, webhook),
            "operator": health_app(lambda: None, operator),
            "admission": admission.app(),
            "beats": beats.app(),
        }
        self.ports: dict[str, int] = {}
        self._served = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))
        self._thread.start()
        assert self._served.wait(60)

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            for name, app in self._apps.items():
                runner = web.AppRunner(app)
                await runner.setup()
                stack.push_async_callback(runner.cleanup)
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.ports[name] = runner.addresses[0][1]
            self._served.set()
            await self._stop.wait()

    def post(self, name: str, path: str, body: Any) -> int:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[name]}{path}", json.dumps(body).encode()
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        self._loop.close()
