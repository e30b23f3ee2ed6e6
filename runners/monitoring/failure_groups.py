"""Failed trials and workers that left, by kind: how many, where, since when, and advice by rule."""

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from ablate.grid.errors import NotFoundError, StoreError
from ablate.grid.names import some
from ablate.runners.attempts.worker_logs import given_up, worker_log, worker_logs
from ablate.runners.attempts.worker_records import read_workers
from ablate.runners.output import age, write_prose
from ablate.store.files.atomic import read_json
from ablate.store.files.attempt_records import DIVERGED_ADVICE
from ablate.store.files.layout import Layout
from ablate.store.store import Store

TRACE_LINES = 12
"""Number of last lines of a traceback to show."""

_QUERY = """
    WITH counted AS (
        SELECT a.*, coalesce(t.spec->>'$.kind' = 'logged', false) AS logged FROM attempt a JOIN trial t USING (trial)
        WHERE t.state = 'failed' AND a.status IS NOT NULL
          AND ($grid IS NULL OR trial IN (SELECT trial FROM grid_trial WHERE grid = $grid))
          AND ($trials IS NULL OR list_contains(CAST($trials AS VARCHAR[]), trial))
        QUALIFY a.attempt = max(a.attempt) OVER (PARTITION BY a.trial)
    ),
    named AS (
        SELECT trial, list(DISTINCT label) AS labels, list(DISTINCT operator) AS operators
        FROM grid_trial SEMI JOIN counted USING (trial) WHERE $grid IS NULL OR grid = $grid GROUP BY trial
    )
    SELECT coalesce(fingerprint, '') AS fingerprint, coalesce(min(reason), 'error') AS reason, count(*) AS n,
           list({trial: trial, attempt: attempt, host: host, submission: submission, life: worker // 1000}) AS attempts,
           list_sort(list_distinct(flatten(list(coalesce(labels, []))))) AS labels,
           list_sort(list_distinct(flatten(list(coalesce(operators, []))))) AS operators,
           coalesce(min(ended), 0) AS first, coalesce(max(ended), 0) AS last, arg_min(trial, (ended, trial)) AS example,
           coalesce(arg_min(message, (ended, trial)), '') AS message,
           coalesce(arg_min(traceback, (ended, trial)), '') AS traceback, bool_or(logged) AS logged
    FROM counted LEFT JOIN named USING (trial) GROUP BY counted.fingerprint ORDER BY n DESC, counted.fingerprint
"""


class FailureGroup(NamedTuple):
    """Failures of one kind."""

    fingerprint: str
    reason: str
    """diverged, out_of_memory, error, killed or stalled."""
    n: int
    """Trials whose latest failure is of this kind."""
    hosts: dict[str, int]
    """Failures per host, most first; on a cluster, nodes as its scheduler calls them."""
    labels: list[str]
    operators: list[str]
    first: float
    """Time of the first failure, in seconds since the epoch."""
    last: float
    example: str
    """Key of the trial that failed first."""
    message: str
    trace: list[str]
    """The last lines of its traceback."""
    action: str
    """Advice in one sentence."""
    scheduled: bool = False
    """True if a scheduler ran any of them."""
    logged: bool = False
    """True if a program of the user's ran and logged any of them."""


def count_failures(
    store: Store, grid: str | None, retrying: Collection[str], trials: Collection[str] | None = None
) -> pl.DataFrame:
    """Return `Store.failures` with `n` failed now; the column `again` counts trials of `retrying`, queued again."""
    again = set(retrying) if trials is None else {*retrying} & {*trials}
    queued = store.sql(_AGAIN, {"grid": grid, "retrying": sorted(again)})
    joined = store.failures(grid, trials).join(
        queued, on="fingerprint", how="left", nulls_equal=True, maintain_order="left"
    )
    joined = joined.with_columns(pl.col("again").fill_null(0))
    return joined.with_columns(n=pl.col("n") - pl.col("again")).sort("n", "again", descending=True, maintain_order=True)


