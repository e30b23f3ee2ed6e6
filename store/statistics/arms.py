"""The runs of a grid as pairs of arms: who can be compared with the baseline, on which seeds, and what forbids it.

With three shared seeds or more the comparison is paired, and runs whose partner is missing are left out. With fewer it
is Welch's, of all runs, if both arms have three. `docs/statistics.md` has the simulation that decided this.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from grid.errors import NotFoundError, SpecError, StoreError
from grid.suggestions import suggest_name
from store.files.code_aliases import current_core
from store.statistics.paired_differences import Floats, Paired, summarise
from store.statistics.scales import Scale, fits, forward, misfit, varies
from store.statistics.verdict import MIN_PAIRS
from store.statistics.welch import welch

Method = Literal["paired t", "Welch"]
Baseline = str | Mapping[str, str]
"""The cell that all others are compared with, or the baseline of each cell that has one."""

COLUMNS = ("cell", "label", "operator", "seed", "value", "status")
STATUSES = ("ok", "failed", "running", "pending")

TOO_FEW = "a verdict needs at least"
"""Reasons that more seeds remedy."""


class SeedRun(NamedTuple):
    """One trial as the statistics see it."""

    value: float | None
    status: str
    budget: float | None
    code: str | None
    wall_s: float | None = None
    gpu: bool | None = None
    """Whether it was on a GPU; None: unknown."""
    unreadable: bool | None = None
    """Whether it is finished and its value was lost; None: unknown."""

    @property
    def unmeasured(self) -> bool:
        """Finished without ever recording the measure."""
        return self.status == "ok" and self.value is None and self.unreadable is False

    @property
    def failed(self) -> bool:
        """Failed, or finished with a value that is not a finite number: both are outcomes, not gaps."""
        return self.status == "failed" or (
            self.status == "ok" and self.value is not None and not math.isfinite(self.value)
        )

    @property
    def measured(self) -> bool:
        """Finished with a finite value."""
        return self.status == "ok" and self.value is not None and math.isfinite(self.value)


class Arm(NamedTuple):
    """A cell and its runs by seed."""

    cell: str
    label: str
    operator: str
    runs: dict[int, SeedRun]

    @property
    def unmeasured(self) -> bool:
        """Whether every run has finished without recording the measure, so that no more seeds can be compared."""
        return bool(self.runs) and all(run.unmeasured for run in self.runs.values())


class Pairing(NamedTuple):
    """A cell against its baseline: values in analysis units, and what stands in the way."""

    arm: Arm
    method: Method
    ours: Floats
    theirs: Floats
    """Paired: on the shared seeds, in their order. Welch: of all runs."""
    shared: int
    """Seeds on which both arms have a value."""
    spread: bool
    problem: str | None
    note: str
    wall_s: float | None
    """Seconds of one seed in both arms: the sum of the medians over finished runs; null if one has none."""
    on_gpu: bool
    """Whether all that is known of these was on GPUs."""

    @property
    def differences(self) -> Floats:
        """Cell minus baseline per shared seed, [pairs]; empty without pairing."""
        return self.ours - self.theirs if self.method == "paired t" else np.empty(0)

    @property
    def summary(self) -> Paired:
        """The statistics that decide the verdict."""
        return summarise(self.differences) if self.method == "paired t" else welch(self.ours, self.theirs)


def arms(values: pl.DataFrame) -> dict[str, Arm]:
    """The cells of `values` in order of appearance; raises when columns lack, a status is unknown or a seed repeats."""
    missing = [name for name in COLUMNS if name not in values.columns]
    if missing:
        raise SpecError(f"statistics need the columns {list(COLUMNS)}; {missing} are missing from {values.columns}")
    found: dict[str, Arm] = {}
    for row in values.iter_rows(named=True):
        arm = found.setdefault(row["cell"], Arm(row["cell"], row["label"], row["operator"], {}))
        if row["seed"] in arm.runs:
            raise StoreError(
                f"a cell has one run per seed; {arm.label!r} has seed {row['seed']} twice: `ablate rebuild`"
            )
        if row["status"] not in STATUSES:
            raise StoreError(
                f"a status is one of {list(STATUSES)}; {arm.label!r} seed {row['seed']}: {row['status']!r}"
            )
        about = {name: row.get(name) for name in ("budget", "code", "wall_s", "gpu", "unreadable")}
        about["code"] = current_core(about["code"])
        arm.runs[row["seed"]] = SeedRun(row["value"], row["status"], **about)
    return found


def baseline_arm(found: Mapping[str, Arm], baseline: str) -> Arm:
    """The arm whose cell key is `baseline`; raises NotFoundError naming the nearest."""
    if baseline not in found:
        raise NotFoundError(
            f"the baseline {baseline!r} is not among the {len(found)} cells"
            f"{suggest_name(baseline, list(found))}; pass a cell key of this grid"
        )
    return found[baseline]


def match_arms(found: Mapping[str, Arm], baseline: Baseline) -> list[tuple[Arm, Arm]]:
    """Each arm that is no baseline, with its baseline. Raises as `baseline_arm` does."""
    if isinstance(baseline, str):
        base = baseline_arm(found, baseline)
        return [(arm, base) for arm in found.values() if arm is not base]
    return [(arm, baseline_arm(found, baseline[cell])) for cell, arm in found.items() if cell in baseline]


def pair(arm: Arm, base: Arm, scale: Scale) -> Pairing:
    """The values of the two arms that are compared, in seed order, with the first reason against a verdict."""
    shared = _seeds_with_values(arm) & _seeds_with_values(base)
    method: Method = "paired t"
    if len(shared) < MIN_PAIRS <= min(len(_seeds_with_values(arm)), len(_seeds_with_values(base))):
        method = "Welch"
    seeds = (shared, shared) if method == "paired t" else (_seeds_with_values(arm), _seeds_with_values(base))
    ours, theirs = _values(arm, seeds[0]), _values(base, seeds[1])
    usable = fits(ours, scale) and fits(theirs, scale)
    ours, theirs = (forward(side, scale) if usable else np.full(side.size, np.nan) for side in (ours, theirs))
    spread = _has_spread(ours, theirs, scale, method)
    used = [*(arm.runs[seed] for seed in sorted(seeds[0])), *(base.runs[seed] for seed in sorted(seeds[1]))]
    problem = (
        _all_failed(arm, base)
        or _all_unmeasured(arm, base)
        or (_failures_differ(arm, base) if method == "paired t" else _failure_counts_differ(arm, base))
        or (None if usable else misfit(scale))
        or (_budgets_differ(arm, base, sorted(shared)) if method == "paired t" else _budgets_vary(used))
        or _code_differs(used)
        or (_too_few(arm, base, len(shared)) if method == "paired t" else None)
        or (None if spread else _no_spread(ours, theirs, method))
    )
    lost = _unreadable(arm, base)
    problem = f"{lost}; {problem}" if problem and lost else problem
    note = "; ".join(
        filter(
            None,
            (
                _note(arm, base, len(shared)),
                _count_unmeasured(arm, base),
                _explain_unpaired(method, arm, base, len(shared)),
                lost,
            ),
        )
    )
    on_gpu = {run.gpu for run in used} == {True}
    return Pairing(arm, method, ours, theirs, len(shared), spread, problem, note, _wall_s(arm, base), on_gpu)


def _seeds_with_values(arm: Arm) -> set[int]:
    return {seed for seed, run in arm.runs.items() if run.measured}


def _values(arm: Arm, seeds: Iterable[int]) -> Floats:
    return np.array([arm.runs[seed].value for seed in sorted(seeds)], dtype=np.float64)


def _all_failed(arm: Arm, base: Arm) -> str | None:
    for side, where in ((arm, "here"), (base, "in the baseline")):
        if side.runs and all(run.failed for run in side.runs.values()):
            return f"all {len(side.runs)} runs {where} failed, so there is nothing to compare"
    return None


def _all_unmeasured(arm: Arm, base: Arm) -> str | None:
    for side, where in ((arm, "here"), (base, "in the baseline")):
        if side.unmeasured:
            count = _count(len(side.runs), "run")
            return f"the {count} {where} ended without recording the measure, so there is nothing to compare"
    return None


def _failures_differ(arm: Arm, base: Arm) -> str | None:
    ours = sorted(s for s, run in arm.runs.items() if run.failed and s in _seeds_with_values(base))
    theirs = sorted(s for s, run in base.runs.items() if run.failed and s in _seeds_with_values(arm))
    return only_survivors(len(ours), len(theirs), count_planned_pairs(arm, base))


def only_survivors(here: int, there: int, runs: int) -> str | None:
    """Why failures of so many of `runs` in one group each forbid a comparison; None where there are none."""
    where = [where for n, where in ((here, "here"), (there, "in the baseline")) if n and n == runs]
    if where:
        return f"all {runs} runs {' and '.join(where)} failed, so there is nothing to compare"
    parts = [f"{n} failed only {where}" for n, where in ((here, "here"), (there, "in the baseline")) if n]
    return (
        f"failures differ between the groups ({', '.join(parts)}), so the survivors are not a fair sample"
        if parts
        else None
    )


def _failure_counts_differ(arm: Arm, base: Arm) -> str | None:
    ours, theirs = (sum(run.failed for run in side.runs.values()) for side in (arm, base))
    if ours == theirs:
        return None
    counts = f"{ours} here, {theirs} in the baseline"
    return f"failures differ between the groups ({counts}), so the survivors are not a fair sample"


def _budgets_vary(used: Iterable[SeedRun]) -> str | None:
    found = sorted({_amount(run.budget) for run in used})
    return f"unequal budgets: unpaired runs with {' and '.join(found)}" if len(found) > 1 else None


def _budgets_differ(arm: Arm, base: Arm, seeds: Iterable[int]) -> str | None:
    for seed in seeds:
        ours, theirs = arm.runs[seed].budget, base.runs[seed].budget
        if ours != theirs:
            return f"unequal budgets: seed {seed} has {_amount(ours)} here and {_amount(theirs)} in the baseline"
    return None


def _amount(budget: float | None) -> str:
    return "no recorded budget" if budget is None else f"{budget:.0f}"


def _code_differs(used: Iterable[SeedRun]) -> str | None:
    codes = {run.code for run in used}
    if len(codes) < 2:
        return None
    versions = f"the runs come from {len(codes)} versions of the code"
    return f"mixed code: {versions}; train those of another version again, as `ablate run SPEC --rerun-stale` does"


def _too_few(arm: Arm, base: Arm, pairs: int) -> str | None:
    if pairs >= MIN_PAIRS:
        return None
    if not count_planned_pairs(arm, base):
        runs = f"{_count(len(_seeds_with_values(arm)), 'run')} here and {len(_seeds_with_values(base))} in the baseline"
        return f"the groups share no seed, and have {runs}; {TOO_FEW} {MIN_PAIRS} of each"
    return f"{_count(pairs, 'pair')} of {count_planned_pairs(arm, base)} planned; {TOO_FEW} {MIN_PAIRS}"


def _has_spread(ours: Floats, theirs: Floats, scale: Scale, method: Method) -> bool:
    if min(ours.size, theirs.size) < 2:
        return False
    sides = [ours - theirs] if method == "paired t" else [ours, theirs]
    return any(varies(side, (ours, theirs), scale) for side in sides)


def _no_spread(ours: Floats, theirs: Floats, method: Method) -> str:
    if method == "Welch":
        return (
            "each group has one value on all of its seeds, so nothing is known about noise; does the seed reach the "
            "runs?"
        )
    if not (ours - theirs).any():
        return "the values equal the baseline's on every seed, so this change did not reach the measure"
    return (
        "the difference is the same on every seed, so nothing is known about its noise; does the seed reach the runs?"
    )


def count_planned_pairs(arm: Arm, base: Arm) -> int:
    """Count the pairs of planned runs that share a seed."""
    return len(arm.runs.keys() & base.runs.keys())


def _note(arm: Arm, base: Arm, pairs: int) -> str:
    lost = sum(arm.runs[seed].failed and base.runs[seed].failed for seed in arm.runs.keys() & base.runs.keys())
    both = arm.runs.keys() & base.runs.keys()
    total = sum(not (arm.runs[seed].unmeasured or base.runs[seed].unmeasured) for seed in both)
    if pairs + lost < total:
        return f"preliminary: {pairs} of {_count(total, 'seed')}"
    return f"{_count(lost, 'seed')} of {total} failed in both groups" if lost else ""


def _explain_unpaired(method: Method, arm: Arm, base: Arm, shared: int) -> str:
    """Explain why runs are unpaired, or left out because their partner is not planned."""
    ours, theirs = len(_seeds_with_values(arm)), len(_seeds_with_values(base))
    if method == "Welch":
        return f"unpaired (Welch, {ours} and {theirs} runs), as the groups share {_count(shared, 'seed')}"
    left = sorted((_seeds_with_values(arm) - base.runs.keys()) | (_seeds_with_values(base) - arm.runs.keys()))
    return f"{_count(len(left), 'run')} on seeds of one group only left out" if left and shared >= MIN_PAIRS else ""


def _count_unmeasured(arm: Arm, base: Arm) -> str:
    found = sum(run.unmeasured for side in (arm, base) for run in side.runs.values())
    return f"{_count(found, 'run')} ended without recording the measure" if found else ""


def _unreadable(arm: Arm, base: Arm) -> str:
    lost = sum(
        run.status == "ok" and run.value is None and not run.unmeasured
        for side in (arm, base)
        for run in side.runs.values()
    )
    if not lost:
        return ""
    have = "trial has" if lost == 1 else "trials have"
    return (
        f"{lost} finished {have} no readable result (quarantined shard); `ablate run SPEC --rerun-stale` trains again"
    )


def _wall_s(arm: Arm, base: Arm) -> float | None:
    took = [
        [run.wall_s for run in side.runs.values() if run.measured and run.wall_s is not None] for side in (arm, base)
    ]
    return sum(float(np.median(of)) for of in took) if all(took) else None


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
