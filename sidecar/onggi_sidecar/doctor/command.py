"""The command: inside an agent's container without a name, anywhere with kubectl with one."""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from onggi_core.variables import is_service_link
from onggi_sidecar.doctor import agent, flags, manifest
from onggi_sidecar.doctor.finding import Finding, Level, lines

ASK_S: Final = 3.0
KUBECTL_S: Final = 30.0
TOLD_MAX: Final = 400
"""Of an answer that is not what was asked for: a sentence of it, and no page."""

EXIT_FINE: Final = 0
EXIT_WRONG: Final = 1
EXIT_UNKNOWN: Final = 3
"""It could not be looked at."""


KINDS: Final = frozenset(
    f"{name}{end}"
    for names, ends in (
        ("pod deployment statefulset daemonset replicaset job", ("", "s")),
        ("po deploy sts ds rs", ("",)),
    )
    for name in names.split()
    for end in ends
)
"""As kubectl takes them: pods, and what makes pods from a template."""


DESCRIPTION: Final = """\
Say why an engine has no cache, or a slow one, and what to do about it."""
EPILOG: Final = """\
Without POD the agent of this machine or container is asked, on port 9464, or on that of --port or
of the variable ONGGI_AGENT_HTTP_PORT, if the agent was given another. Where there are several,
--socket (or ONGGI_AGENT_SOCKET, or ONGGI_SOCKET) says which one is meant: another one's figures are
then not taken for its own. With POD it is found by kubectl, in the cluster of its configuration or
of --context.

examples:
  onggi doctor
  onggi doctor --socket /dev/shm/onggi/agent.sock --port 9465
  onggi doctor chat-7d9f-x2x1 -n team-a
  onggi doctor deployment/chat

exit codes: 0 nothing is wrong, 1 something is, 3 it could not be looked at"""
SOCKET_VARIABLES: Final = ("ONGGI_AGENT_SOCKET", "ONGGI_SOCKET")
"""An agent's own, and its engine's."""
DEFAULT_PORT: Final = "9464"
NO_CLUSTER: Final = "localhost:8080"
"""Where kubectl looks when it was told of no cluster."""
_KLOG: Final = re.compile(r"[EWIF]\d{4} \d\d:")
"""Begin of a line that kubectl's libraries write beside its own words."""


class CannotLook(Exception):
    """The message says at what, and why not."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "words",
        nargs="*",
        metavar="POD",
        help="pod, or KIND/NAME such as deployment/chat; without it the agent that runs here",
    )
    parser.add_argument("--namespace", "-n", metavar="NAMESPACE", help="where the pod is")
    parser.add_argument(
        "--context", metavar="CONTEXT", help="cluster, by its name in kubectl's configuration"
    )
    parser.add_argument("--port", metavar="PORT", help="without a name: the agent's HTTP port")
    parser.add_argument(
        "--socket", metavar="PATH", help="without a name: the socket of the agent that is meant"
    )
    parser.add_argument(
        "--json", action="store_true", help="without a name: the agent's figures as they are"
    )


def run(parsed: argparse.Namespace) -> int:
    told = flags.told()
    try:
        if not parsed.words:
            figures, unready = _inside(os.environ, parsed.port, parsed.socket)
            if parsed.json:
                print(json.dumps({"figures": figures, "unready": unready}))
                return EXIT_FINE
            findings = agent.judge(figures, unready)
            if agent.outside(figures):
                told = flags.told("FOLDER", figures["socket"])
        else:
            where = [
                *(["--context", parsed.context] if parsed.context else []),
                *(["--namespace", parsed.namespace] if parsed.namespace else []),
            ]
            findings = _outside(_target(parsed.words), where)
    except CannotLook as problem:
        print(f"onggi doctor: {problem}", file=sys.stderr)
        return EXIT_UNKNOWN
    for line in lines(findings):
        print(line)
    if any(finding.level is Level.WRONG for finding in findings):
        print("\n".join(["", *told]))
        return EXIT_WRONG
    return EXIT_FINE


def _inside(
    env: Mapping[str, str], port: str | None, socket: str | None
) -> tuple[dict[str, Any], str]:
    """The figures of this container's agent, over loopback, and why it is not ready."""
    port = _port(env, port)
    figures: dict[str, Any] = json.loads(_fetch(port, "/stats")[1])
    wanted = [("--socket", socket), *((name, env.get(name)) for name in SOCKET_VARIABLES)]
    name, meant = next(((name, path) for name, path in wanted if path), ("", ""))
    if meant and not _same(meant, figures.get("socket") or meant):
        raise CannotLook(
            f"the agent that answers on port {port} serves {figures['socket']}, and not {meant}"
            f" ({name}). If one runs there, it has another port, or found this one taken and has"
            " none: its log says so (http_listening, http_unavailable). Start it with an"
            " --http-port of its own, and ask with --port"
        )
    mine, its = env.get("ONGGI_AGENT_POD_UID"), figures.get("pod_uid")
    if mine and its and mine != its:
        raise CannotLook(
            f"another pod's agent answers on port {port} of this host network; this one could not"
            " listen there, and its log is all there is to look at"
        )
    code, ready = _fetch(port, "/readyz")
    return figures, "" if code == HTTPStatus.OK else ready.strip()