_AGAIN = """
    WITH ended AS (
        SELECT trial, fingerprint FROM attempt
        WHERE status IS NOT NULL AND trial IN (SELECT unnest(CAST($retrying AS VARCHAR[])))
          AND ($grid IS NULL OR trial IN (SELECT trial FROM grid_trial WHERE grid = $grid))
        QUALIFY attempt = max(attempt) OVER (PARTITION BY trial)
    )
    SELECT fingerprint, count(*) AS again FROM ended JOIN trial t USING (trial)
    WHERE t.state = 'failed' GROUP BY fingerprint
"""


def failures(store: Store, grid: str | None = None, trials: Sequence[str] | None = None) -> list[FailureGroup]:
    """Return the failed ones of `trials` by kind, commonest first; by default all of one grid or of all grids."""
    rows = store.sql(_QUERY, {"grid": grid, "trials": trials}).rows(named=True)
    if not rows:
        return []
    place_of = partial(_place_of, store.layout, {})
    good = {place_of(each)[0] for each in store.sql(_FINISHED).rows(named=True)}
    return [_group(row, [place_of(attempt) for attempt in row.pop("attempts")], good) for row in rows]


_FINISHED = """
    SELECT min(trial) AS trial, arg_min(attempt, trial) AS attempt, host, submission, worker // 1000 AS life
    FROM attempt WHERE status = 'ok' AND host IS NOT NULL GROUP BY ALL
"""


def _place_of(
    layout: Layout, known: dict[tuple[object, ...], tuple[str, bool]], attempt: Mapping[str, Any]
) -> tuple[str, bool]:
    """Read where an attempt ran, and whether a scheduler ran it; one file per life of a worker, which has one node."""
    worker = attempt["host"], attempt["submission"], attempt["life"]
    if worker not in known:
        try:
            node = (read_json(layout.start(attempt["trial"], attempt["attempt"])).get("place") or {}).get("node")
        except (NotFoundError, StoreError):  # the database still has its host
            node = None
        known[worker] = str(node or attempt["host"] or "?"), bool(node)
    return known[worker]


def _group(row: dict[str, Any], places: Sequence[tuple[str, bool]], good_hosts: set[str]) -> FailureGroup:
    hosts = Counter(name for name, _ in places)
    group = FailureGroup(
        hosts=dict(sorted(hosts.items(), key=lambda pair: (-pair[1], pair[0]))),
        trace=row.pop("traceback").rstrip().splitlines()[-TRACE_LINES:],
        action="",
        scheduled=any(is_scheduled for _, is_scheduled in places),
        **row,
    )
    return group._replace(action=action(group, good_hosts))


_DATA = re.compile(r"FileNotFoundError|No such file|NotFoundError|cannot be downloaded", re.IGNORECASE)
_DISK = re.compile(r"No space left|disk quota|Read-only file system|Input/output error", re.IGNORECASE)


def action(group: FailureGroup, good_hosts: set[str]) -> str:
    """Return advice on failures of one kind. `good_hosts` are hosts where trials finished."""
    retry = f"ablate retry fingerprint={group.fingerprint}"
    logs = f"`ablate logs {group.example[:8]}` shows it"
    hosts = ", ".join(group.hosts)
    last_words = "\n".join((group.message, *group.trace[-1:]))
    if group.reason == "diverged":
        return DIVERGED_ADVICE
    if group.logged:
        return f"{logs}; correct it, then start your program that logged it again"
    one_host = group.scheduled and group.n > 1 and len(group.hosts) == 1 and hosts != "?"
    if one_host and good_hosts - {hosts}:
        without = f"`{retry} --exclude {hosts}`"
        return f"all {group.n} failed on {hosts}, and trials finish elsewhere: {without} leaves it out"
    if group.reason == "out_of_memory":
        more = "; --mem, or a lower --per-gpu, gives each more memory" if group.scheduled else ""
        return f"`{retry} --oom halve` halves the micro-batch{more}"
    if group.reason == "killed":
        most_often = "something ended its processes, most often too little memory"
        if not group.scheduled:
            return f"{most_often}: `{retry} --workers 1` trains one at a time, --oom halve in smaller pieces"
        return f"{most_often}: `{retry}` with a larger --mem or a lower --per-gpu gives more, a larger --time more time"
    if group.reason == "stalled":
        return f"{logs} where it stood still; correct it, or raise execution.stall, then `{retry}`"
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
    output: str | None = None
    """File with the output of one of them; None if none left any."""


