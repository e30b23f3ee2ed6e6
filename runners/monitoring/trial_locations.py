"""Where every trial is: what its files say first, then what the scheduler knows of those who would train it.

| state   | means                                                                       |
|---------|-----------------------------------------------------------------------------|
| done    | it has a result                                                             |
| failed  | its last attempt failed, and nobody will try again                          |
| running | its attempt is alive                                                        |
| queued  | it is not being trained, and a worker that waits or runs will take it,      |
|         | also where it has failed before                                             |
| lost    | it was begun, its process or node is gone, and nobody will take it          |
| pending | nobody has begun it, or whoever did gave it back, and nobody will take it   |
| unknown | whoever has it, or would take it, is on a cluster that does not answer      |
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final, get_args

from grid.durations import format_hours
from runners.attempts.disk_space import disk_problem
from runners.attempts.manifest import Manifest
from runners.attempts.submission_record import SILENT_S, Submission
from runners.execution.local_runs import RemoteRun, runs_elsewhere, runs_here
from runners.output import age, format_count
from runners.slurm.scheduler import Scheduler
from runners.slurm.submissions import AT_WORK, SubmissionStatus, read_submission_status
from store.files.layout import Layout
from store.files.trial_status import AttemptState, TrialState, heartbeat_age, progress_of, trial_state

if TYPE_CHECKING:
    from store.store import Store

State = Literal["done", "failed", "running", "queued", "lost", "pending", "unknown"]
STATES: tuple[State, ...] = get_args(State)

_ENDED: dict[str, State] = {"ok": "done", "failed": "failed"}


class AtWork(NamedTuple):
    """A trial that is being trained."""

    trial: str
    label: str
    seed: int
    attempt: int
    host: str
    devices: str | None
    step: int | None
    """None until the attempt has said so."""
    steps: int | None
    loss: float | None
    steps_per_s: float | None
    """Over the whole attempt, its beginning included."""
    quiet_s: float
    """Since its last sign of life."""


class TrialLocation(NamedTuple):
    """Where one trial is."""

    state: State
    since: float | None = None
    """Last sign of an unknown or lost trial, in seconds since the epoch."""
    job: str | None = None
    """The last job of a lost trial, if any."""
    logged: bool = False
    """Whether a program that is not this one runs it, and logs it."""


@final
@dataclass(frozen=True)
class TrialLocations:
    """All that is known of a campaign's trials and workers at one moment."""

    trials: dict[str, TrialLocation]
    """By key."""
    at_work: tuple[AtWork, ...]
    submissions: tuple[SubmissionStatus, ...]
    notes: tuple[str, ...]
    """A sentence for everything that cannot be known."""
    when: float
    again: frozenset[str] = frozenset()
    """Keys of the queued trials that have failed before."""
    endings: tuple[str, ...] = ()
    """A sentence for every submission that was cancelled, or has used up its budget, before its trials were done."""
    outdated: tuple[str, ...] = ()
    """Keys of trials that are queued or running and in no grid any more: the spec was edited since."""
    runs: tuple[Submission, ...] = ()
    """Runs without a scheduler whose process is on this host, or gave a sign on another lately; they may not have begun
    a trial yet."""

    def of(self, state: State) -> list[str]:
        """Keys of the trials in a state."""
        return [key for key, found in self.trials.items() if found.state == state]


def locate_trials(store: "Store", scheduler: Scheduler, *, ended: bool = True) -> TrialLocations:
    """Look at every trial that the store knows; the scheduler is asked where workers of a cluster may be at work.

    Without `ended`, trials that the store knows to have ended are left out, except those that will be retried.
    There may be many, and `Store.progress` counts them faster.
    """
    layout, full = store.layout, disk_problem(store.layout.root)
    submissions, notes = read_submission_status(layout, scheduler)
    rows, outdated = _trials(store, None), _trials(store, None, planned=False)
    open_states = {key: trial_state(layout, key) for key, _, attempts, _ in (*rows, *outdated) if attempts}
    when = time.time()
    away = runs_elsewhere(layout, open_states)
    runs = (*runs_here(layout), *(each.record for each in away if when - each.sign < SILENT_S))
    takers = _PendingOwners(store, submissions, runs, open_states)
    found: dict[str, TrialLocation] = {}
    again: set[str] = set()
    # one for all that have ended alike: there may be very many
    alike = {(now, logged): TrialLocation(_ENDED[now], logged=logged) for now in _ENDED for logged in (False, True)}
    if ended or takers.retry:
        rows += _trials(store, "failed")
    if ended:
        rows += _trials(store, "ok")
    for key, status, _, logged in rows:
        state = open_states.get(key)
        now = state.status if state else status
        if now == "failed" and takers.try_again(key):
            found[key] = TrialLocation("queued")
            again.add(key)
        elif now not in _ENDED:
            found[key] = takers.whereabout(key, state)._replace(logged=logged)
        elif ended or state:
            found[key] = alike[now, logged]
    active = takers.active(key for key, *_ in outdated)
    notes += _outdated_notes(store, len(active))
    nobodys = {key for key, each in found.items() if each.state in ("pending", "lost")}
    quiet = [each for each in away if each.record not in runs]
    notes += [_quiet(each) for each in quiet if nobodys.intersection(takers.members(each.record.submission))]
    found |= active
    running = [(key, state) for key, state in open_states.items() if key in found and found[key].state == "running"]
    return TrialLocations(
        trials=found,
        at_work=tuple(_at_work(store, running)),
        submissions=tuple(submissions),
        notes=(*notes, full) if full else tuple(notes),
        when=when,
        again=frozenset(again),
        endings=endings(submissions, nobodys, takers.members),
        outdated=tuple(active),
        runs=runs,
    )


