"""The claim on a socket path: one agent answers there, and a dead one's leftover is replaced.

A socket file outlives its process, so its existence says nothing. Two things do: an flock beside
it, which the kernel drops with its holder, and whether somebody answers. Both are asked before
anything else of a live agent's (its arena lies in the same folder) is touched.
"""

import contextlib
import datetime as dt
import errno
import fcntl
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onggi_sidecar.errors import StartRefused
from onggi_sidecar.filesystems import takes_no_files
from onggi_sidecar.group import give_to_group
from onggi_sidecar.holder import Holder, read_holder, write_holder

SOCKET_MODE: Final = 0o660
BACKLOG: Final = 256
"""As many as may be connected: a whole engine's processes may attach in one moment, and a unix
socket answers EAGAIN, not a wait, to a non-blocking client past its backlog."""
CONNECT_TIMEOUT_S: Final = 1.0


@dataclass(slots=True)
class SocketClaim:
    """The path is ours until release() or the end of the process."""

    path: Path
    lock_path: Path
    lock_fd: int

    def listen(self) -> socket.socket:
        """A listening socket at the path, usable by the shared group alone."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        server.bind(str(self.path))
        self.path.chmod(SOCKET_MODE)  # before listen(): nobody can connect until then
        give_to_group(self.path)
        server.listen(BACKLOG)
        server.settimeout(0)
        return server

    def release(self) -> None:
        """Remove the socket and the lock; the lock last, while it is still held."""
        self.path.unlink(missing_ok=True)
        _let_go(self.lock_path, self.lock_fd)


def claim_socket(path: Path) -> SocketClaim:
    """Take the path. Raises StartRefused when another agent has it or something else lies there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock_path = path.with_name(path.name + ".lock")
        lock_fd = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660)
    except OSError as fault:
        if why := takes_no_files(path.parent, fault):
            raise StartRefused(
                f"the socket's folder {path.parent} {why}; name one on a tmpfs, such as /dev/shm"
            ) from fault
        raise StartRefused(
            f"cannot use the socket's folder {path.parent} as uid {os.geteuid()}, gid "
            f"{os.getegid()}: {fault.strerror}; let one of these write to it"
        ) from fault
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = read_holder(lock_fd)
        os.close(lock_fd)
        raise StartRefused(
            f"another agent serves socket {path}: {holder}; give each agent a path of its own"
        ) from None
    if not _lies_at(lock_fd, lock_path):  # an agent that ended took its name away meanwhile
        os.close(lock_fd)
        return claim_socket(path)
    try:
        _remove_leftover(path)
    except StartRefused:
        _let_go(lock_path, lock_fd)
        raise
    since = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    with contextlib.suppress(OSError):  # the text is for people: a full volume is no reason to end
        write_holder(lock_fd, Holder(os.getpid(), "", since))
    return SocketClaim(path, lock_path, lock_fd)


def _let_go(lock_path: Path, lock_fd: int) -> None:
    """Remove a lock that is held: whoever waits for it looks whether its name is still there."""
    lock_path.unlink(missing_ok=True)
    os.close(lock_fd)


def _lies_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def _remove_leftover(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISDIR(found.st_mode):
        raise StartRefused(
            f"socket {path} is a folder; name a file in it, such as {path / 'agent.sock'}"
        )
    if not stat.S_ISSOCK(found.st_mode):
        raise StartRefused(f"{path} is not a socket; remove it, or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_TIMEOUT_S)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as fault:
            if fault.errno not in (errno.EAGAIN, errno.ETIMEDOUT) and not isinstance(
                fault, TimeoutError
            ):
                raise StartRefused(f"cannot tell who serves {path}: {fault.strerror}") from fault
    raise StartRefused(f"another process answers on socket {path}; choose another path")
