"""kubectl and helm as functions, fenced by the name of the kube context."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from node.places import BIN, CONTEXT, KUBECONFIG
from waits import POLL_S

Object = dict[str, Any]
EXISTING: Final = os.environ.get("E2E_EXISTING") == "1"
COMMAND_S: Final = 120
"""A command that does not wait takes a second; those that wait bring their own limit."""


class Refused(Exception):
    """A command failed."""


class Fenced(Exception):
    """The cluster is not there, or not one that the tests may touch."""


def program(name: str) -> str:
    """Path of kubectl or helm: our own build, else what the machine has."""
    if (BIN / name).exists():
        return str(BIN / name)
    if found := shutil.which(name):
        return found
    raise Refused(f"no {name}: run e2e/prepare binaries, or put one on PATH")


def run(*argv: str, stdin: str | None = None, timeout_s: float = COMMAND_S) -> str:
    """Output of a command. Raises Refused with what it said if it failed."""
    done = attempt(*argv, stdin=stdin, timeout_s=timeout_s)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise Refused(f"{' '.join(argv)}: exit {done.returncode}: {said}")
    return done.stdout


def attempt(
    *argv: str, stdin: str | None = None, timeout_s: float = COMMAND_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
    )


class Kubectl:
    """kubectl in one namespace of one cluster."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self._base = (program("kubectl"), f"--kubeconfig={kubeconfig}", f"--namespace={namespace}")

    def __call__(self, *argv: str, stdin: str | None = None, timeout_s: float = COMMAND_S) -> str:
        return run(*self._base, *argv, stdin=stdin, timeout_s=timeout_s)

    def attempt(self, *argv: str, timeout_s: float = COMMAND_S) -> subprocess.CompletedProcess[str]:
        return attempt(*self._base, *argv, timeout_s=timeout_s)

    def elsewhere(self, namespace: str) -> Kubectl:
        return Kubectl(self.kubeconfig, namespace)

    def apply(self, *objects: Object) -> None:
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def dry_run(self, item: Object) -> Object:
        """The object as admission would leave it; nothing is made."""
        argv = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        made: Object = json.loads(self(*argv, stdin=yaml.safe_dump(item)))
        return made

    def get(self, kind: str, name: str) -> Object:
        found: Object = json.loads(self("get", kind, name, "-o", "json"))
        return found

    def find(self, kind: str, name: str) -> Object | None:
        """The object, or None if there is none of that name."""
        text = self("get", kind, name, "-o", "json", "--ignore-not-found")
        found: Object | None = json.loads(text) if text.strip() else None
        return found

    def items(self, kind: str, selector: str = "") -> list[Object]:
        text = self("get", kind, "-o", "json", *([f"--selector={selector}"] if selector else []))
        found: list[Object] = json.loads(text)["items"]
        return found

    def delete(self, kind: str, name: str, timeout_s: float) -> None:
        limit = f"--timeout={timeout_s:g}s"
        self("delete", kind, name, "--ignore-not-found", limit, timeout_s=timeout_s + 10)

    def rolled_out(self, workload: str, timeout_s: float) -> None:
        limit = f"--timeout={timeout_s:g}s"
        self("rollout", "status", workload, limit, timeout_s=timeout_s + 10)


def the_cluster(namespace: str) -> Kubectl:
    """The cluster under test. Raises Fenced for one that the tests do not know.

    They delete namespaces and kill containers: the harness's own cluster is known by its context;
    any other must be asked for with E2E_EXISTING=1 and named once more in E2E_CONTEXT.
    """
    kubeconfig, allowed = KUBECONFIG, CONTEXT
    if EXISTING:
        if "KUBECONFIG" not in os.environ:
            raise Fenced("E2E_EXISTING=1 needs KUBECONFIG, the file that names the cluster")
        kubeconfig = Path(os.environ["KUBECONFIG"])
        allowed = os.environ.get("E2E_CONTEXT", CONTEXT)
    if not kubeconfig.exists():
        raise Fenced(f"no cluster: there is no {kubeconfig}; run e2e/run, or e2e/node/node up")
    kubectl = Kubectl(kubeconfig, namespace)
    context = kubectl("config", "current-context").strip()
    if context != allowed:
        raise Fenced(
            f"kube context {context!r} is not {allowed!r}; to test there, set E2E_CONTEXT={context}"
        )
    return kubectl


def helm(kubectl: Kubectl, *argv: str, timeout_s: float) -> str:
    return run(
        program("helm"), f"--kubeconfig={kubectl.kubeconfig}", *argv, timeout_s=timeout_s + 10
    )


def until(what: str, answer: Callable[[], Any], timeout_s: float) -> Any:
    """The first true answer; AssertionError that says what did not come and what came instead."""
    end = time.monotonic() + timeout_s
    while not (found := answer()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {timeout_s:g} s; last answer: {found!r}")
        time.sleep(POLL_S)
    return found


def annotation(pod: Mapping[str, Any], key: str) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(key)
    return found


def names_of(containers: Sequence[Mapping[str, Any]] | None) -> list[str]:
    return [container["name"] for container in containers or ()]
