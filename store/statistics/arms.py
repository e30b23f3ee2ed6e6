"""The runs of a grid as pairs of arms: which seeds can be compared with the baseline, and what forbids it.

With three shared seeds or more the comparison is paired, and runs whose partner is missing are left out. With fewer it
is Welch's, of all runs, if both arms have three. `docs/statistics.md` has the simulation that decided this.
"""

import math
from collections.abc import Iterable, Mapping, Set
from typing import Literal, NamedTuple, Self

import numpy as np
import polars as pl

from ablate.grid.errors import NotFoundError, SpecError, StoreError
from ablate.grid.suggestions import suggest_name
from ablate.store.state import OF_FILES, State
from ablate.store.statistics.paired_differences import Floats, Paired, summarise, welch
from ablate.store.statistics.scales import Scale, fits, forward, misfit, varies
from ablate.store.statistics.verdict import MIN_PAIRS, Method

Baseline = str | Mapping[str, str]
"""The cell that all others are compared with, or the baseline of each cell that has one."""

COLUMNS = ("cell", "label", "operator", "seed", "value", "state")

_TOO_FEW = "a verdict needs at least"
_UNFAIR = "{} differ between the groups ({}), so the {} are not a fair sample"
_NO_NOISE = "each group has one value on all of its seeds, so its noise is unknown; does the seed reach the runs?"
_UNPAIRED_CHOICE = "levels were chosen by runs, and the error that choosing adds is known for shared seeds only"
_UNREADABLE = "no readable result (quarantined shard); `ablate run SPEC --rerun-stale` trains again"
_MIXED = (
    "mixed code: the runs come from {} versions of the code; train those of another version again, as `ablate run SPEC "
    "--rerun-stale` does"
)
_NO_SEED = (
    "the seed does not reach the program: seeds {} and {} {} have equal metrics; write {{seed}} into its command "
    "line, or have it draw its random numbers from Python, numpy or torch"
)

Outcome = Literal["measured", "failed", "not finite", "unmeasured", "unreadable", "outstanding"]
"""failed: its attempt ended as failed. A finished run's measure is NaN or infinite (not finite), was never recorded
(unmeasured), or cannot be read (unreadable)."""


class SeedRun(NamedTuple):
    """One trial as the statistics see it; None is unknown."""

    value: float | None
    state: str
    budget: float | None
    code: str | None
    wall_s: float | None = None
    gpu: bool | None = None
    unreadable: bool | None = None  # finished, and its value cannot be read
    reported: str | None = None  # a digest of all that a program reported
    chosen: float | None = None  # the value of the level that all seeds choose, of a tuned cell

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        if self.state != State.DONE:
            return "failed" if self.state == State.FAILED else "outstanding"
        if self.value is not None:
            return "measured" if math.isfinite(self.value) else "not finite"
        return "unmeasured" if self.unreadable is False else "unreadable"


class Arm(NamedTuple):
    """A cell and its runs by seed."""

    cell: str
    label: str
    operator: str
    runs: dict[int, SeedRun]

    @property
    def unmeasured(self) -> bool:
        """Whether every run has finished without recording the measure, so that no more seeds can be compared."""
        return bool(self.runs) and all(run.outcome == "unmeasured" for run in self.runs.values())

    @property
    def measured(self) -> set[int]:
        """Seeds with a value."""
        return self.ended_as("measured")

    def ended_as(self, *outcomes: Outcome) -> set[int]:
        """Seeds with one of these outcomes."""
        return {seed for seed, run in self.runs.items() if run.outcome in outcomes}

    @property
    def unusable(self) -> set[int]:
        """Seeds that ended without a finite value: these are no gap, as the rest is a selection."""
        return self.ended_as("failed", "not finite")

    def values(self, seeds: Iterable[int]) -> Floats:
        """The values of `seeds` in ascending order."""
        return np.array([self.runs[seed].value for seed in sorted(seeds)], dtype=np.float64)


class Unusable(NamedTuple):
    """How many runs of a group ended without a finite value."""

    failed: int
    not_finite: int

    @classmethod
    def among(cls, arm: Arm, seeds: Set[int]) -> Self:
        return cls(len(arm.ended_as("failed") & seeds), len(arm.ended_as("not finite") & seeds))

    def describe(self, where: str, *, every: bool = False) -> str:
        """Say what happened to these runs; `every` if a group has no others."""
        runs = _count(self.failed, "run")
        failed = f"{'all ' if every and not self.not_finite else ''}{runs} {where} failed" if self.failed else ""
        infinite = f"the measure is not a finite number in {_count(self.not_finite, 'finished run')} {where}"
        return " and ".join(filter(None, (failed, infinite if self.not_finite else "")))


