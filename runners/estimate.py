"""How long trials will take: from those of the campaign that have finished, else from a few steps of a few of them."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import NamedTuple, final

from grid import Spec
from runners.survey import Survey, Surveyed
from store.layout import Layout
from store.status import trial_state

MOST_TIMED = 4
"""Operators that are timed at most: a plan is quick, also for a grid of hundreds."""


_Place = tuple[str, str]
"""Grid and the operator's key."""


class Estimate(NamedTuple):
    """A time, and in words what it was taken from."""

    seconds: float | None
    """None: unknown."""
    basis: str
    problems: tuple[str, ...] = ()
    """Which operators could not be timed, and why."""

    def shared_by(self, workers: int) -> "Estimate":
        """The same work done by several workers."""
        return self if self.seconds is None else self._replace(seconds=self.seconds / workers)


@final
class Durations:
    """Seconds that finished trials took: of the same cell if there are any, else of its operator, else of its grid."""

    def __init__(self, found: Survey) -> None:
        by_place: dict[tuple[str, ...], list[float]] = {}
        self.trials = 0
        for trial in found.trials:
            seconds = _seconds(found.layout, trial.key) if trial.status == "ok" else None
            if seconds is not None:
                self.trials += 1
                for place in _places(trial):
                    by_place.setdefault(place, []).append(seconds)
        self._medians: Mapping[tuple[str, ...], float] = {place: median(all_) for place, all_ in by_place.items()}

    def of(self, trial: Surveyed) -> float | None:
        """For `trial`; None where nothing like it has finished."""
        return next((self._medians[place] for place in _places(trial) if place in self._medians), None)


def estimate(
    to_do: Sequence[Surveyed],
    known: Durations,
    examples: Mapping[_Place, Spec],
    seconds: Callable[[Spec], float | None] | None,
) -> Estimate:
    """The time that one worker needs for `to_do`.

    `examples` has a trial of every operator, and `seconds` times one; a few are timed where nothing has finished.
    """
    if not to_do:
        return Estimate(0.0, "nothing is left to do")
    found = [known.of(trial) for trial in to_do]
    if None not in found:
        return Estimate(sum(filter(None, found)), f"from {known.trials} finished trials of this campaign")
    labels = {_place(trial): trial.operator for trial in to_do}
    timed, problems = _timed(labels, examples, seconds) if seconds is not None else ({}, ())
    if not timed:
        return Estimate(None, "unknown: no trial like these has finished in this campaign", problems)
    usual = mean(timed.values())
    total = sum(timed.get(_place(trial), usual) for trial in to_do)
    basis = f"from a few steps of {len(timed)} of {len(labels)} operators, without evaluation"
    return Estimate(total, basis, problems)


def _timed(
    labels: Mapping[_Place, str], examples: Mapping[_Place, Spec], seconds: Callable[[Spec], float | None]
) -> tuple[dict[_Place, float], tuple[str, ...]]:
    timed: dict[_Place, float] = {}
    problems: list[str] = []
    for place in sorted(labels)[:: -(-len(labels) // MOST_TIMED)]:
        try:
            found = seconds(examples[place])
        except Exception as error:  # noqa: BLE001  # told: a plan shows what it can
            said = str(error).strip().partition("\n")[0]
            problems.append(f"{labels[place]}: {type(error).__name__}{': ' if said else ''}{said}")
            continue
        if found is not None:
            timed[place] = found
    return timed, tuple(problems)


def _place(trial: Surveyed) -> _Place:
    return trial.grid, trial.operator_key


def _places(trial: Surveyed) -> list[tuple[str, ...]]:
    return [("cell", trial.cell), ("operator", *_place(trial)), ("grid", trial.grid)]


def _seconds(layout: Layout, key: str) -> float | None:
    """What the whole trial took, over all its attempts; None where a part of that was not recorded."""
    attempts = trial_state(layout, key).attempts
    ended = [found.end for found in attempts if found.end is not None]
    if len(ended) == len(attempts):
        return sum(float(end["wall_s"]) for end in ended)
    last = attempts[-1]  # an attempt was killed: go by the one that finished, if it did all the work itself
    if last.end is None or last.start.get("resumed_from") is not None:
        return None
    return float(last.end["wall_s"])
