"""An engine in the cluster, as its users see it: completions, their tokens, their timing."""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from waits import ANSWER_S, CONTAINER_BACK_S, ENGINE_GONE_S, ENGINE_READY_S

from rig.figures import read_figures
from rig.kubectl import Kubectl, Object, until
from rig.reach import address, kill_container, restarts

PORT: Final = 8000
BLOCK_TOKENS: Final = 32
"""The engine's block size; the smallest that its attention kernel on CPUs takes."""
CONTAINER: Final = "vllm"
WORDS: Final = 4000
"""Prompts are drawn from the model's first words, which leaves out its two marks."""
HITS: Final = "vllm:external_prefix_cache_hits_total"


@dataclass(frozen=True, slots=True)
class Answer:
    """tokens: what the engine said. cached_tokens: of the prompt's, those it did not compute."""

    tokens: tuple[int, ...]
    prompt_tokens: int
    cached_tokens: int
    first_token_s: float


def prompt(seed: int, tokens: int) -> list[int]:
    """Token ids that share no block with those of another seed."""
    dice = random.Random(seed)
    return [dice.randrange(WORDS) for _ in range(tokens)]


def reusable_tokens(prompt_tokens: int) -> int:
    """All full blocks but the last token's, which must be computed for an answer."""
    return (prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


class Engine:
    """The one pod of a Deployment; a pod that is made again is found again."""

    def __init__(self, kubectl: Kubectl, deployment: str) -> None:
        self.kubectl = kubectl
        self.deployment = deployment

    def pod(self) -> Object:
        """The living pod. AssertionError if there is not exactly one."""
        pods = self.kubectl.items("pods", f"app={self.deployment}")
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        assert len(alive) == 1, [pod["metadata"]["name"] for pod in pods]
        return alive[0]

    def ready(self) -> Object:
        """The pod, once the engine in it answers."""
        self.kubectl.rolled_out(f"deployment/{self.deployment}", ENGINE_READY_S)
        until("health of the engine", self._healthy, ENGINE_READY_S)
        return self.pod()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self._url("/health"), timeout=5) as answer:
                return bool(answer.status == http.client.OK)
        except (OSError, http.client.HTTPException):
            return False

    def _url(self, path: str) -> str:
        host, port = address(self.kubectl, self.pod(), PORT)
        return f"http://{host}:{port}{path}"

    def kill(self) -> None:
        """Kill the engine's container, and wait until another life of it answers."""
        before = restarts(self.pod(), CONTAINER)
        kill_container(self.kubectl, self.pod(), CONTAINER)
        until("restart of the engine", lambda: restarts(self.pod(), CONTAINER) > before,
              CONTAINER_BACK_S)  # fmt: skip
        self.ready()

    def delete_pod(self) -> None:
        self.kubectl.delete("pod", self.pod()["metadata"]["name"], ENGINE_GONE_S)

    def forget(self) -> None:
        """Empty the engine's own prefix cache: what is found after it came from elsewhere.

        The engine refuses while a request of its own, or a store of ours, still holds blocks.
        """
        until("reset of the engine's own cache", self._reset, ANSWER_S)

    def _reset(self) -> bool:
        request = urllib.request.Request(self._url("/reset_prefix_cache"), method="POST")
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            body = answer.read()
        return not body or bool(json.loads(body).get("success", True))

    def figures(self) -> dict[str, float]:
        """The engine's own metrics, summed over their labels."""
        with urllib.request.urlopen(self._url("/metrics"), timeout=ANSWER_S) as answer:
            return read_figures(answer.read().decode())

    def ask(self, tokens: list[int], *, salt: str | None = None, length: int = 16) -> Answer:
        """A greedy completion, streamed. Raises on any answer but a whole one."""
        body: dict[str, Any] = {
            "model": "tiny",
            "prompt": tokens,
            "max_tokens": length,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if salt is not None:
            body["cache_salt"] = salt
        request = urllib.request.Request(
            self._url("/v1/completions"),
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        began = time.monotonic()
        with urllib.request.urlopen(request, timeout=ANSWER_S) as stream:
            answer = _read(stream, began)
        assert len(answer.tokens) == length, answer
        return answer


def _read(stream: http.client.HTTPResponse, began: float) -> Answer:
    first_s, usage = 0.0, None
    said: list[int] = []
    for line in stream:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[len(b"data: ") :])
        assert "error" not in event, event
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            first_s = first_s or time.monotonic() - began
            said += choice.get("token_ids") or []
    assert usage is not None, "the stream ended without usage"
    details = usage.get("prompt_tokens_details") or {}
    return Answer(tuple(said), usage["prompt_tokens"], details.get("cached_tokens") or 0, first_s)
