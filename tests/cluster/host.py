"""A pretend machine: one daemon and all that it starts, under a host name and process numbers of their own.

    python -I host.py NAME HOSTS_FILE COMMAND...

The command runs in its own namespaces (UTS, processes, mounts), which takes Linux and root. Its descendants see the
host name NAME, HOSTS_FILE in place of /etc/hosts, and only each other in /proc.

SIGTERM is passed on to the command. SIGUSR1 is a power cut: every process of the machine is killed, and this one ends
when the last is gone. The death of the process that started this one is a power cut too.
"""

import ctypes
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWPID = 0x00020000, 0x04000000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent(with_signal: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, with_signal)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    if _LIBC.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def _init(hosts: str, command: list[str]) -> int:
    """Run as process 1: start the command, pass SIGTERM on, reap orphans, end with the command."""
    _die_with_parent(signal.SIGKILL)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", 0)
    _mount(hosts, "/etc/hosts", None, _MS_BIND)
    worker = os.fork()
    if worker == 0:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while True:
        pid, status = os.wait()
        if pid == worker:
            return abs(os.waitstatus_to_exitcode(status))


def main(name: str, hosts: str, *command: str) -> int:
    """Be the machine `name` until its command ends or its power is cut."""
    starter = os.getppid()
    _die_with_parent(signal.SIGUSR1)
    if os.getppid() != starter:
        return 1
    if _LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWPID):
        raise OSError(ctypes.get_errno(), "a pretend machine needs Linux and root")
    socket.sethostname(name)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))
    first = os.fork()
    if first == 0:
        os._exit(_init(hosts, list(command)))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(first, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _, status = os.waitpid(first, 0)
    return abs(os.waitstatus_to_exitcode(status))  # the kernel ends process 1 only after all others of its machine


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
