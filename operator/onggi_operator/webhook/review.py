"""AdmissionReview v1 in and out, as pure functions."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from onggi_operator.inject import patch
from onggi_operator.inject.outcome import (
    Injected,
    Outcome,
    Patch,
    Skipped,
    Untouched,
    skipped_status,
)

API_VERSION: Final = "admission.k8s.io/v1"
WARNING_CHARS_MAX: Final = 256
"""The API server cuts longer ones when there are many."""


class NotAReview(Exception):
    """The body is no AdmissionReview for a pod; whoever sent it is not the API server."""


@dataclass(frozen=True, slots=True)
class Review:
    """One question. `namespace` is the request's: a controller's pod has none in its metadata."""

    uid: str
    namespace: str
    pod: Mapping[str, Any]
    dry_run: bool = False

    @property
    def name(self) -> str:
        """For people: the name, or what it will begin with."""
        meta = self.pod.get("metadata") or {}
        return str(meta.get("name") or meta.get("generateName") or "?")


def read_review(body: bytes) -> Review:
    """Raises NotAReview."""
    try:
        review = json.loads(body)
        request = review["request"]
        pod = request["object"]
        if review["apiVersion"] != API_VERSION or not isinstance(pod["spec"], dict):
            raise NotAReview(f"expected an AdmissionReview of {API_VERSION} with a pod in it")
        dry = request.get("dryRun") is True
        return Review(str(request["uid"]), str(request["namespace"]), pod, dry)
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        raise NotAReview(f"expected an AdmissionReview of {API_VERSION}: {fault!r}") from fault


def answer(review: Review, outcome: Outcome) -> dict[str, Any]:
    """The response. Always allowed; a skip tells why on the pod and to who made it."""
    operations: Patch
    match outcome:
        case Injected():
            operations, warnings = outcome.patch, outcome.warnings
        case Skipped():
            operations = patch.stamp(review.pod, skipped_status(outcome))
            warnings = (f"Onggi skipped this pod ({outcome.reason.value}): {outcome.message}",)
        case Untouched():
            operations, warnings = (), ()
        case _:
            assert_never(outcome)
    return _response(review.uid, operations, warnings)


def _response(uid: str, operations: Patch, warnings: Sequence[str]) -> dict[str, Any]:
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(operations).encode()).decode()
    if warnings:
        response["warnings"] = [warning[:WARNING_CHARS_MAX] for warning in warnings]
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
