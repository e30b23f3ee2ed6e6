"""Where every trial is, by its files, and by what the scheduler knows of its workers."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ablate.grid.durations import format_duration, format_hours, format_short
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.disk_space import disk_problem
from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.submission_record import SILENT_S, Submission, open_runs
from ablate.runners.backends.backend import AT_WORK, Submissions, SubmissionStatus, outdated_words
from ablate.runners.output import age, format_count
from ablate.store.files.layout import Layout
from ablate.store.files.records import Progress
from ablate.store.files.trial_state import TrialState, heartbeat_age, trial_state
from ablate.store.state import CLAIMED, ENDED, UNCLAIMED, State

if TYPE_CHECKING:  # `ablate cancel` opens no database
    from ablate.store.store import Store

_IDLE_S, _IDLE_STEPS = 60.0, 100.0
"""A trial without progress is told of after so many seconds and so many times the duration of a step."""


class RunningTrial(NamedTuple):
    """A trial that is being trained."""

    trial: str
    label: str
    seed: int
    attempt: int
    host: str
    devices: str | None
    step: int | None
    """None until the attempt reports progress."""
    steps: int | None
    loss: float | None
    steps_per_s: float | None
    """Over the whole attempt."""
    quiet_s: float
    """Seconds since its last sign of life."""
    idle_s: float | None = None
    """Seconds since it last made progress: a step, or a batch of an evaluation; None: unknown."""
    step_s: float | None = None
    """Seconds that a step usually takes; None before the second one."""

    @property
    def stall(self) -> str | None:
        """Say for how long there was no step; None if this is not unusual: under a minute, or under 100 steps."""
        if self.idle_s is None or self.idle_s < max(_IDLE_S, _IDLE_STEPS * (self.step_s or 0.0)):
            return None
        usual = "" if self.step_s is None else f"; steps took {format_short(self.step_s)}"
        return f"no step for {format_duration(self.idle_s)}{usual}"


class TrialLocation(NamedTuple):
    """Where one trial is."""

    state: State
    since: float | None = None
    """Last sign of an unknown or lost trial, in seconds since the epoch."""
    job: str | None = None
    """The last job of a lost trial, if any."""
    logged: bool = False
    """True if a program of the user's runs and logs it."""


@final
@dataclass(frozen=True)
class TrialLocations:
    """A campaign's trials and workers at one moment."""

    trials: dict[str, TrialLocation]
    """By key."""
    at_work: tuple[RunningTrial, ...]
    submissions: tuple[SubmissionStatus, ...]
    notes: tuple[str, ...]
    """Sentences about what cannot be known."""
    when: float
    retrying: frozenset[str] = frozenset()
    """Keys of the queued trials that have failed before."""
    endings: tuple[str, ...] = ()
    """Sentences about submissions that were cancelled or used up their budget before their trials were done."""
    outdated: tuple[str, ...] = ()
    """Keys of trials that are queued or running and in no grid any more: the spec was edited since."""
    runs: tuple[Submission, ...] = ()
    """Runs without a scheduler that are at work here, or lately gave a sign on another host."""

    def of(self, state: State) -> list[str]:
        """Return the keys of the trials in a state."""
        return [key for key, place in self.trials.items() if place.state == state]


def locate_trials(
    store: "Store", backend: Submissions | None = None, *, max_age_s: float = 0.0, done: bool = True
) -> TrialLocations:
    """Locate every trial that the store knows; the backend (default all) is asked about workers, as of `Backend.list`.

    Without `done`, trials that the store knows as done are left out: there may be many, and it counts them faster.
    """
    layout, full = store.layout, disk_problem(store.layout.root)
    submissions, notes = (backend or Submissions()).list(layout, max_age_s)
    rows = store.sql(
        """
        SELECT trial, state, attempts, coalesce(spec->>'$.kind' = 'logged', false) AS logged,
               trial IN (SELECT trial FROM grid_trial) AS planned
        FROM trial WHERE $done OR state <> 'done' ORDER BY planned DESC, trial
        """,
        {"done": done},
    ).rows()
    open_rows = [row for row in rows if row[1] not in ENDED]
    open_states = dict(_read_states(layout, (key for key, _, attempts, *_ in open_rows if attempts)))
    when = time.time()
    unended = open_runs(layout, open_states)
    runs = tuple(each.record for each in unended if when - each.sign < SILENT_S)
    owners = _TrialOwners(store, submissions, runs, open_states)
    trials = {key: owners.place(key, State(state), logged=logged) for key, state, _, logged, planned in rows if planned}
    left = {key for key, each in trials.items() if each.state in UNCLAIMED}
    unplanned = {key: owners.locate(key) for key, *_, planned in open_rows if not planned}
    outdated = {key: place for key, place in unplanned.items() if place.state in CLAIMED}
    trials |= outdated
    notes += [*outdated_notes(store, len(outdated)), *infinite_notes(store)]
    notes += [
        f"whether run {run.record.submission} on {run.record.host} is still at work is unknown: its last sign of "
        f"life is {age(run.sign)} old; `ablate run` takes its trials once they are free"
        for run in unended
        if run.record not in runs and left.intersection(owners.members(run.record.submission))
    ]
    running = {key: open_states[key] for key in open_states if key in trials and trials[key].state == State.RUNNING}
    at_work = tuple(_at_work(store, running))
    trials |= {each.trial: trials[each.trial]._replace(state=State.STALLED) for each in at_work if each.stall}
    return TrialLocations(
        trials=trials,
        at_work=at_work,
        submissions=tuple(submissions),
        notes=(*notes, full) if full else tuple(notes),
        when=when,
        retrying=frozenset(owners.retrying),
        endings=tuple(reversed([*_endings(submissions, left, owners)])),
        outdated=tuple(outdated),
        runs=runs,
    )