class Pairing(NamedTuple):
    """A cell against its baseline: values in analysis units, and what stands in the way."""

    arm: Arm
    method: Method
    ours: Floats  # paired: on the shared seeds, in their order; Welch: of all runs
    theirs: Floats
    shared: int  # seeds on which both arms have a value: `n` of `ablate table`
    spread: bool
    problem: str | None
    note: str
    wall_s: float | None  # seconds of one seed in both arms, by medians over finished runs; None if one has none
    on_gpu: bool  # every run is known to have used a GPU
    chosen: Floats | None = None  # differences of the levels that all seeds choose, of tuned cells
    unfair: str | None = None  # the problem, but for too few pairs and no spread

    @property
    def differences(self) -> Floats:
        """Cell minus baseline per shared seed, [pairs]; empty without pairing."""
        return self.ours - self.theirs if self.method == "paired t" else np.empty(0)

    @property
    def summary(self) -> Paired:
        plain = summarise(self.differences) if self.method == "paired t" else welch(self.ours, self.theirs)
        return plain if self.chosen is None else widen_by_choice(plain, self.chosen)


def widen_by_choice(left_out: Paired, chosen: Floats) -> Paired:
    """Widen the spread of `left_out` by what choosing adds: `chosen` are differences of the levels chosen on all seeds.

    The standard error is sqrt(max(s, c)^2 + b^2): s that of the differences left one out, c that of `chosen`, b the
    difference of both means. With s alone, up to 26 % of claims are false where levels are equal (docs/statistics.md).
    """
    fixed = summarise(chosen)
    error = np.maximum(left_out.sd / np.sqrt(left_out.n), fixed.sd / np.sqrt(fixed.n))
    return left_out._replace(sd=np.sqrt(left_out.n) * np.hypot(error, left_out.mean - fixed.mean))


def arms(values: pl.DataFrame) -> dict[str, Arm]:
    """The cells of `values` in order of appearance; raises when columns lack, a state is unknown or a seed repeats."""
    missing = [name for name in COLUMNS if name not in values.columns]
    if missing:
        raise SpecError(f"the columns {missing} are missing from {values.columns}; statistics need {list(COLUMNS)}")
    cells: dict[str, Arm] = {}
    for row in values.iter_rows(named=True):
        arm = cells.setdefault(row["cell"], Arm(row["cell"], row["label"], row["operator"], {}))
        if row["seed"] in arm.runs:
            raise StoreError(
                f"{arm.label!r} has seed {row['seed']} twice; make the store again: `ablate check --rebuild`"
            )
        if row["state"] not in OF_FILES:
            of = f"{arm.label!r} seed {row['seed']}"
            raise StoreError(f"{of} has the state {row['state']!r}; it is one of {', '.join(OF_FILES)}")
        fields = {
            name: row.get(name) for name in ("budget", "code", "wall_s", "gpu", "unreadable", "reported", "chosen")
        }
        arm.runs[row["seed"]] = SeedRun(row["value"], row["state"], **fields)
    return cells


def match_arms(cells: Mapping[str, Arm], baseline: Baseline) -> list[tuple[Arm, Arm]]:
    """Each arm that is no baseline, with its baseline. Raises NotFoundError for a baseline that is no cell."""
    return [(cells[cell], cells[base]) for cell, base in match_cells(list(cells), baseline).items()]


def match_cells(cells: list[str], baseline: Baseline) -> dict[str, str]:
    """The baseline of each cell that is none, in the order of `cells`. Raises as `match_arms`."""
    if isinstance(baseline, str):
        bases = {cell: baseline for cell in cells if cell != baseline}
    else:
        bases = {cell: baseline[cell] for cell in cells if cell in baseline}
    for base in [baseline] if isinstance(baseline, str) else bases.values():
        if base not in cells:
            raise NotFoundError(f"the baseline {base!r} is not among the {len(cells)} cells{suggest_name(base, cells)}")
    return bases


