"""Overrides of a grid on the command line.

"seeds=0..9" adds the seeds that the grid does not have. "training.steps=100" makes a grid of its own, so that the plan
of the file's grid stays as it is.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ablate.grid.axis import Axis
from ablate.grid.builder import Builder
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Experiment
from ablate.grid.frozen import FrozenDict
from ablate.grid.grid import Grid
from ablate.grid.key import canonical_json
from ablate.grid.names import label_of
from ablate.grid.part import Part
from ablate.grid.path import field_of, steps
from ablate.grid.spec import Spec, field_names, not_a_field
from ablate.grid.suggestions import suggest_name

SEEDS = "seeds"

MOST_SEEDS = 1_000_000
"""Most seeds that one override names; a range of more would fill the memory."""

_MOST_NAME = 40
"""Most characters of the grid's name, and of the overrides, in the name of a grid of its own."""


def override(grid: Grid, texts: Sequence[str]) -> Grid:
    """Return `grid` with the overrides `texts`, each PATH=VALUE or seeds=VALUES; they are recorded in its header.

    Seeds are added to those of the grid. Changes of its base make a grid of another name, which depends on the changes
    alone. A value is JSON, another number such as .5 or 1_000, or a text. All changes of a base are made at once, so
    its validators see the final trial only.
    Raises `SpecError` for a path that does not exist or that an axis sets, and for an invalid value.
    """
    changes = _parse(texts)
    seeds = changes.pop(SEEDS, None)
    if changes:
        parts = iter([_change_base(grid.name, part, changes) for part in grid.parts])
        changed = _rebase(grid, parts, grid.seeds).named(_name(grid.name, changes))
        grid = replace(changed, of=grid.name, overrides=tuple(f"{path}={changes[path]}" for path in sorted(changes)))
    return grid if seeds is None else add_seeds(grid, _seeds(seeds))


def add_seeds(grid: Grid, seeds: Iterable[int]) -> Grid:
    """Return `grid` with the `seeds` that it does not have, after its own; all are recorded among its overrides."""
    every = tuple(dict.fromkeys((*grid.seeds, *seeds)))
    if every == tuple(grid.seeds):
        return grid
    changes = [text for text in grid.overrides if not text.startswith(f"{SEEDS}=")]
    recorded = (*changes, f"{SEEDS}={_format_seeds(every)}")
    return replace(_rebase(grid, iter([part.base for part in grid.parts]), every), overrides=recorded)


def seeds_of(texts: Iterable[str]) -> tuple[int, ...] | None:
    """Return the seeds that overrides name; None if they name none."""
    said = [text.partition("=")[2] for text in texts if text.startswith(f"{SEEDS}=")]
    return _seeds(said[0]) if said else None


def _name(grid: str, values: Mapping[str, str]) -> str:
    """Name the grid that the changes `values` make: the same changes in any order or spelling give the same name."""
    changes = {path: _value(text) for path, text in sorted(values.items())}
    whole = {path: int(each) for path, each in changes.items() if isinstance(each, float) and each.is_integer()}
    changes |= whole  # 3.0 and 3e0 are 3
    digest = hashlib.blake2b(f"{grid} {canonical_json(changes)}".encode(), digest_size=4).hexdigest()
    words = " ".join(f"{path.rpartition('.')[2]} {label_of(value)}" for path, value in changes.items())
    slug = re.sub("[^a-z0-9]+", "-", words.lower())[:_MOST_NAME].strip("-")
    return "-".join(filter(None, (grid[:_MOST_NAME].rstrip("-_"), slug, digest)))


def _format_seeds(seeds: Iterable[int]) -> str:
    """Write seeds as `_seeds` reads them: `0..4,8`."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)


def _parse(texts: Sequence[str]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not all(step.isidentifier() for step in path.split(".")):
            raise SpecError(f"override {text!r} is no PATH=VALUE; write such as training.steps=100 or seeds=0..9")
        if path in changes:
            raise SpecError(f"override {path!r} is given twice, as {changes[path]!r} and as {value!r}; give it once")
        changes[path] = value
    return changes


def _seeds(text: str) -> tuple[int, ...]:
    """Read seeds: `0..9` are ten, `0,2,5` three."""
    numbers: list[int] = []
    for part in text.strip("[]").split(","):
        first, dots, last = part.partition("..")
        try:
            seeds = range(int(first), int(last if dots else first) + 1)
            if len(seeds) > MOST_SEEDS:
                raise SpecError(f"seeds={text} are more than {MOST_SEEDS:,}, the most of one grid; write fewer")
            numbers += seeds
        except OverflowError:
            raise SpecError(f"seeds={text} are more than {MOST_SEEDS:,}, the most of one grid; write fewer") from None
        except ValueError:
            raise SpecError(f"seeds={text} cannot be read; write seeds=0..9 or seeds=0,2,5") from None
        if dots and int(first) > int(last):
            raise SpecError(f"seeds={text} begin after their end; write seeds=0..9, the first before the last")
    if len(set(numbers)) < len(numbers):
        raise SpecError(f"seeds={text} repeat one; write each once")
    return tuple(numbers)


def _change_base(grid: str, part: Part, values: dict[str, str]) -> Experiment:
    for path in values:
        for axis in part.axes:
            if path == axis.path or path.startswith(f"{axis.path}."):
                raise SpecError(
                    f"override {path!r}: the axis {axis.path!r} of grid {grid!r} sets it to {', '.join(axis.labels)}; "
                    "change the axis in the spec file"
                )
        _require_field(part.base, path)
    changes = [Axis(path, (_value(text),), (text,)) for path, text in values.items()]
    try:
        return Builder(part.base, changes).trial([0] * len(changes), part.base.seed)
    except SpecError as error:
        raise SpecError(f"override of grid {grid!r}: {error}") from error


def _value(text: str) -> object:
    for read in (json.loads, int, float):
        with suppress(ValueError):
            return read(text)
    return text


def _require_field(base: Spec, path: str) -> None:
    if path == "seed":
        raise SpecError(
            "override 'seed' is no field to set: the seeds of a grid are replicates of each cell; write seeds=0 or "
            "seeds=0..9"
        )
    owner: object = base
    for name in steps(path):
        if isinstance(owner, FrozenDict):
            owner = field_of(owner, name, path)
            continue
        if not isinstance(owner, Spec):
            raise SpecError(f"override {path!r}: {owner!r} has no fields, so it has no {name!r}; shorten the path")
        if name not in field_names(type(owner)):
            told = not_a_field(name, type(owner))
            seeds = suggest_name(path, [SEEDS]) if "did you mean" not in told else ""
            raise SpecError(f"override {path!r}: {told}{seeds}")
        owner = getattr(owner, name)


def _rebase(grid: Grid, bases: Iterator[Experiment], seeds: Any) -> Grid:
    """Return `grid` with new bases, in the order of its parts, and new seeds."""
    base = next(bases)
    return replace(grid, base=base, seeds=seeds, joined=tuple(_rebase(each, bases, seeds) for each in grid.joined))
