"""The runs of a grid as pairs of arms: who can be compared with the baseline, on which seeds, and what forbids it."""

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from grid.errors import NotFoundError, SpecError, StoreError
from grid.spec import did_you_mean
from store.statistics.family import MIN_PAIRS
from store.statistics.paired import Floats

Scale = Literal["log", "linear"]

COLUMNS = ("cell", "label", "operator", "seed", "value", "status")
STATUSES = ("ok", "failed", "running", "pending")


class Run(NamedTuple):
    """One trial as the statistics see it."""

    value: float | None
    status: str
    budget: float | None
    code: str | None
    wall_s: float | None = None

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
    runs: dict[int, Run]


class Pairing(NamedTuple):
    """A cell against its baseline: values in analysis units on the shared seeds, and what stands in the way."""

    arm: Arm
    ours: Floats
    theirs: Floats
    spread: bool
    problem: str | None
    note: str
    wall_s: float | None
    """Of one seed in both arms: the sum of the medians over their finished runs; null where one has none."""

    @property
    def differences(self) -> Floats:
        """Cell minus baseline per shared seed, [pairs]."""
        return self.ours - self.theirs


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
        arm.runs[row["seed"]] = Run(row["value"], row["status"], row.get("budget"), row.get("code"), row.get("wall_s"))
    return found


def baseline_arm(found: Mapping[str, Arm], baseline: str) -> Arm:
    """The arm whose cell key is `baseline`; raises NotFoundError naming the nearest."""
    if baseline not in found:
        raise NotFoundError(
            f"the baseline {baseline!r} is not among the {len(found)} cells"
            f"{did_you_mean(baseline, list(found))}; pass a cell key of this grid"
        )
    return found[baseline]


def pair(arm: Arm, base: Arm, scale: Scale) -> Pairing:
    """Pairs of the seeds that both arms measured, in seed order, with the first reason against a verdict."""
    seeds = sorted(seed for seed, run in arm.runs.items() if run.measured and _measured(base, seed))
    ours, theirs = _values(arm, seeds), _values(base, seeds)
    positive = bool((ours > 0).all() and (theirs > 0).all())
    if scale == "log":
        with np.errstate(divide="ignore", invalid="ignore"):
            ours, theirs = (np.log(side) if positive else np.full(len(seeds), np.nan) for side in (ours, theirs))
    spread = _has_spread(ours, theirs, scale)
    problem = (
        _failures_differ(arm, base)
        or (None if positive or scale == "linear" else "a value is zero or negative, so the log scale has no meaning")
        or _budgets_differ(arm, base, seeds)
        or _code_differs(arm, base, seeds)
        or _too_few(arm, base, len(seeds))
        or (None if spread else _no_spread(ours - theirs))
    )
    lost = _unreadable(arm, base)
    problem = f"{lost}; {problem}" if problem and lost else problem
    note = "; ".join(filter(None, (_note(arm, base, len(seeds)), lost)))
    return Pairing(arm, ours, theirs, spread, problem, note, _wall_s(arm, base))


def _measured(arm: Arm, seed: int) -> bool:
    return seed in arm.runs and arm.runs[seed].measured


def _values(arm: Arm, seeds: Iterable[int]) -> Floats:
    return np.array([arm.runs[seed].value for seed in seeds], dtype=np.float64)


def _failures_differ(arm: Arm, base: Arm) -> str | None:
    ours = sorted(s for s, run in arm.runs.items() if run.failed and _measured(base, s))
    theirs = sorted(s for s, run in base.runs.items() if run.failed and _measured(arm, s))
    if not ours and not theirs:
        return None
    parts = [f"{len(who)} failed only {where}" for who, where in ((ours, "here"), (theirs, "in the baseline")) if who]
    return f"failures differ between the arms ({', '.join(parts)}), so the survivors are not a fair sample"


def _budgets_differ(arm: Arm, base: Arm, seeds: Iterable[int]) -> str | None:
    for seed in seeds:
        ours, theirs = arm.runs[seed].budget, base.runs[seed].budget
        if ours != theirs:
            return f"unequal budgets: seed {seed} has {_amount(ours)} here and {_amount(theirs)} in the baseline"
    return None


def _amount(budget: float | None) -> str:
    return "no recorded budget" if budget is None else f"{budget:g}"


def _code_differs(arm: Arm, base: Arm, seeds: Iterable[int]) -> str | None:
    codes = {side.runs[seed].code for seed in seeds for side in (arm, base)}
    if len(codes) < 2:
        return None
    versions = f"the runs come from {len(codes)} versions of the code"
    return f"mixed code: {versions}; `ablate run SPEC --again` trains those of another version again"


def _too_few(arm: Arm, base: Arm, pairs: int) -> str | None:
    if pairs >= MIN_PAIRS:
        return None
    return f"{_counted(pairs, 'pair')} of {planned(arm, base)} planned; a verdict needs at least {MIN_PAIRS}"


def _has_spread(ours: Floats, theirs: Floats, scale: Scale) -> bool:
    """Whether the differences vary by more than rounding; otherwise there is no noise to judge by."""
    if ours.size < 2:
        return False
    largest = max(float(np.abs(ours).max()), float(np.abs(theirs).max()), 1.0 if scale == "log" else 0.0)
    return bool((ours - theirs).std(ddof=1) > 16 * np.finfo(np.float64).eps * largest)


def _no_spread(differences: Floats) -> str:
    if not differences.any():
        return "the values equal the baseline's on every seed, so this change did not reach the measure"
    return (
        "the difference is the same on every seed, so nothing is known about its noise; does the seed reach the runs?"
    )


def planned(arm: Arm, base: Arm) -> int:
    """Pairs there will be when every planned run has succeeded."""
    return len(arm.runs.keys() & base.runs.keys())


def _note(arm: Arm, base: Arm, pairs: int) -> str:
    lost = sum(arm.runs[seed].failed and base.runs[seed].failed for seed in arm.runs.keys() & base.runs.keys())
    total = planned(arm, base)
    if pairs + lost < total:
        return f"preliminary: {pairs} of {_counted(total, 'seed')}"
    return f"{_counted(lost, 'seed')} of {total} failed in both arms" if lost else ""


def _unreadable(arm: Arm, base: Arm) -> str:
    lost = sum(run.status == "ok" and run.value is None for side in (arm, base) for run in side.runs.values())
    if not lost:
        return ""
    have = "trial has" if lost == 1 else "trials have"
    return f"{lost} finished {have} no readable result (quarantined shard); `ablate run SPEC --again` trains again"


def _wall_s(arm: Arm, base: Arm) -> float | None:
    took = [
        [run.wall_s for run in side.runs.values() if run.measured and run.wall_s is not None] for side in (arm, base)
    ]
    return sum(float(np.median(of)) for of in took) if all(took) else None


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
