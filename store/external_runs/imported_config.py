"""Label, seed, axes and config of a run that was read from files of a tracker."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

from ablate.grid.errors import AblateError, SpecError
from ablate.grid.names import axis_names, label_of, some
from ablate.store.export.tracker_runs import FoundRun
from ablate.store.external_runs.logged_plans import trial_line


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
        fields = re.findall(r"\{([^{}]+)\}", self.label or "")
        return {"label", self.seed, *(self.axes or {}).values(), *fields}


Source = Callable[[What], list[FoundRun]]
"""Reads the runs of one place."""


def line_of(grid: str, run: FoundRun, what: What, axes: Mapping[str, str]) -> dict[str, Any]:
    """Return the trial line of a run. Raises SpecError: it has no seed, or no entry of that name."""
    entries = _entries(run, what)
    seed = int(what.seed) if what.seed.isdecimal() else entries.get(what.seed)
    if seed is None:
        raise SpecError(
            f"a run has a seed, by which it is paired; {run.name!r} has no entry {what.seed!r}, it has "
            f"{some(sorted(entries), 12) or 'none'}: name the entry, or the seed, by --seed"
        )
    levels = {name: _entry(entries, path, f"the axis {name!r}") for name, path in axes.items() if path in entries}
    if what.axes is not None and len(levels) < len(axes):
        _entry(entries, next(path for path in axes.values() if path not in entries), "an axis")
    own = {"label", what.seed, *what.without}
    if what.label is not None:
        label = re.sub(r"\{([^{}]+)\}", lambda field: label_of(_entry(entries, field[1], "the label")), what.label)
    else:
        label = label_of(entries["label"]) if "label" in entries else run.label or ""
        label = label or " · ".join(map(label_of, levels.values())) or run.name
    return trial_line(grid, label, seed, {name: each for name, each in entries.items() if name not in own}, levels)


def _entry(entries: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in entries:
        has = some(sorted(entries), 12) or "none"
        raise SpecError(f"{what} takes an entry of the config; there is no {name!r}, there is {has}")
    return entries[name]


def _entries(run: FoundRun, what: What) -> dict[str, Any]:
    """Return the entries of the config, those inside others as `model.width`, and those of the name."""
    entries = dict(_flatten(run.config))
    if what.named is not None:
        pattern = re.sub(r"\\\{([^{}]+)\\\}", lambda field: f"(?P<{field[1]}>.+?)", re.escape(what.named))
        try:
            parts = re.fullmatch(pattern, run.name)
        except re.error as error:
            raise SpecError(
                f"a pattern of names has entries in braces, letters and digits; got {what.named!r}"
            ) from error
        if parts is None:
            raise SpecError(f"the name {run.name!r} is not of the pattern {what.named!r}")
        entries |= {name: int(text) if text.isdecimal() else text for name, text in parts.groupdict().items()}
    return entries


def _flatten(config: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def find_axes(sources: Mapping[str, Source], what: What) -> Mapping[str, str]:
    """Return the entry of each axis: as said, or all single values that differ and whose name a column can have."""
    if what.axes is not None:
        return what.axes
    levels = defaultdict[str, set[str]](set)
    for source in sources.values():
        with suppress(AblateError, OSError):  # it is told where the run is imported
            for name, value in (entry for run in source(what) for entry in _entries(run, what).items()):
                if not isinstance(value, list | dict):
                    levels[name].add(label_of(value))
    own = {"label", what.seed, *what.without}
    names = [name for name, texts in levels.items() if len(texts) > 1 and name not in own and _is_nameable(name)]
    return dict(zip(axis_names([(name, None) for name in names]), names, strict=True))


def _is_nameable(name: str) -> bool:
    try:
        axis_names([(name, None)])
    except SpecError:
        return False
    return True