def _trials(store: "Store", status: str | None, *, planned: bool = True) -> list[tuple[str, str, int, bool]]:
    """Key, status, number of attempts, and whether it was logged, of trials of `status`; None: not ended.

    They are `planned` by a grid, or were submitted and are in no grid any more.
    """
    return store.sql(
        f"""
        SELECT trial, status, attempts, coalesce(spec->>'$.kind' = 'logged', false)
        FROM trial {"SEMI" if planned else "ANTI"} JOIN grid_trial USING (trial)
        WHERE status = $status OR ($status IS NULL AND NOT list_contains($ended, status)) ORDER BY trial
        """,
        {"status": status, "ended": list(_ENDED)},
    ).rows()


def _outdated_notes(store: "Store", active: int) -> Iterator[str]:
    """Sentences about trials of grids as they were before their spec was edited."""
    ended = store.sql("SELECT count(*) FROM trial ANTI JOIN grid_trial USING (trial) WHERE status = 'ok'").item()
    since = "no grid any more, since the spec was edited"
    if active:
        verb = "is" if active == 1 else "are"
        trials = format_count(active, "queued or running trial")
        yield f"{trials} {verb} in {since}; `ablate cancel --outdated` cancels {'it' if active == 1 else 'them'}"
    if ended:
        verb = "is" if ended == 1 else "are"
        yield f"{format_count(ended, 'finished trial')} {verb} in {since}; no table shows them"


def _quiet(run: RemoteRun) -> str:
    return (
        f"whether run {run.record.submission} on {run.record.host} is still at work is unknown: its last sign of "
        f"life is {age(run.sign)} old; `ablate run` takes its trials once they are free"
    )


@final
class _PendingOwners:
    """Future owners of unfinished and failed trials."""

    def __init__(
        self,
        store: "Store",
        submissions: Sequence[SubmissionStatus],
        runs: Sequence[Submission],
        states: dict[str, TrialState],
    ) -> None:
        self._store = store
        self._layout = store.layout
        self._states = states
        self._submissions = {status.record.submission: status for status in submissions}
        self._queued: set[str] = set()
        self._again: dict[str, set[str]] = {}
        self._unknown: dict[str, float] = {}
        for status in submissions:
            self._enlist(status)
        local = {str(state.live.start["submission"]) for state in states.values() if state.live is not None}
        for submission in (local | {run.submission for run in runs}) - set(self._submissions):
            self._queued.update(self.members(submission))
        for run in runs:
            self._add_retries(run, self.members(run.submission))

    def _enlist(self, status: SubmissionStatus) -> None:
        """Note the trials that a status will take, or may."""
        standings = {found.name: status.standing(found.name) for found in status.record.classes}
        if status.spent or set(standings.values()) <= {"over"}:
            return
        last = max((worker.seen for worker in status.workers), default=status.record.written)
        for found in status.record.classes:
            members = set(self._rows(status, found.rows)) - status.cancelled.trials
            if standings[found.name] == "live":
                self._queued |= members
                self._add_retries(status.record, members)
            elif standings[found.name] == "unknown":
                self._unknown.update(dict.fromkeys(members, last))

    @property
    def retry(self) -> bool:
        """Whether any of them takes trials that have failed."""
        return bool(self._again)

    def _add_retries(self, record: Submission, members: Iterable[str]) -> None:
        """Note the trials that a submission takes although they have failed."""
        if record.job.get("retry"):
            for key in members:
                self._again.setdefault(key, set()).add(record.submission)

    def try_again(self, key: str) -> bool:
        """Whether a trial that has failed will be trained again: by a submission in which it has not failed yet."""
        submissions = self._again.get(key, set())
        ended = trial_state(self._layout, key).ended if submissions else None
        return ended is not None and bool(submissions - {ended.start.get("submission")})

    def _rows(self, status: SubmissionStatus, rows: tuple[int, int]) -> Iterator[str]:
        if len(status.record.classes) == 1:
            yield from self.members(status.record.submission)
            return
        manifest = Manifest(self._layout, status.record.submission)
        for row in range(*rows):
            yield str(manifest.line(row)["trial"])

    def members(self, submission: str) -> list[str]:
        """Keys of the trials of a submission."""
        found = self._store.sql(
            "SELECT trial FROM planned WHERE source = $source", {"source": f"submissions/{submission}"}
        )
        return [str(key) for key in found["trial"]]

    def whereabout(self, key: str, state: TrialState | None) -> TrialLocation:
        """Where a trial is that has neither succeeded nor failed."""
        last = state.attempts[-1] if state and state.attempts else None
        if state is not None and state.live is not None:
            return TrialLocation("running")
        if key in self._queued:
            return TrialLocation("queued")
        if key in self._unknown:
            return TrialLocation("unknown", self._sign(key, last) or self._unknown[key])
        if last is None:
            return TrialLocation("pending")
        if last.end is not None and not self._was_dropped(key, last):
            return TrialLocation("pending")
        since = self._sign(key, last) if last.end is None else last.end.get("ended")
        return TrialLocation("lost", since, (last.start.get("place") or {}).get("job"))

    def active(self, keys: Iterable[str]) -> dict[str, TrialLocation]:
        """Return the locations of the trials that are queued or running, or may be."""
        found = {key: self.whereabout(key, self._states.get(key)) for key in keys}
        return {key: place for key, place in found.items() if place.state in ("queued", "running", "unknown")}

    def _was_dropped(self, key: str, last: AttemptState) -> bool:
        """Whether a worker of a cluster saved the trial for the next, nobody cancelled it, and there is no next."""
        status = self._submissions.get(str(last.start["submission"]))
        return status is not None and not status.cancelled.all and key not in status.cancelled.trials

    def _sign(self, key: str, last: AttemptState | None) -> float | None:
        """When the trial's last attempt was last seen alive."""
        if last is None or last.end is not None:
            return None
        quiet = heartbeat_age(self._layout, key, last.attempt)
        return None if quiet is None else time.time() - quiet


