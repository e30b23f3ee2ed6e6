"""Axes: a field and its values, varied alone, together or one at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import final

from ablate.grid.errors import SpecError
from ablate.grid.key import canonical_json
from ablate.grid.names import label_of, require_name
from ablate.grid.path import Predicate, steps
from ablate.grid.values import MOST_LABEL, require_text, unbox

Scalar = str | int | float | bool | None
"""A value of an axis in a table: a JSON scalar."""

Choices = tuple[tuple[int, ...], ...]
"""For each choice of a dimension, the index of each axis's value."""


@final
@dataclass(frozen=True, eq=False)
class Axis:
    """A dotted path and the values it takes. Build it with `over`."""

    path: str
    values: tuple[object, ...]
    labels: tuple[str, ...]
    name: str | None = None
    when: Predicate | None = None
    named: bool = False
    """True if the user gave the labels."""
    tune: bool = False
    """True for a nuisance axis: cells are compared at their own best level."""

    @property
    def axes(self) -> tuple["Axis", ...]:
        """This axis alone."""
        return (self,)

    @cached_property
    def choices(self) -> Choices:
        """One choice per value."""
        return tuple((index,) for index in range(len(self.values)))

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        """The values in tables: scalars unchanged, other values by label."""
        pairs = zip(self.values, self.labels, strict=True)
        plain = (v if v is None or isinstance(v, str | int | float) else label for v, label in pairs)
        return self.labels if self.named else tuple(plain)


@final
@dataclass(frozen=True, eq=False)
class Bundle:
    """Several axes that vary together. Build it with `zipped` or `one_at_a_time`."""

    axes: tuple[Axis, ...]
    choices: Choices
    when: Predicate | None = None


Dimension = Axis | Bundle
"""One factor of a grid's product."""


def over(
    path: str,
    values: Iterable[object],
    *,
    name: str | None = None,
    labels: Sequence[str] | None = None,
    when: Predicate | None = None,
    tune: bool = False,
) -> Axis:
    """Vary the field at the dotted `path` over `values`.

    `name` is a column in SQL (default: the shortest unambiguous end of the path). `labels` name the values in tables,
    charts and SQL (default: a spec's own label, else the value as text). If `when(trial)` is False, the axis does not
    apply and is null. With `tune`, cells are compared at their own best value. Raises `SpecError`.
    """
    steps(path)
    if not isinstance(tune, bool):
        raise SpecError(f"axis {path!r} has tune={tune!r}; write tune=True, or leave it out")
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise SpecError(f"axis {path!r} has {values!r} for a list of values; write [{values!r}]")
    if path.endswith(".kind"):
        example = ", ".join(f'{{"kind": {canonical_json(value)}}}' for value in values)
        whole = path.removesuffix(".kind")
        raise SpecError(f"axis {path!r} exchanges the kind of a choice alone; vary {whole!r} over {example}")
    taken = tuple(map(unbox, values))
    try:
        texts = tuple(label_of(value) for value in taken) if labels is None else tuple(labels)
    except SpecError as error:
        raise SpecError(f"axis {path!r}: {error}") from error
    if not taken:
        raise SpecError(f"axis {path!r} has no values; give it at least one")
    for label in texts:
        require_text(label, f"axis {path!r}: the label, for which there is labels=[...],", MOST_LABEL)
    if len(texts) != len(taken):
        raise SpecError(f"axis {path!r} has {len(texts)} labels for {len(taken)} values; give one per value")
    twice = sorted({label for label in texts if texts.count(label) > 1}) if len(set(texts)) < len(texts) else []
    if twice:
        raise SpecError(f"axis {path!r} has several values called {twice[0]!r}; tell them apart with labels=[...]")
    if name is not None:
        require_name(name)
    return Axis(path, taken, texts, name, when, named=labels is not None, tune=tune)


def zipped(*dimensions: Dimension, when: Predicate | None = None) -> Bundle:
    """Vary axes together: first all first values, then all second values, and so on. Raises `SpecError`."""
    lengths = [len(dimension.choices) for dimension in _unconditional("zipped", dimensions)]
    if len(set(lengths)) > 1:
        told = ", ".join(f"{_paths(d)} has {n}" for d, n in zip(dimensions, lengths, strict=True))
        raise SpecError(f"zipped axes differ in their numbers of values: {told}; give all equally many")
    if len({axis.tune for axis in _axes(dimensions)}) > 1:
        raise SpecError(
            f"{' + '.join(map(_paths, dimensions))} are zipped, and only some are tuned; give all of them tune=True, "
            "or none"
        )
    together = zip(*(dimension.choices for dimension in dimensions), strict=True)
    return Bundle(_axes(dimensions), tuple(tuple(chain.from_iterable(row)) for row in together), when)


def one_at_a_time(*dimensions: Dimension, when: Predicate | None = None) -> Bundle:
    """Vary one axis at a time; the others keep their first value. This gives 1 + sum(n - 1) choices."""
    resting = [dimension.choices[0] for dimension in _unconditional("one_at_a_time", dimensions)]
    rows = [resting]
    for place, dimension in enumerate(dimensions):
        rows += [[*resting[:place], choice, *resting[place + 1 :]] for choice in dimension.choices[1:]]
    return Bundle(_axes(dimensions), tuple(tuple(chain.from_iterable(row)) for row in rows), when)


def _unconditional(how: str, dimensions: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    if not dimensions:
        raise SpecError(f"{how}() has no axis; give it at least one")
    for dimension in dimensions:
        if not isinstance(dimension, Axis | Bundle):
            raise SpecError(f"{how}(...) got {type(dimension).__name__}; give it axes one by one, made by over(...)")
        if dimension.when is not None:
            raise SpecError(
                f"{_paths(dimension)} has a condition inside {how}, whose axes share one; move its when= to {how}"
            )
    return dimensions


def _axes(dimensions: tuple[Dimension, ...]) -> tuple[Axis, ...]:
    return tuple(chain.from_iterable(dimension.axes for dimension in dimensions))


def _paths(dimension: Dimension) -> str:
    return " + ".join(repr(axis.path) for axis in dimension.axes)
