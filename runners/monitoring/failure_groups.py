"""Failed trials and workers that left, by kind: how many, where, since when, and advice by rule."""

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

from grid.errors import NotFoundError, StoreError
from runners.output import age, write
from runners.slurm.worker_records import WorkerRecord, given_up, read_workers, worker_logs
from store.files.atomic import read_json
from store.files.layout import Layout

if TYPE_CHECKING:
    import polars as pl

    from store.store import Store

TRACE_LINES = 12
"""Number of last lines of a traceback to show."""

_QUERY = """
    WITH counted AS (
        SELECT a.*, coalesce(t.spec->>'$.kind' = 'logged', false) AS logged FROM attempt a JOIN trial t USING (trial)
        WHERE t.status = 'failed' AND a.status IS NOT NULL
          AND ($grid IS NULL OR trial IN (SELECT trial FROM grid_trial WHERE grid = $grid))
        QUALIFY a.attempt = max(a.attempt) OVER (PARTITION BY a.trial)
    ),
    named AS (
        SELECT trial, list(DISTINCT label) AS labels, list(DISTINCT operator) AS operators
        FROM grid_trial SEMI JOIN counted USING (trial) WHERE $grid IS NULL OR grid = $grid GROUP BY trial
    )
    SELECT fingerprint, min(reason) AS reason, count(*) AS n,
           list({trial: trial, attempt: attempt, host: host, submission: submission, life: worker // 1000}) AS attempts,
           list_sort(list_distinct(flatten(list(coalesce(labels, []))))) AS labels,
           list_sort(list_distinct(flatten(list(coalesce(operators, []))))) AS operators,
           min(ended) AS first, max(ended) AS last, arg_min(trial, (ended, trial)) AS example,
           arg_min(message, (ended, trial)) AS message, arg_min(traceback, (ended, trial)) AS traceback,
           bool_or(logged) AS logged
    FROM counted LEFT JOIN named USING (trial) GROUP BY fingerprint ORDER BY n DESC, fingerprint
"""


class FailureGroup(NamedTuple):
    """Failures of one kind."""

    fingerprint: str
    reason: str
    """diverged, out_of_memory, error or killed."""
    n: int
    """Trials whose failure that counts is of this kind."""
    hosts: dict[str, int]
    """How many of them failed on each host, most first; of a cluster, nodes as its scheduler calls them."""
    labels: list[str]
    operators: list[str]
    first: float
    """When the first failed, in seconds since the epoch."""
    last: float
    example: str
    """Key of the trial that failed first."""
    message: str
    trace: list[str]
    """The last lines of its traceback; none where it has none."""
    action: str
    """Advice in one sentence."""
    scheduled: bool = False
    """Whether a scheduler ran any of them."""
    logged: bool = False
    """Whether programs that are not this one ran any of them, and logged it."""


def kinds(store: "Store", grid: str | None, again: Collection[str]) -> "pl.DataFrame":
    """`Store.failures` where `n` are failed now and a column `again` counts those queued again, by the keys `again`."""
    import polars as pl

    found = store.failures(grid)
    queued = store.sql(_AGAIN, {"grid": grid, "again": sorted(again)})
    joined = found.join(queued, on="fingerprint", how="left", nulls_equal=True, maintain_order="left")
    joined = joined.with_columns(pl.col("again").fill_null(0))
    return joined.with_columns(n=pl.col("n") - pl.col("again")).sort("n", "again", descending=True, maintain_order=True)


_AGAIN = """
    WITH ended AS (
        SELECT trial, fingerprint FROM attempt
        WHERE status IS NOT NULL AND trial IN (SELECT unnest(CAST($again AS VARCHAR[])))
          AND ($grid IS NULL OR trial IN (SELECT trial FROM grid_trial WHERE grid = $grid))
        QUALIFY attempt = max(attempt) OVER (PARTITION BY trial)
    )
    SELECT fingerprint, count(*) AS again FROM ended JOIN trial t USING (trial)
    WHERE t.status = 'failed' GROUP BY fingerprint
"""