def _at_work(store: "Store", running: Sequence[tuple[str, TrialState]]) -> Iterator[AtWork]:
    if not running:
        return
    rows = store.sql(
        "SELECT trial, coalesce(min(g.label), min(p.operator)), min(p.seed) FROM planned p LEFT JOIN grid_trial g "
        "USING (trial) GROUP BY trial"
    ).rows()
    names = {key: (str(label), int(seed)) for key, label, seed in rows}
    for key, state in running:
        if state.live is not None:
            yield _observe(store.layout, key, state.live, *names[key])


def _observe(layout: Layout, key: str, live: AttemptState, label: str, seed: int) -> AtWork:
    place: dict[str, Any] = live.start.get("place") or {}
    progress = progress_of(layout, key, live.attempt)
    quiet = max(0.0, heartbeat_age(layout, key, live.attempt) or 0.0)
    return AtWork(
        trial=key,
        label=label,
        seed=seed,
        attempt=live.attempt,
        host=str(place.get("node") or live.start["host"]),
        devices=place.get("devices"),
        step=progress.step if progress else None,
        steps=progress.steps if progress else None,
        loss=progress.loss if progress else None,
        steps_per_s=_pace(live.start, progress.step if progress else None, time.time() - quiet),
        quiet_s=quiet,
    )


def _pace(start: dict[str, Any], step: int | None, seen: float) -> float | None:
    begun_at = (start.get("resumed_from") or {}).get("step", 0)
    seconds = seen - float(start["started"])
    return (step - begun_at) / seconds if step is not None and step > begun_at and seconds > 0 else None


def endings(
    submissions: Sequence[SubmissionStatus], left: Collection[str], members: Callable[[str], Collection[str]]
) -> tuple[str, ...]:
    """A sentence for each submission that has ended so and of whose trials some are `left`: nobody will take them.

    `members` are the trials of a submission. A trial counts for the latest submission that has it.
    """
    if not any(_ended_by_word(status) for status in submissions):
        return ()
    found: list[str] = []
    seen: set[str] = set()
    for status in sorted(submissions, key=lambda status: status.record.submission, reverse=True):
        trials = set(members(status.record.submission))
        mine = trials.intersection(left) - seen
        seen |= trials
        off = mine if status.cancelled.all else mine & status.cancelled.trials
        if off:
            found.append(called_off({status.record.submission: len(off)}))
        if mine - off and status.spent and not any(worker.standing in AT_WORK for worker in status.workers):
            verb = "is" if len(mine - off) == 1 else "are"
            found.append(
                f"budget: {used_up(status)} used; {format_count(len(mine - off), 'trial')} {verb} left; run again with "
                "another --budget"
            )
    return tuple(reversed(found))


def called_off(trials: Mapping[str, int]) -> str:
    """That so many trials of submissions were cancelled."""
    parts = [f"{format_count(count, 'trial')} of submission {name}" for name, count in trials.items()]
    return (
        f"cancelled: {', '.join(parts)}; `ablate run` goes on with {'it' if list(trials.values()) == [1] else 'them'}"
    )


def used_up(status: SubmissionStatus) -> str:
    """`0.0010 of 0.001 GPU-h`."""
    unit = {"gpuh": "GPU-h", "cpuh": "CPU-h"}[status.unit]
    return f"{format_hours(status.hours)} of {(status.record.budget or {})['hours']:g} {unit}"


def _ended_by_word(status: SubmissionStatus) -> bool:
    return status.spent or status.cancelled.all or bool(status.cancelled.trials)