def pair(arm: Arm, base: Arm, scale: Scale) -> Pairing:
    """The values of the two arms that are compared, in seed order, with the first reason against a verdict."""
    shared = arm.measured & base.measured
    paired = len(shared) >= MIN_PAIRS or min(len(arm.measured), len(base.measured)) < MIN_PAIRS
    seeds = (shared, shared) if paired else (arm.measured, base.measured)
    ours, theirs = arm.values(seeds[0]), base.values(seeds[1])
    usable = fits(ours, scale) and fits(theirs, scale)
    ours, theirs = (forward(side, scale) if usable else np.full(side.size, np.nan) for side in (ours, theirs))
    sides = [ours - theirs] if paired else [ours, theirs]
    spread = min(ours.size, theirs.size) > 1 and any(varies(side, (ours, theirs), scale) for side in sides)
    used = [*(arm.runs[seed] for seed in sorted(seeds[0])), *(base.runs[seed] for seed in sorted(seeds[1]))]
    codes = {run.code for run in used}
    unfair = (
        _no_run_usable(arm, base)
        or _none_measured(arm, base)
        or _failures_differ(arm, base, paired=paired)
        or (None if usable else misfit(scale))
        or (_UNPAIRED_CHOICE if not paired and any(run.chosen is not None for run in arm.runs.values()) else None)
        or _budgets_differ(arm, base, sorted(shared) if paired else None, used)
        or (_MIXED.format(len(codes)) if len(codes) > 1 else None)
        or _seed_ignored(arm, base)
    )
    problem = (
        unfair
        or (_too_few(arm, base, len(shared)) if paired and len(shared) < MIN_PAIRS else None)
        or (None if spread else no_spread(ours, theirs) if paired else _NO_NOISE)
    )
    unread = _count_runs(arm, base, "unreadable")
    caution = f"{unread} finished {'trial has' if unread == 1 else 'trials have'} {_UNREADABLE}" if unread else ""
    problem = f"{caution}; {problem}" if problem and caution else problem
    notes = [_count_pairs(arm, base, len(shared)), *_count_left_out(arm, base, len(shared), paired=paired), caution]
    note = "; ".join(filter(None, notes))
    method: Method = "paired t" if paired else "Welch"
    took = [
        [run.wall_s for run in side.runs.values() if run.outcome == "measured" and run.wall_s is not None]
        for side in (arm, base)
    ]
    wall_s = sum(float(np.median(each)) for each in took) if all(took) else None
    on_gpu = {run.gpu for run in used} == {True}
    chosen = _choose(arm, base, sorted(seeds[0] & seeds[1]), scale) if usable else None
    return Pairing(arm, method, ours, theirs, len(shared), spread, problem, note, wall_s, on_gpu, chosen, unfair)


def _choose(arm: Arm, base: Arm, shared: list[int], scale: Scale) -> Floats | None:
    """Differences of the levels that all seeds choose, on seeds where both have a value; None if nothing was chosen."""
    if all(run.chosen is None for side in (arm, base) for run in side.runs.values()):
        return None
    both = [(arm.runs[seed].chosen, base.runs[seed].chosen) for seed in shared]
    known = [pair for pair in both if None not in pair and np.isfinite(np.array(pair, dtype=np.float64)).all()]
    ours, theirs = np.array(known, dtype=np.float64).reshape(-1, 2).T
    if not (fits(ours, scale) and fits(theirs, scale)):
        return np.empty(0)
    return forward(ours, scale) - forward(theirs, scale)


def count_planned_pairs(arm: Arm, base: Arm) -> int:
    """Count the pairs of planned runs that share a seed."""
    return len(arm.runs.keys() & base.runs.keys())


def only_survivors(here: Unusable, there: Unusable, runs: int) -> str | None:
    """Why a comparison of `runs` in one group each is forbidden if these are not usable; None where all are."""
    sides = [(side, where) for side, where in ((here, "here"), (there, "in the baseline")) if sum(side)]
    if told := [side.describe(where, every=True) for side, where in sides if sum(side) == runs]:
        return f"{' and '.join(told)}, so there is nothing to compare"
    told = [
        f"{side.failed} failed only {where}" if not side.not_finite else side.describe(f"only {where}")
        for side, where in sides
    ]
    return _unfair(told, here, there) if told else None


def _unfair(told: list[str], *sides: Unusable) -> str:
    failures = not any(side.not_finite for side in sides)
    words = ("failures", "survivors") if failures else ("runs without a finite value", "others")
    return _UNFAIR.format(words[0], ", ".join(told), words[1])


def _no_run_usable(arm: Arm, base: Arm) -> str | None:
    for side, where in ((arm, "here"), (base, "in the baseline")):
        if side.runs and side.unusable == side.runs.keys():
            told = Unusable.among(side, side.unusable).describe(where, every=True)
            return f"{told}, so there is nothing to compare"
    return None


