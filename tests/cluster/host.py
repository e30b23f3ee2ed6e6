"""A pretend machine: one daemon and all that it starts, under a host name and process numbers of their own.

    python -I host.py NAME HOSTS_FILE COMMAND...

On Linux as root the command runs in its own namespaces (UTS, processes, mounts). Its descendants see the host name
NAME, HOSTS_FILE in place of /etc/hosts, and only each other in /proc. Without permission they share this machine's
name, and the first line on stderr says so.

SIGTERM is passed on to the command. SIGUSR1 is a power cut: every process of the machine is killed, and this one ends
when the last is gone. The death of the process that started this one is a power cut too.
"""

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWPID = 0x00020000, 0x04000000, 0x20000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent(with_signal: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, with_signal)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    if _LIBC.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def separate(name: str) -> bool:
    """Leave this machine's host name, mounts and (for children) process numbers; False where it is not permitted."""
    if _LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWPID):
        return False
    socket.sethostname(name)
    return True


def descendants(ancestor: int) -> set[int]:
    """Every living process that `ancestor` started, directly or not."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = text[text.rindex(")") + 1 :].split()[:2]
        if state != "Z":
            children.setdefault(int(parent), []).append(int(stat.parent.name))
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


def _cut() -> None:
    """Kill all there is, until nothing more appears."""
    while alive := descendants(os.getpid()):
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap(block=False)


def _reap(*, block: bool) -> dict[int, int]:
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, 0 if block and not ended else os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _init(hosts: str, command: list[str]) -> int:
    """Run as process 1: start the command, reap orphans, end with the command."""
    _die_with_parent(signal.SIGKILL)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", 0)
    _mount(hosts, "/etc/hosts", None, _MS_BIND)
    return _serve(command)


def _serve(command: list[str]) -> int:
    """Run the command to its end; pass SIGTERM on."""
    worker = os.fork()
    if worker == 0:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while True:
        ended = _reap(block=True)
        if worker in ended:
            return abs(ended[worker])


def main(name: str, hosts: str, *command: str) -> int:
    """Be the machine `name` until its command ends or its power is cut."""
    starter = os.getppid()
    _die_with_parent(signal.SIGUSR1)
    if os.getppid() != starter:
        return 1
    if separate(name):
        return _watch(hosts, list(command))
    sys.stderr.write("this machine does not permit host names of one's own\n")
    sys.stderr.flush()
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGUSR1, lambda *_: (_cut(), os._exit(0)))
    code = _serve(list(command))
    _cut()
    return code


def _watch(hosts: str, command: list[str]) -> int:
    """Outside of the machine: its switch."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGUSR1))
    first = os.fork()
    if first == 0:
        os._exit(_init(hosts, command))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGTERM))
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(first, signal.SIGKILL))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return abs(_reap(block=True)[first])  # the kernel ends process 1 only after all others of its machine


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
