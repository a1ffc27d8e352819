"""What a pod's or a controller's manifest says about Onggi, judged without a cluster."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from onggi_sidecar.doctor.finding import Finding, Level

PREFIX: Final = "onggi.dev/"
POOL: Final = f"{PREFIX}pool"
INJECT: Final = f"{PREFIX}inject"
STATUS: Final = f"{PREFIX}status"
KNOWN: Final = (
    POOL,
    INJECT,
    f"{PREFIX}container",
    f"{PREFIX}memory",
    f"{PREFIX}disk",
    STATUS,
)
"""As the webhook knows them; a test compares the two."""

AGENT: Final = "onggi-agent"
LOOKALIKE_CUTOFF: Final = 0.85
"""Of a key under another prefix to one of ours: `ongi.dev/pool` is, `example.com/pool` is not."""


def judge(found: Mapping[str, Any]) -> list[Finding]:
    """A pod, or something with a template of pods."""
    template = (found.get("spec") or {}).get("template")
    if template is not None:
        return list(_controller(found, template))
    if (kind := found.get("kind", "Pod")) != "Pod":
        then = "ask about a pod, or a Deployment, StatefulSet, DaemonSet, ReplicaSet or Job"
        return [Finding(Level.WRONG, f"{kind} is no kind that says which pods it makes", then)]
    return list(_pod(found))


def is_injected(pod: Mapping[str, Any]) -> bool:
    return _annotations(pod).get(STATUS, "").startswith("injected: ")


def _annotations(found: Mapping[str, Any]) -> Mapping[str, str]:
    return (found.get("metadata") or {}).get("annotations") or {}


def _controller(found: Mapping[str, Any], template: Mapping[str, Any]) -> Iterator[Finding]:
    kind, own = found.get("kind", "object"), _annotations(found)
    inside = _annotations(template)
    yield from _misspelt(inside)
    if POOL in inside:
        yield Finding(
            Level.FINE,
            f"the pods of this {kind} ask for pool {inside[POOL]}",
            "ask about one of them: onggi doctor POD",
        )
    elif POOL in own:
        yield Finding(
            Level.WRONG,
            f"annotation {POOL} is on the {kind} itself, where it reaches no pod",
            f"put it on the pod template: spec.template.metadata.annotations of the {kind}",
        )
    else:
        yield Finding(Level.WRONG, f"the pods of this {kind} ask for no pool", _ask_for_one())


def _pod(pod: Mapping[str, Any]) -> Iterator[Finding]:
    annotations = _annotations(pod)
    yield from _misspelt(annotations)
    status = annotations.get(STATUS, "")
    if annotations.get(INJECT) == "false":
        yield Finding(Level.NOTE, f'the pod opts out: {INJECT} is "false"')
    elif status.startswith("injected: "):
        yield Finding(Level.FINE, status)
        yield from _containers(pod)
    elif status:
        yield Finding(Level.WRONG, status, "change that in the pod's template, or in the pool")
    elif POOL in annotations:
        yield Finding(
            Level.WRONG,
            f"the pod asks for pool {annotations[POOL]} and the webhook never saw it",
            "it was away when the pod was made, or does not look at this namespace; once it runs"
            " (kubectl get deploy -A -l app.kubernetes.io/name=onggi), delete the pod to have it"
            " made again",
        )
    elif POOL in ((pod.get("metadata") or {}).get("labels") or {}):
        yield Finding(Level.WRONG, f"{POOL} is a label of this pod", "make it an annotation")
    else:
        yield Finding(Level.WRONG, "the pod asks for no pool", _ask_for_one())


def _ask_for_one() -> str:
    return f"add the annotation {POOL}: NAME of a KVCachePool in the same namespace"


def _misspelt(annotations: Mapping[str, str]) -> Iterator[Finding]:
    """Keys that nobody knows; those under a prefix that is not ours never reach the webhook."""
    for key in sorted(annotations.keys() - set(KNOWN)):
        cutoff = 0.6 if key.startswith(PREFIX) else LOOKALIKE_CUTOFF
        near = difflib.get_close_matches(key.lower(), KNOWN, n=1, cutoff=cutoff)
        if near or key.startswith(PREFIX):
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(KNOWN)}"
            yield Finding(Level.WRONG, f"annotation {key} does not exist", hint)


def _containers(pod: Mapping[str, Any]) -> Iterator[Finding]:
    """How the agent's container fares, as the kubelet tells."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    for one in statuses:
        if one.get("name") != AGENT:
            continue
        waiting = (one.get("state") or {}).get("waiting") or {}
        ended = (one.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason"):
            message = str(waiting.get("message") or "").strip()
            yield Finding(Level.WRONG, f"the agent waits: {waiting['reason']} {message}".strip())
        if one.get("restartCount"):
            why = f" (last: {ended['reason']}, exit code {ended.get('exitCode')})" if ended else ""
            yield Finding(
                Level.NOTE,
                f"the agent was started {one['restartCount'] + 1} times{why}",
                "its log before that: kubectl logs POD -c onggi-agent --previous",
            )
