"""Label, seed, axes and config of a run that was read from files of a tracker."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

from ablate.grid.errors import SpecError
from ablate.grid.names import axis_names, label_of, some
from ablate.grid.suggestions import suggest_name
from ablate.store.export.tracker_runs import FoundRun, flatten
from ablate.store.external_runs.logged_plans import trial_line

_FIELD = re.compile(r"\{([^{}]+)\}")


@final
@dataclass(frozen=True)
class What:
    """Where label, seed and axes of runs are; an entry is one of their config."""

    label: str | None = None
    """A text with entries in braces; None: what the run says, else the levels of its axes, else its name."""
    seed: str = "seed"
    """An entry, or the seed itself."""
    axes: Mapping[str, str] | None = None
    """The entry of each axis; None: all single values that differ between the runs."""
    without: Sequence[str] = ()
    """Entries that make no difference, such as a directory."""
    named: str | None = None
    """The pattern of the runs' names, with entries in braces, which it adds: "{optimiser}-{seed}"."""
    step: str = "step"
    """The column of the step in CSV."""
    evaluations: Sequence[str] = ()
    """Names of values that are evaluations; the others are metrics, but for those at a point."""

    @property
    def columns(self) -> set[str]:
        """Columns of a CSV that are entries of the config."""
        return {"label", self.seed, *self.needed}

    @property
    def needed(self) -> set[str]:
        """Columns that a CSV must have: the entries that are named here and that a run's name does not give."""
        seed = set() if self.seed == "seed" or self.seed.isdecimal() else {self.seed}
        names = {*_FIELD.findall(self.label or ""), *(self.axes or {}).values(), *seed}
        return names - {*_FIELD.findall(self.named or "")}


def line_of(grid: str, run: FoundRun, what: What, axes: Mapping[str, str]) -> dict[str, Any]:
    """Return the trial line of a run. Raises SpecError: it has no seed, or no entry of that name."""
    entries = _entries(run, what)
    seed = int(what.seed) if what.seed.isdecimal() else entries.get(what.seed)
    seed = int(seed) if isinstance(seed, float) and seed.is_integer() else seed  # as of a column with gaps in pandas
    if seed is None:
        raise SpecError(
            f"{run.name} has no entry {what.seed!r}, by which it is paired; it has "
            f"{some(sorted(entries), 12) or 'none'}: name the entry, or the seed, by --seed"
        )
    levels = {name: _entry(entries, path, f"the axis {name!r}") for name, path in axes.items() if path in entries}
    if what.axes is not None and len(levels) < len(axes):
        _entry(entries, next(path for path in axes.values() if path not in entries), "an axis")
    own = {what.seed, *what.without, *({"label"} if run.label is None else ())}
    if what.label is not None:
        label = _FIELD.sub(lambda field: label_of(_entry(entries, field[1], "the label")), what.label)
    else:
        label = run.label or (label_of(entries["label"]) if "label" in entries else "")
        label = label or " · ".join(map(label_of, levels.values())) or run.name
    return trial_line(grid, label, seed, {name: each for name, each in entries.items() if name not in own}, levels)


def _entry(entries: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in entries:
        has = some(sorted(entries), 12) or "none"
        hint = suggest_name(name, list(entries))
        raise SpecError(f"{what} names {name!r}, which is no entry of the config; there is {has}{hint}")
    return entries[name]


def _entries(run: FoundRun, what: What) -> dict[str, Any]:
    """Return the entries of the config, those inside others as `model.width`, and those of the name."""
    entries = {
        name: value if not isinstance(value, float) or math.isfinite(value) else str(value)
        for name, value in flatten(run.config)
    }
    if what.named is not None:
        pattern = re.sub(r"\\\{([^{}]+)\\\}", lambda field: f"(?P<{field[1]}>.+?)", re.escape(what.named))
        try:
            parts = re.fullmatch(pattern, run.name)
        except re.error as error:
            raise SpecError(
                f"the pattern {what.named!r} of names cannot be read; write entries in braces, of letters and digits"
            ) from error
        if parts is None:
            raise SpecError(f"the name {run.name!r} is not of the pattern {what.named!r}; correct one of them")
        entries |= {name: int(text) if text.isdecimal() else text for name, text in parts.groupdict().items()}
    return entries


def find_axes(runs: Iterable[FoundRun], what: What) -> Mapping[str, str]:
    """Find the entry of each axis: all single values that differ between the runs and whose name a column can have."""
    levels = defaultdict[str, set[str]](set)
    for run in runs:
        with suppress(SpecError):  # it is told where the run is imported
            for name, value in _entries(run, what).items():
                if not isinstance(value, list | dict):
                    levels[name].add(label_of(value))
    own = {"label", what.seed, *what.without}
    names = [
        name for name, texts in sorted(levels.items()) if len(texts) > 1 and name not in own and _is_nameable(name)
    ]
    return dict(zip(axis_names([(name, None) for name in names]), names, strict=True))


def _is_nameable(name: str) -> bool:
    try:
        axis_names([(name, None)])
    except SpecError:
        return False
    return True