def _none_measured(arm: Arm, base: Arm) -> str | None:
    for side, where in ((arm, "here"), (base, "in the baseline")):
        if side.runs and all(run.outcome == "unmeasured" for run in side.runs.values()):
            told = f"the {_count(len(side.runs), 'run')} {where} ended without recording the measure"
            return f"{told}, so there is nothing to compare"
    return None


def _failures_differ(arm: Arm, base: Arm, *, paired: bool) -> str | None:
    if paired:
        here, there = Unusable.among(arm, base.measured), Unusable.among(base, arm.measured)
        return only_survivors(here, there, count_planned_pairs(arm, base))
    here, there = Unusable.among(arm, arm.unusable), Unusable.among(base, base.unusable)
    if sum(here) == sum(there):
        return None
    if here.not_finite or there.not_finite:
        told = [side.describe(where) for side, where in ((here, "here"), (there, "in the baseline")) if sum(side)]
    else:
        told = [f"{here.failed} here", f"{there.failed} in the baseline"]
    return _unfair(told, here, there)


def _budgets_differ(arm: Arm, base: Arm, pairs: list[int] | None, used: Iterable[SeedRun]) -> str | None:
    def amount(run: SeedRun) -> str:
        return "no recorded budget" if run.budget is None else f"{run.budget:.0f}"

    if pairs is None:
        amounts = sorted(set(map(amount, used)))
        return f"unequal budgets: unpaired runs with {' and '.join(amounts)}" if len(amounts) > 1 else None
    for seed in pairs:
        ours, theirs = arm.runs[seed], base.runs[seed]
        if ours.budget != theirs.budget:
            return f"unequal budgets: seed {seed} has {amount(ours)} here and {amount(theirs)} in the baseline"
    return None


def _seed_ignored(arm: Arm, base: Arm) -> str | None:
    """Return which seeds of a program have equal metrics; other trials may be at a limit of what they measure."""
    for side, where in ((arm, "here"), (base, "in the baseline")):
        first: dict[str, int] = {}
        for seed in sorted(side.measured):
            if (reported := side.runs[seed].reported) is None:
                continue
            if (other := first.setdefault(reported, seed)) != seed:
                return _NO_SEED.format(other, seed, where)
    return None


def _too_few(arm: Arm, base: Arm, pairs: int) -> str:
    planned = count_planned_pairs(arm, base)
    if not planned:
        runs = f"{_count(len(arm.measured), 'run')} here and {len(base.measured)} in the baseline"
        return f"the groups share no seed, and have {runs}; {_TOO_FEW} {MIN_PAIRS} of each"
    return f"{_count(pairs, 'pair')} of {planned} planned; {_TOO_FEW} {MIN_PAIRS}"


def more_seeds_help(problem: str) -> bool:
    """Return True if a problem of `pair` ends with more seeds."""
    return _TOO_FEW in problem


def no_spread(ours: Floats, theirs: Floats) -> str:
    """Why pairs whose differences do not vary are not tested."""
    if not (ours - theirs).any():
        return "the values equal the baseline's on every seed: the change is without effect, or both are at a limit"
    return "the difference is the same on every seed, so its noise is unknown; does the seed reach the runs?"


def _count_pairs(arm: Arm, base: Arm, pairs: int) -> str:
    both = arm.runs.keys() & base.runs.keys()
    lost = arm.unusable & base.unusable
    total = sum("unmeasured" not in (arm.runs[seed].outcome, base.runs[seed].outcome) for seed in both)
    if pairs + len(lost) < total:
        return f"preliminary: {pairs} of {_count(total, 'seed')}"
    failed = lost <= arm.ended_as("failed") & base.ended_as("failed")
    words = "failed" if failed else "ended without a finite value"
    return f"{_count(len(lost), 'seed')} of {total} {words} in both groups" if lost else ""


def _count_left_out(arm: Arm, base: Arm, shared: int, *, paired: bool) -> Iterable[str]:
    unmeasured = _count_runs(arm, base, "unmeasured")
    if unmeasured:
        yield f"{_count(unmeasured, 'run')} ended without recording the measure"
    left = (arm.measured - base.runs.keys()) | (base.measured - arm.runs.keys())
    if not paired:
        counts = f"{len(arm.measured)} and {len(base.measured)} runs"
        yield f"unpaired (Welch, {counts}), as the groups share {_count(shared, 'seed')}"
    elif left and shared >= MIN_PAIRS:
        yield f"{_count(len(left), 'run')} on seeds of one group only left out"


def _count_runs(arm: Arm, base: Arm, outcome: Outcome) -> int:
    return sum(run.outcome == outcome for side in (arm, base) for run in side.runs.values())


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
