"""Runs a command that cannot outlive the demo: `leash.py PARENT_PID COMMAND...`.

The kernel ends the process with its parent, however that one goes (it keeps this promise across
exec). The process gets a session of its own, so Ctrl-C reaches the demo alone, which then ends its
children in the right order.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the demo was gone before its child began")
    os.execvp(command[0], command)