def _port(env: Mapping[str, str], given: str | None) -> str:
    if given is not None:
        name, port = "--port", given
    else:
        name = "ONGGI_AGENT_HTTP_PORT"
        port = env.get(name) or DEFAULT_PORT
        if is_service_link(name, port):
            port = DEFAULT_PORT
    if not port.isdecimal():
        raise CannotLook(f"{name} is {port!r}; write a port such as {DEFAULT_PORT}")
    return port


def _fetch(port: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", timeout=ASK_S)
    try:
        connection.port = int(port)
        connection.request("GET", path)
        answer = connection.getresponse()
        code, text = answer.status, answer.read().decode()
    except (OSError, ValueError, http.client.HTTPException) as fault:
        raise CannotLook(
            f"no agent answers on port {port} ({fault}); is `onggi agent` running here? Its log has"
            " the port (http_listening): for another one add --port. For one in a"
            " pod: onggi doctor POD, or kubectl exec POD -c onggi-agent -- onggi doctor"
        ) from fault
    finally:
        connection.close()
    if code not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
        raise CannotLook(f"port {port} answers {path} with {code}; is that an Onggi agent?")
    return code, text


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _target(words: Sequence[str]) -> str:
    """KIND/NAME of what is to be looked at, as it may be written for kubectl."""
    kind, slash, name = words[0].partition("/")
    if slash or kind.lower() in KINDS:
        names = [*([name] if slash else []), *words[1:]]
        if not kind or not all(names):
            raise CannotLook(f"{words[0]} is half a name; write POD, or KIND/NAME")
    else:
        kind, names = "pod", list(words)
    if not names:
        raise CannotLook(f"{kind} is a kind of object; name one: {kind}/NAME (kubectl get {kind})")
    if len(names) > 1:
        raise CannotLook(f"{' '.join(names)} are {len(names)} names; ask about one at a time")
    return f"{kind}/{names[0]}"


def _outside(target: str, where: Sequence[str]) -> list[Finding]:
    """What the object says, and if there is an agent in it what that says of itself."""
    found: dict[str, Any] = json.loads(_kubectl([*where, "get", target, "-o", "json"]))
    findings = manifest.judge(found)
    if found.get("kind") != "Pod" or not manifest.is_injected(found):
        return findings
    pod = str(found["metadata"]["name"])
    command = ["exec", pod, "-c", manifest.AGENT, "--", "onggi", "doctor", "--json"]
    try:
        answer = _figures(_kubectl([*where, *command]))
    except CannotLook as problem:
        then = f"kubectl logs {pod} -c {manifest.AGENT}"
        return [*findings, Finding(Level.WRONG, f"the agent cannot be asked: {problem}", then)]
    return [*findings, *agent.judge(answer["figures"], answer["unready"])]


def _figures(text: str) -> dict[str, Any]:
    """What the doctor in the container printed; a sentence is a doctor of an earlier version that
    could not look."""
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        raise CannotLook(text.strip()[:TOLD_MAX]) from None
    return found


def _kubectl(arguments: Sequence[str]) -> str:
    """Raises CannotLook with kubectl's own words."""
    try:
        done = subprocess.run(
            ["kubectl", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=KUBECTL_S,
        )
    except FileNotFoundError:
        raise CannotLook("there is no kubectl here; it is what pods are looked at with") from None
    except subprocess.TimeoutExpired:
        raise CannotLook(f"kubectl did not answer within {KUBECTL_S:g} s") from None
    if done.returncode and not done.stdout:
        raise CannotLook(_own_words(done.stderr) or f"kubectl ended with {done.returncode}")
    return done.stdout


def _own_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    words = " ".join(line for line in lines if not _KLOG.match(line))
    if NO_CLUSTER in words:
        return (
            "kubectl knows of no cluster (it has no configuration and tried this machine); set"
            " KUBECONFIG, or name one with --context"
        )
    if "connection to the server" in words.lower():
        words += " Is that the cluster you mean? --context chooses another one."
    return words or " ".join(lines[-1:])
