"""A budget of hours, and what of it trials have used, from the records of their attempts."""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, final

from grid.errors import NotFoundError, SpecError, StoreError
from store.files import read_json
from store.layout import Layout

_BUDGET: Final = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(gpu|cpu)-?h\s*", re.IGNORECASE)

Unit = Literal["GPU-h", "CPU-h"]


class Budget(NamedTuple):
    """How many hours may be used."""

    hours: float
    unit: Unit

    def __str__(self) -> str:
        """`200 GPU-h`."""
        return f"{self.hours:g} {self.unit}"


def budget_hours(text: str) -> Budget:
    """The budget that `text` says, such as `200gpuh` or `40 cpuh`.

    Raises:
        SpecError: it says none.
    """
    found = _BUDGET.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise SpecError(
            f"a budget is a number of hours above 0 and their unit, such as 200gpuh or 40cpuh; got {text!r}"
        )
    return Budget(float(found[1]), "GPU-h" if found[2].lower() == "gpu" else "CPU-h")


@final
@dataclass
class Spending:
    """What trials of a campaign have used, asked again and again: what has ended is read once.

    `gpus_per_trial` is what each occupies while it is at work: the GPUs of a worker by the trials side by side on it.
    An hour of a CPU is an hour of a trial at work. A trial that has become ok since the first look is not looked at
    again; one that was ok before may be trained anew, and is.
    """

    layout: Layout
    unit: Unit
    gpus_per_trial: float = 1.0
    now: float = field(default_factory=time.time)
    """When it began to look, in seconds since the epoch."""
    _ended_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _attempts: dict[str, list[int]] = field(default_factory=dict)
    _settled: set[str] = field(default_factory=set)

    def hours(self, trials: Iterable[str]) -> float:
        """Of all attempts of `trials`, given by their keys; one at work or killed counts until its last heartbeat."""
        begun = {path.name for path in self.layout.trials.glob("[0-9a-f][0-9a-f]/*")}
        seconds = sum(self._trial_s(key) for key in trials if key in begun)
        return seconds * (self.gpus_per_trial if self.unit == "GPU-h" else 1.0) / 3600

    def _trial_s(self, key: str) -> float:
        attempts = self._attempts[key] if key in self._settled else self.layout.attempts(key)
        self._attempts[key] = attempts
        return sum(self._attempt_s(key, attempt) for attempt in attempts)

    def _attempt_s(self, key: str, attempt: int) -> float:
        known = self._ended_s.get((key, attempt))
        if known is not None:
            return known
        end = _read(self.layout.end(key, attempt))
        if end is None:
            return self._at_work_s(key, attempt)
        found = self._ended_s[key, attempt] = float(end["wall_s"])
        if end["status"] == "ok" and end["ended"] >= self.now:
            self._settled.add(key)
        return found

    def _at_work_s(self, key: str, attempt: int) -> float:
        start = _read(self.layout.start(key, attempt))
        try:
            beaten = self.layout.heartbeat(key, attempt).stat().st_mtime
        except FileNotFoundError:
            return 0.0
        return 0.0 if start is None else max(0.0, beaten - float(start["started"]))


def spent(layout: Layout, trials: Iterable[str], unit: Unit = "CPU-h", *, gpus_per_trial: float = 1.0) -> float:
    """Hours that `trials` have used, looked up once; to ask again, keep a `Spending`."""
    return Spending(layout, unit, gpus_per_trial).hours(trials)


def _read(path: Path) -> dict[str, Any] | None:
    """A record; None while it is missing, or where it is damaged: what it said is lost."""
    try:
        return read_json(path)
    except (NotFoundError, StoreError):
        return None
