"""Values that training code of any kind records: checked when they are recorded, so that the fault is where it is made.

A place has one value: a metric at a step, an evaluation at a point, a probe of a layer and head.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, SupportsFloat, SupportsIndex, final

from ablate.grid.errors import SpecError
from ablate.grid.values import require_number, require_whole, show
from ablate.store.files.rows import check_row

Row = tuple[Any, ...]
"""A row of a long table, from step to value."""


class CheckedEvaluation(NamedTuple):
    """An evaluation and the values of its items, as rows."""

    row: Row
    items: list[Row]


def check_costs(costs: Mapping[str, Any]) -> dict[str, float]:
    """Return costs by name. Raises SpecError: a value is no number, the `parameters` are no whole number."""
    return {
        name: require_whole(value, "the number of parameters")
        if name == "parameters"
        else require_number(value, f"the cost {name}")
        for name, value in costs.items()
    }


@final
class CheckedValues:
    """The places of one run that have a value.

    Training that goes on from a checkpoint may record again what that holds; it is left out. Everything else that is
    recorded twice raises SpecError.
    """

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        self._places: set[Row] = set()
        self._before: tuple[dict[str, int], frozenset[Row]] = {}, frozenset()
        self._evaluated: dict[Row, CheckedEvaluation] = {}
        """The evaluations of the latest step that has one, by name and point."""

    def state(self) -> list[list[Any]]:
        """Return the places as plain data."""
        metrics = [["metric", step, name] for name, step in {**self._before[0], **self._steps}.items()]
        return metrics + [list(place) for place in sorted(self._places | self._before[1], key=repr)]

    def restore(self, state: Iterable[Iterable[Any]]) -> None:
        """Take the places of a checkpoint."""
        places = [tuple(place) for place in state]
        steps = {place[2]: place[1] for place in places if place[0] == "metric"}
        self._before = steps, frozenset(place for place in places if place[0] != "metric")

    def metrics(self, step: SupportsIndex, metrics: Mapping[str, SupportsFloat]) -> tuple[int, dict[str, float]]:
        """Return the step, and the metrics that are new.

        Raises SpecError, and takes none of them: a name or a value is unfit, a step does not rise.
        """
        rows = [check_row("metric", ("", 0, step, name, value, 0.0))[2:] for name, value in metrics.items()]
        new = {name: (at, value) for at, name, value, _ in rows if at > self._before[0].get(name, -1)}
        for name, (at, _) in new.items():
            if at <= self._steps.get(name, -1):
                before = f"{name!r} was logged at step {self._steps[name]}"
                raise SpecError(f"{before} and now at {at}; the step of a metric rises")
        self._steps |= {name: at for name, (at, _) in new.items()}
        return require_whole(step, "the step"), {name: value for name, (_, value) in new.items()}

    def evaluation(
        self,
        step: SupportsIndex,
        name: str,
        value: SupportsFloat | None,
        point: Mapping[str, SupportsFloat],
        items: SupportsIndex | Mapping[str, SupportsFloat],
        se_items: SupportsFloat | None,
    ) -> CheckedEvaluation | None:
        """Return the rows of an evaluation; None if a checkpoint holds it.

        Raises SpecError: the place has a value, a value is no number, or not the mean of its items.
        """
        number, values, count, error = _check_items(name, value, items, se_items)
        row = check_row("evaluation", ("", 0, step, name, point, number, count, error))[2:]
        rows = [check_row("item", ("", 0, *row[:3], item, each))[2:] for item, each in values.items()]
        taken = self._take("evaluation", row[:2], row[2])
        checked = CheckedEvaluation(row, rows)
        if any(other.row[0] != row[0] for other in self._evaluated.values()):
            self._evaluated.clear()
        self._evaluated[row[1], *sorted(row[2].items())] = checked
        return checked if taken else None

    def knockout(
        self,
        paths: Collection[str],
        name: str,
        value: SupportsFloat | None,
        point: Mapping[str, SupportsFloat],
        items: SupportsIndex | Mapping[str, SupportsFloat],
        se_items: SupportsFloat | None,
    ) -> Iterator[Row]:
        """Yield the arguments of the evaluations that say what an evaluation is without fields of the experiment.

        Raises SpecError: there is none at this point of the latest step, its items are others, or the error is unknown.
        """
        if not paths or not {*NO_FIELDS}.isdisjoint(paths):
            raise SpecError(f"the knock-out {show(paths)} names no fields; give their paths, such as 'gate'")
        number, values, count, error = _check_items(name, value, items, se_items)
        place = check_row("evaluation", ("", 0, 0, name, point, number, count, error))[3:]
        own = self._evaluated.get((place[0], *sorted(place[1].items())))
        if own is None:
            raise SpecError(
                f"the knock-out has no evaluation {show(name)} at this point of its step; call run.evaluate({name!r}, "
                "...) before it"
            )
        step, _, at, before, own_count, own_error = own.row
        change, error = place[2] - before, place[4]
        single = {row[3]: row[4] for row in own.items}
        if (count, values.keys()) != (own_count, single.keys()):
            raise SpecError(
                f"the knock-out of {show(name)} has other items than its evaluation; measure it on the same"
            )
        if len(values) > 1:
            changes = [each - single[item] for item, each in values.items()]
            error = _standard_error(changes) if all(map(math.isfinite, changes)) else None
        elif error is not None and own_error is not None:
            error = math.hypot(error, own_error)
        else:
            raise SpecError(
                f"evaluation {show(name)} has no error over items, which tells a knock-out from chance; give it and "
                "its evaluation items={...}, or se_items="
            )
        if ("evaluation", step, unchanged := f"knockout.none.{name}", *_flat(at)) not in self._places:
            yield step, unchanged, before, at, count, own_error
        yield step, f"knockout.{'+'.join(sorted({*paths}))}.{name}", change, at, count, error

    def probe(
        self,
        step: SupportsIndex,
        name: str,
        value: SupportsFloat,
        layer: SupportsIndex | None,
        head: SupportsIndex | None,
        point: Mapping[str, SupportsFloat],
    ) -> Row | None:
        """Return the row of a probe; None if a checkpoint holds it. Raises as `evaluation`."""
        row = check_row("probe", ("", 0, step, name, layer, head, point, value))[2:]
        return row if self._take("probe", row[:4], row[4]) else None

    def names(self) -> set[str]:
        """Return the names of the metrics, evaluations and probes that have a value."""
        return {str(place[2]) for place in self.state()}

    def _take(self, table: str, place: Row, point: Mapping[str, float]) -> bool:
        full = (table, *place, *_flat(point))
        if full in self._before[1]:
            return False
        if full in self._places:
            told = f"{place[1]!r} at step {place[0]} was recorded there before"
            raise SpecError(f"{told}; give it another point")
        self._places.add(full)
        return True


NO_FIELDS: Final = ("none", "all", "refit", "uniform")
"""Knock-outs of trials that are no set of stages."""


def _flat(point: Mapping[str, float]) -> Row:
    return tuple(each for pair in sorted(point.items()) for each in pair)


def _standard_error(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in values) / (len(values) - 1) / len(values))


def _check_items(
    name: str,
    value: SupportsFloat | None,
    items: SupportsIndex | Mapping[str, SupportsFloat],
    se_items: SupportsFloat | None,
) -> tuple[SupportsFloat, dict[str, float], int, SupportsFloat | None]:
    """Return the value, the values of its items, their number, and the standard error, where it follows from these."""
    if not isinstance(items, Mapping):
        if value is None:
            raise SpecError(f"evaluation {show(name)} has no value; give it, or the values of its items")
        return value, {}, require_whole(items, f"items of evaluation {show(name)}", least=1), se_items
    values = {
        item: require_number(each, f"item {show(item)} of evaluation {show(name)}") for item, each in items.items()
    }
    if not values:
        raise SpecError(f"evaluation {show(name)} has no items; give at least one")
    mean = math.fsum(values.values()) / len(values) if all(map(math.isfinite, values.values())) else math.nan
    number = mean if value is None else require_number(value, f"evaluation {show(name)}")
    if math.isfinite(mean) and not math.isclose(number, mean, rel_tol=1e-3, abs_tol=1e-6):
        raise SpecError(f"evaluation {name!r} is {number:.6g}, and the mean of its items {mean:.6g}; give them equal")
    if se_items is None and len(values) > 1 and math.isfinite(mean):
        se_items = _standard_error([*values.values()])
    return number, values, len(values), se_items