def worker_rejections(layout: Layout) -> list[WorkerRejection]:
    """Return the workers of all submissions that left without training, by reason; commonest first."""
    kinds: dict[tuple[str, str], list[tuple[str, float, str]]] = {}
    suitable: set[str] = set()
    for submission in layout.submission_ids():
        records = read_workers(layout, submission)
        suitable.update(record.node for record in records if record.left not in ("refused", "error"))
        for record in records:
            if record.left in ("refused", "late", "error"):
                says = record.says or "it did not say why"
                path = worker_log(layout, submission, record.job) if record.job else None
                output = str(path) if path and path.is_file() else ""
                kinds.setdefault((record.left, says), []).append((record.node, record.touched, output))
        last = {record.job: record.left for record in records}
        for job, path in worker_logs(layout, submission).items():
            printed = given_up(layout, submission, job, last.get(job))
            if printed is not None:
                workers = kinds.setdefault(("unsaid", printed.text), [])
                workers.append((printed.node, path.stat().st_mtime, str(path)))
    rejections = []
    for (left, says), workers in kinds.items():
        hosts = dict(Counter(node for node, _, _ in workers))
        file = next((output for *_, output in workers if output), None)
        advice, latest = _advise(left, says, hosts, suitable), max(at for _, at, _ in workers)
        rejections.append(WorkerRejection(left, says, len(workers), hosts, latest, advice, file))
    return sorted(rejections, key=lambda each: (-each.n, each.left, each.says))


def _advise(left: str, says: str, hosts: Mapping[str, int], suitable: set[str]) -> str:
    """Return advice. Exclude nodes only if others are known to accept these trials."""
    where = ",".join(sorted(hosts))
    if left == "late":
        return "ask for more --time, or a lower --signal-s, then `ablate run`"
    if left == "unsaid":
        return "correct what its output says (--setup, setup= of the spec file), then `ablate run`"
    if left == "error":
        return "read its output, then `ablate run`"
    if suitable - set(hosts):
        return f"install what was submitted on {where}, or leave it out with --exclude {where}"
    if _NO_GPU.search(says):
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


def write_groups(groups: Sequence[FailureGroup | WorkerRejection]) -> None:
    """Write a paragraph per kind: what, how often, where, when, the first traceback, and advice."""
    for each in groups:
        for line in _paragraph(each):
            write_prose(line, hanging=7)


def _paragraph(group: FailureGroup | WorkerRejection) -> Iterator[str]:
    ago = f"{_format_time(group.last)} ({age(group.last)} ago)"
    if isinstance(group, WorkerRejection):
        yield f"{group.n} x {_LEFT[group.left]}: {group.says}"
        yield f"    on     {_hosts(group.hosts, group.n)}, last {ago}"
        if group.output:
            yield f"    output {group.output}"
    else:
        span = _format_time(group.first) if group.n == 1 else f"{_format_time(group.first)} to {ago}"
        yield f"{group.n} x {group.reason}  {group.fingerprint}  {group.message}"
        yield f"    cells  {some(group.labels, _MOST_NAMES)}"
        yield f"    on     {_hosts(group.hosts, group.n)}, {span}"
        yield f"    first  trial {group.example[:12]}"
        yield from (f"           {line}" for line in group.trace)
    yield f"    do     {group.action}"


def _hosts(hosts: Mapping[str, int], n: int) -> str:
    if len(hosts) == 1:
        return next(iter(hosts)) if n == 1 else f"all {n} on {next(iter(hosts))}"
    return some([f"{count} on {host}" for host, count in hosts.items()], _MOST_NAMES)


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
