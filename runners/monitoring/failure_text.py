"""Failures by kind, as a person reads them."""

import time
from collections.abc import Mapping, Sequence

from runners.monitoring.failure_groups import FailureGroup
from runners.monitoring.worker_rejections import WorkerRejection
from runners.output import age, write

_MOST_NAMES = 6
_LEFT = {
    "refused": "worker refused to train",
    "late": "worker had no time to begin in",
    "error": "worker broke down",
    "unsaid": "worker was given up",
}


def write_clusters(found: Sequence[FailureGroup]) -> None:
    """A paragraph per kind: what, how often, where, since when, the first trace, and what to do."""
    for each in found:
        span = _when(each.first) if each.n == 1 else f"{_when(each.first)} to {_when(each.last)} ({age(each.last)} ago)"
        write(f"{each.n} x {each.reason}  {each.fingerprint}  {each.message}")
        write(f"    of     {_some(each.labels)}")
        write(f"    on     {_hosts(each.hosts, each.n)}, {span}")
        write(f"    first  trial {each.example[:12]}")
        for line in each.trace:
            write(f"           {line}")
        write(f"    do     {each.action}")


def kind_line(n: int, again: int, reason: str, message: str) -> str:
    """A kind of failure in one line: how many trials are failed now, and how many more are queued again."""
    if not n:
        return f"failed and queued again: {again} x {reason}: {message}"
    return f"failed: {n} x {reason}{f' and {again} queued again' if again else ''}: {message}"


def write_refusals(found: Sequence[WorkerRejection]) -> None:
    """A paragraph per reason for which workers left."""
    for each in found:
        write(f"{each.n} x {_LEFT[each.left]}: {each.says}")
        write(f"    on     {_hosts(each.hosts, each.n)}, last {_when(each.last)} ({age(each.last)} ago)")
        write(f"    do     {each.action}")


def _hosts(hosts: Mapping[str, int], n: int) -> str:
    if len(hosts) == 1:
        return next(iter(hosts)) if n == 1 else f"all {n} on {next(iter(hosts))}"
    return _some([f"{count} on {host}" for host, count in hosts.items()])


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