def _read_states(layout: Layout, keys: Iterable[str]) -> Iterator[tuple[str, TrialState]]:
    """Read the states of trials, without those that cannot be read; the store lists their files."""
    for key in keys:
        with suppress(EnvironmentProblem):
            yield key, trial_state(layout, key)


def outdated_notes(store: "Store", active: int) -> Iterator[str]:
    """Say how many trials, `active` of them queued or running, an edit of the spec took out of their grids."""
    ended = store.sql("SELECT count(*) FROM trial ANTI JOIN grid_trial USING (trial) WHERE state = 'done'").item()
    if active:
        yield f"{outdated_words(active, 'queued or running')}; `ablate cancel --outdated` cancels them"
    if ended:
        yield f"{outdated_words(ended, 'finished')}; no table shows these results"


def infinite_notes(store: "Store") -> Iterator[str]:
    """Say how many finished trials have a measure that is no finite number, in each grid that has some."""
    from ablate.store.database import queries

    for grid in store.grids():
        if measure := store.grid(grid)["measure"]:
            condition, parameters = queries.agrees(measure["point"])
            query = f"SELECT count(DISTINCT trial) FROM v_final WHERE grid = $grid AND name = $name AND {condition}"
            asked = {"grid": grid, "name": measure["name"], **parameters}
            if trials := store.sql(f"{query} AND NOT isfinite(value)", asked).item():
                verb = "has" if trials == 1 else "have"
                yield f"{format_count(trials, 'finished trial')} of grid {grid} {verb} no finite {measure['name']}"


@final
class _TrialOwners:
    """Workers and runs that will take unfinished and failed trials."""

    def __init__(
        self,
        store: "Store",
        submissions: Sequence[SubmissionStatus],
        runs: Sequence[Submission],
        states: dict[str, TrialState],
    ) -> None:
        self._store, self._layout, self._states = store, store.layout, states
        self._submissions = {status.record.submission: status for status in submissions}
        self._queued: set[str] = set()
        self._unknown: dict[str, float] = {}
        self._retries: dict[str, set[str]] = {}
        """Submissions that take a trial although it has failed."""
        self.retrying: set[str] = set()
        """Failed trials that `place` found queued again."""
        for status in submissions:
            self._add_submission(status)
        local = {str(state.live.start["submission"]) for state in states.values() if state.live is not None}
        for submission in (local | {run.submission for run in runs}) - set(self._submissions):
            self._queued.update(self.members(submission))
        for run in runs:
            self._add_retries(run, self.members(run.submission))

    def _add_submission(self, status: SubmissionStatus) -> None:
        standings = {each.name: status.standing(each.name) for each in status.record.classes}
        if status.spent or set(standings.values()) <= {"over"}:
            return
        last = max((worker.seen for worker in status.workers), default=status.record.written)
        for each in status.record.classes:
            if len(status.record.classes) == 1:
                members = self.members(status.record.submission)
            else:
                manifest = Manifest(self._layout, status.record.submission)
                members = {manifest.trial(row) for row in range(*each.rows)}
            members -= status.cancelled.trials
            if standings[each.name] == "live":
                self._queued |= members
                self._add_retries(status.record, members)
            elif standings[each.name] == "unknown":
                self._unknown.update(dict.fromkeys(members, last))

    def _add_retries(self, record: Submission, members: Iterable[str]) -> None:
        if record.job.get("retry"):
            for key in members:
                self._retries.setdefault(key, set()).add(record.submission)

    def place(self, key: str, recorded: State, *, logged: bool) -> TrialLocation:
        """Locate a trial by its files, or by its `recorded` state if it is not open."""
        known = self._states.get(key)
        state = known.state if known else recorded
        if state == State.FAILED and self._will_retry(key):
            self.retrying.add(key)
            return TrialLocation(State.QUEUED)
        return TrialLocation(state, logged=logged) if state in ENDED else self.locate(key, logged=logged)

    def _will_retry(self, key: str) -> bool:
        """Return True if a submission in which the failed trial has not failed yet will train it."""
        submissions = self._retries.get(key, set())
        ended = trial_state(self._layout, key).ended if submissions else None
        return ended is not None and bool(submissions - {ended.start.get("submission")})

    def members(self, submission: str) -> set[str]:
        """Return the keys of the trials of a submission."""
        query = "SELECT trial FROM planned WHERE source = $source"
        return set(self._store.sql(query, {"source": f"submissions/{submission}"})["trial"])

    def locate(self, key: str, *, logged: bool = False) -> TrialLocation:
        """Locate a trial that has neither succeeded nor failed."""
        known = self._states.get(key)
        state = known.state if known else State.PENDING
        if state == State.RUNNING:
            return TrialLocation(state, logged=logged)
        if key in self._queued:
            return TrialLocation(State.QUEUED, logged=logged)
        last = known.attempts[-1] if known and known.attempts else None
        quiet = heartbeat_age(self._layout, key, last.attempt) if last and last.end is None else None
        sign = None if quiet is None else time.time() - quiet
        if key in self._unknown:
            return TrialLocation(State.UNKNOWN, sign or self._unknown[key], logged=logged)
        if state != State.LOST or last is None:
            return TrialLocation(state, logged=logged)
        return TrialLocation(state, sign, (last.start.get("place") or {}).get("job"), logged)


