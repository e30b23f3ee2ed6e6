"""Successive halving on a static grid: at a few steps on the way, the rungs, only the best cells train on.

Which do is a function of what the trials have measured at the rung, so whoever asks again gets the same answer.
Source: Jamieson and Talwalkar 2016, "Non-stochastic best arm identification".
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from grid import Grid, Measure
from grid.errors import SpecError
from runners.planning.measured import METRICS, Measures

FEWEST = 2
"""Cells beside the baseline that a rung needs; fewer have nobody to stop."""

Values = Sequence[float | None]
"""Of one cell at a rung, by seed; None: the trial failed before."""


@final
@dataclass(frozen=True)
class Halving:
    """How many cells go on at a rung, and where the first rung is.

    Raises:
        SpecError: a number has no meaning.
    """

    eta: int
    """Of the cells beside the baseline, the best 1 / eta go on, rounded up."""
    min_steps: int | None = None
    """The first rung; None: the steps of a trial by eta twice."""

    def __post_init__(self) -> None:
        if self.eta < 2:
            raise SpecError(
                f"--halving N lets the best 1 / N of the cells train on, so N is at least 2; got {self.eta}"
            )
        if self.min_steps is not None and self.min_steps < 1:
            raise SpecError(f"--min-steps is the step of the first rung, at least 1; got {self.min_steps}")

    def kept(self, cells: int) -> int:
        """How many of `cells` beside the baseline go on."""
        return -(-cells // self.eta)


class Rung(NamedTuple):
    """A step at which cells are compared, and how many train up to it."""

    step: int
    cells: int
    """With the baseline."""


def rungs(grid: Grid, halving: Halving) -> list[Rung]:
    """The rungs of `grid` with the cells that train up to each, and then the last step with those trained to the end.

    They are at r, r eta, r eta^2, ... steps, each moved to the next step at which every trial is judged.

    Raises:
        SpecError: the grid has no measure, its trials differ in their steps, or they are not judged on the way.
    """
    trials = [planned.trial for planned in grid.cells()]
    steps = _steps(grid, trials)
    _require_measured(grid, trials)
    baseline = int(grid.header()["baseline"] is not None)
    beside = len(trials) - baseline
    found: list[Rung] = []
    for step in _on_the_way(grid, trials, steps, halving):
        if beside < FEWEST:
            break
        found.append(Rung(step, beside + baseline))
        beside = halving.kept(beside)
    return [*found, Rung(steps, beside + baseline)]


def saved(found: Sequence[Rung]) -> float:
    """The share of all steps that is not trained; the rungs end with that of the last step."""
    starts = [0, *(rung.step for rung in found)]
    trained = sum(rung.cells * (rung.step - start) for rung, start in zip(found, starts, strict=False))
    return 1 - trained / (found[0].cells * found[-1].step)


def _steps(grid: Grid, trials: Sequence[Any]) -> int:
    found = sorted({int(trial.training.steps) for trial in trials})
    if len(found) != 1:
        raise SpecError(
            f"--halving compares cells at equal steps; the cells of grid {grid.name!r} train for "
            f"{', '.join(map(str, found))} steps: leave --halving out"
        )
    return found[0]


def _require_measured(grid: Grid, trials: Sequence[Any]) -> None:
    """Refuse a grid whose measure is not taken on the way."""
    if grid.measure is None:
        raise SpecError(
            f"--halving ranks cells by the grid's measure, and grid {grid.name!r} has none: give it a Measure"
        )
    name = grid.measure.name
    for trial in trials:
        early = [trial.task, *(each for each in trial.evaluations if not each.at_end)] if hasattr(trial, "task") else []
        said = [each.measures() if isinstance(each, Measures) else None for each in early]
        if said and None not in said and name not in METRICS and not any(name in each for each in said if each):
            raise SpecError(
                f"--halving ranks cells by {name!r} on the way, and grid {grid.name!r} takes it at the last step only "
                "(at_end): leave --halving out"
            )


def _on_the_way(grid: Grid, trials: Sequence[Any], steps: int, halving: Halving) -> Iterator[int]:
    schedules = list({(trial.training.evaluate_every, trial.execution.log_every): trial for trial in trials}.values())
    if any(trial.training.evaluate_every is None for trial in schedules):
        raise SpecError(
            f"--halving judges cells on the way, and the trials of grid {grid.name!r} are judged at their last step "
            f"only: set training.evaluate_every, such as {max(1, steps // 10)}"
        )
    first = halving.min_steps or -(-steps // halving.eta**2)
    target, last = first, 0
    while target < steps:
        step = next((at for at in range(max(target, last + 1), steps - 1) if _judged(schedules, at)), None)
        if step is None:
            break
        yield step
        target, last = target * halving.eta, step
        while target <= last:
            target *= halving.eta
    if not last:
        raise SpecError(
            f"--halving needs a step between {first} and {steps} at which every trial of grid {grid.name!r} is judged "
            "and logged; lower --min-steps, or training.evaluate_every"
        )


def _judged(trials: Sequence[Any], step: int) -> bool:
    return all(trial.training.evaluates(step) and step % trial.execution.log_every == 0 for trial in trials)


def promoted(values: Mapping[str, Values], measure: Measure, halving: Halving, baseline: str | None) -> list[str]:
    """The cells that train on, in the order of `values`, which has what every cell measured at a rung.

    The baseline always does. Of the others it is the best 1 / eta, rounded up, by the mean over their seeds: of
    logarithms on the log scale, else of the values. A seed that failed, or whose value is no finite number or none of
    the scale, sets its cell behind all cells with fewer of them. Of equal cells the earlier goes on.
    """
    others = [cell for cell in values if cell != baseline]
    ranked = sorted(others, key=lambda cell: _rank(values[cell], measure))
    chosen = {baseline, *ranked[: halving.kept(len(others))]}
    return [cell for cell in values if cell in chosen]


def _rank(values: Values, measure: Measure) -> tuple[int, float]:
    """Smaller is better."""
    known = [_units(value, measure) for value in values if value is not None and math.isfinite(value)]
    sound = [units for units in known if units is not None]
    if not sound:
        return len(values), 0.0
    mean = math.fsum(sound) / len(sound) if all(map(math.isfinite, sound)) else -math.inf
    return len(values) - len(sound), mean if measure.better == "lower" else -mean


def _units(value: float, measure: Measure) -> float | None:
    if measure.scale != "log":
        return value
    if value < 0:
        return None
    return math.log(value) if value else -math.inf