def failures(store: "Store", grid: str | None = None) -> list[FailureGroup]:
    """The failed trials by kind, commonest first; of one grid or of all."""
    rows = store.sql(_QUERY, {"grid": grid}).rows(named=True)
    if not rows:
        return []
    places = _FailurePlaces(store.layout)
    good = {places.of(each).name for each in store.sql(_FINISHED).rows(named=True)}
    return [_cluster(row, places, good) for row in rows]


_FINISHED = """
    SELECT min(trial) AS trial, arg_min(attempt, trial) AS attempt, host, submission, worker // 1000 AS life
    FROM attempt WHERE status = 'ok' AND host IS NOT NULL GROUP BY ALL
"""


class _FailurePlace(NamedTuple):
    """Where an attempt ran."""

    name: str
    scheduled: bool


@final
class _FailurePlaces:
    """Where attempts ran; of those of one life of a worker task, which has one node, one file is read."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._known: dict[tuple[object, ...], _FailurePlace] = {}

    def of(self, attempt: Mapping[str, Any]) -> _FailurePlace:
        """`attempt` has trial, attempt, host, submission and the life of the worker task, by numbers of workers."""
        task = attempt["host"], attempt["submission"], attempt["life"]
        if task not in self._known:
            self._known[task] = self._read(attempt)
        return self._known[task]

    def _read(self, attempt: Mapping[str, Any]) -> _FailurePlace:
        try:
            place = read_json(self._layout.start(attempt["trial"], attempt["attempt"])).get("place") or {}
        except (NotFoundError, StoreError):  # the store has what it once said
            place = {}
        return _FailurePlace(str(place.get("node") or attempt["host"] or "?"), bool(place.get("node")))


def _cluster(row: Mapping[str, Any], places: _FailurePlaces, good_hosts: set[str]) -> FailureGroup:
    ran = [places.of(attempt) for attempt in row["attempts"]]
    counted = Counter(place.name for place in ran)
    hosts = dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))
    message = str(row["message"] or "")
    found = FailureGroup(
        fingerprint=str(row["fingerprint"] or ""),
        reason=str(row["reason"] or "error"),
        n=row["n"],
        hosts=hosts,
        labels=row["labels"],
        operators=row["operators"],
        first=row["first"] or 0.0,
        last=row["last"] or 0.0,
        example=str(row["example"]),
        message=message,
        trace=str(row["traceback"] or "").rstrip().splitlines()[-TRACE_LINES:],
        action="",
        scheduled=any(place.scheduled for place in ran),
        logged=bool(row["logged"]),
    )
    return found._replace(action=action(found, good_hosts))


_DATA = re.compile(r"FileNotFoundError|No such file|NotFoundError|cannot be downloaded", re.IGNORECASE)
_DISK = re.compile(r"No space left|disk quota|Read-only file system|Input/output error", re.IGNORECASE)


def action(found: FailureGroup, good_hosts: set[str]) -> str:
    """Return advice on a kind of failure. `good_hosts` are hosts where trials finished."""
    retry = f"ablate retry fingerprint={found.fingerprint}"
    logs = f"`ablate logs {found.example[:8]}` shows it"
    hosts = ", ".join(found.hosts)
    last_words = "\n".join((found.message, *found.trace[-1:]))
    if found.reason == "diverged":
        return "it counts as an outcome of these cells and would diverge again; lower the learning rate to avoid it"
    if found.logged:
        return f"{logs}; correct it, then start your program that logged it again"
    one_host = found.scheduled and found.n > 1 and len(found.hosts) == 1 and hosts != "?"
    if one_host and good_hosts - {hosts}:
        without = f"`{retry} --exclude {hosts}`"
        return f"all {found.n} failed on {hosts}, and trials finish elsewhere: {without} leaves it out"
    if found.reason == "out_of_memory":
        bigger = "; --oom bigger asks the cluster for twice the memory" if found.scheduled else ""
        return f"`{retry} --oom halve` halves the micro-batch{bigger}"
    if found.reason == "killed":
        most_often = "something ended its processes, most often too little memory"
        if not found.scheduled:
            return f"{most_often}: `{retry} --workers 1` trains one at a time, --oom halve in smaller pieces"
        return f"{most_often}: `{retry} --oom bigger` asks for twice as much, --mem and --time for what you say"
    if _DATA.search(last_words):
        return f"a file is missing on {hosts}: put it there under the same path, then `{retry}`"
    if _DISK.search(last_words):
        return f"the disk takes no more on {hosts}: free some space, then `{retry}`"
    return f"an error of the code: {logs}; correct it, then `{retry}`"


_NO_GPU = re.compile(r"no CUDA device|torch sees none|build for the CPU")


class WorkerRejection(NamedTuple):
    """Workers that left for one reason."""

    left: str
    """refused: the environment differs from the submitted one. late: too little time was left. error: the worker
    failed. unsaid: the job ended before the worker wrote a record."""
    says: str
    n: int
    hosts: dict[str, int]
    last: float
    """Seconds since the epoch."""
    action: str


class _Left(NamedTuple):
    """One worker that left so."""

    left: str
    says: str
    node: str
    at: float
    output: str = ""


def worker_rejections(layout: Layout) -> list[WorkerRejection]:
    """Workers of all submissions that left so, by what they said; commonest first."""
    kinds: dict[tuple[str, str], list[_Left]] = {}
    fit: set[str] = set()
    for submission in layout.submission_ids():
        records = read_workers(layout, submission)
        fit.update(record.node for record in records if record.left not in ("refused", "error"))
        for found in (*_find_rejections(records), *_unsaid(layout, submission, records)):
            kinds.setdefault((found.left, found.says), []).append(found)
    every = [_refusal(found, fit) for found in kinds.values()]
    return sorted(every, key=lambda each: (-each.n, each.left, each.says))


def _find_rejections(records: list[WorkerRecord]) -> Iterator[_Left]:
    for record in records:
        if record.left in ("refused", "late", "error"):
            yield _Left(record.left, record.says or "it did not say why", record.node, record.touched)


def _unsaid(layout: Layout, submission: str, records: list[WorkerRecord]) -> Iterator[_Left]:
    """Yield workers that by their output are not queued again, unless a record says so already."""
    last = {record.job: record.left for record in records}
    for job, path in worker_logs(layout, submission).items():
        printed = given_up(layout, submission, job, last.get(job))
        if printed is not None:
            yield _Left("unsaid", printed.text, printed.node, path.stat().st_mtime, str(path))


def _refusal(found: list[_Left], fit: set[str]) -> WorkerRejection:
    hosts = dict(Counter(each.node for each in found))
    return WorkerRejection(
        found[0].left, found[0].says, len(found), hosts, max(each.at for each in found), _action(found[0], hosts, fit)
    )


def _action(first: _Left, hosts: dict[str, int], fit: set[str]) -> str:
    """Return advice. Exclude nodes only if others are known to accept these trials."""
    where = ",".join(sorted(hosts))
    others = fit - set(hosts)
    if first.left == "late":
        return "ask for more --time, or a lower --signal-s, then `ablate run`"
    if first.left == "unsaid":
        return f"{first.output} says more; correct it (--setup, setup= of the spec file), then `ablate run`"
    if first.left == "error":
        return "the output of the task says more: `ablate logs KEY --worker` for a trial that it began"
    if others:
        return f"install what was submitted on {where}, or leave it out with --exclude {where}"
    if _NO_GPU.search(first.says):
        return (
            "no node that was tried has what they need: ask for GPUs (--gpus), install a CUDA build of torch, or say "
            "execution.device='auto', then `ablate run`"
        )
    return f"no node has taken these trials yet: install what was submitted on {where}, or submit what is there"


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