def _at_work(store: "Store", states: Mapping[str, TrialState]) -> Iterator[RunningTrial]:
    running = {key: state.live for key, state in states.items() if state.live is not None}
    if not running:
        return
    rows = store.sql(
        "SELECT trial, coalesce(min(g.label), min(p.operator)), min(p.seed) FROM planned p LEFT JOIN grid_trial g "
        "USING (trial) GROUP BY trial"
    ).rows()
    names = {key: (str(label), int(seed)) for key, label, seed in rows}
    for key, live in running.items():
        label, seed = names[key]
        place: dict[str, Any] = live.start.get("place") or {}
        progress = Progress.of(store.layout, key, live.attempt)
        quiet = max(0.0, heartbeat_age(store.layout, key, live.attempt) or 0.0)
        step, first = progress.step if progress else None, (live.start.get("resumed_from") or {}).get("step", 0)
        seconds = time.time() - quiet - float(live.start["started"])
        yield RunningTrial(
            trial=key,
            label=label,
            seed=seed,
            attempt=live.attempt,
            host=str(place.get("node") or live.start["host"]),
            devices=place.get("devices"),
            step=step,
            steps=progress.steps if progress else None,
            loss=progress.loss if progress else None,
            steps_per_s=(step - first) / seconds if step is not None and step > first and seconds > 0 else None,
            quiet_s=quiet,
            idle_s=progress.idle_s + quiet if progress and progress.idle_s is not None else None,
            step_s=progress.step_s if progress else None,
        )


def _endings(submissions: Sequence[SubmissionStatus], left: set[str], owners: _TrialOwners) -> Iterator[str]:
    """Describe each submission that was cancelled, or used up its budget, before its trials were done; latest first.

    A trial of `left`, which nobody will take, counts for the latest submission that has it.
    """
    if not any(status.spent or status.cancelled.all or status.cancelled.trials for status in submissions):
        return
    seen: set[str] = set()
    for status in sorted(submissions, key=lambda status: status.record.submission, reverse=True):
        trials = owners.members(status.record.submission)
        mine = trials & left - seen
        seen |= trials
        cancelled = mine if status.cancelled.all else mine & status.cancelled.trials
        if cancelled:
            yield describe_cancelled({status.record.submission: len(cancelled)})
        if mine - cancelled and status.spent and not any(worker.standing in AT_WORK for worker in status.workers):
            count = format_count(len(mine - cancelled), "trial")
            yield f"budget: {hours_used(status)}; {count} left; run again with another --budget"


def describe_cancelled(trials: Mapping[str, int]) -> str:
    """Describe how many trials of submissions were cancelled."""
    parts = [f"{format_count(count, 'trial')} of submission {name}" for name, count in trials.items()]
    return f"cancelled: {', '.join(parts)}; `ablate run` goes on with {'it' if [*trials.values()] == [1] else 'them'}"


def hours_used(status: SubmissionStatus) -> str:
    """Describe the hours of a submission's workers so far, and its budget if it has one."""
    budget = status.record.budget
    limit = f"of {budget['hours']:g} " if budget else ""
    unit = {"gpuh": "GPU-h", "cpuh": "CPU-h"}[status.unit]
    return f"{format_hours(status.hours)} {limit}{unit} used"
