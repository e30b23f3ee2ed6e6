"""Values of a trial, and their differences between two results."""

import math
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from store.store import Store

_QUERIES = {
    "metric": "SELECT step, name, NULL, NULL, NULL, value FROM v_metric WHERE trial = $trial",
    "evaluation": "SELECT step, name, NULL, NULL, CAST(point AS VARCHAR), value FROM v_evaluation "
    "WHERE trial = $trial AND later IS NULL",
    "standard error": "SELECT step, name, NULL, NULL, CAST(point AS VARCHAR), se_items FROM v_evaluation "
    "WHERE trial = $trial AND later IS NULL AND se_items IS NOT NULL",
    "item": "SELECT step, name || ' of ' || item, NULL, NULL, CAST(point AS VARCHAR), value FROM v_item "
    "WHERE trial = $trial AND later IS NULL",
    "probe": "SELECT step, name, layer, head, CAST(point AS VARCHAR), value FROM v_probe WHERE trial = $trial",
}


@final
class ValueAddress(NamedTuple):
    """Identifies a recorded value."""

    kind: str
    step: int
    name: str
    layer: int | None = None
    head: int | None = None
    point: str | None = None

    def __str__(self) -> str:
        place = [f"layer {self.layer}"] if self.layer is not None else []
        place += [f"head {self.head}"] if self.head is not None else []
        place += [self.point] if self.point not in (None, "{}") else []
        return " ".join(map(str, (self.kind, self.name, *place, "at step", self.step)))


@final
class ValueDifference(NamedTuple):
    """A value that is not the same bits; None: that result does not have it."""

    where: ValueAddress
    recorded: float | None
    again: float | None

    @property
    def size(self) -> float:
        """The absolute difference; infinite where it is no number."""
        if self.recorded is None or self.again is None:
            return math.inf
        size = abs(self.again - self.recorded)
        return math.inf if math.isnan(size) else size


def values_of(store: "Store", trial: str) -> dict[ValueAddress, float]:
    """Every metric, evaluation, item and probe of `trial` that counts, without what it was judged by later."""
    return {
        ValueAddress(kind, *row[:-1]): row[-1]
        for kind, query in _QUERIES.items()
        for row in store.sql(query, {"trial": trial}).rows()
    }


def differences(recorded: Mapping[ValueAddress, float], again: Mapping[ValueAddress, float]) -> list[ValueDifference]:
    """Where two results differ, largest first; NaN equals NaN, and 0.0 is not -0.0."""
    found = [
        ValueDifference(where, recorded.get(where), again.get(where))
        for where in {**recorded, **again}
        if _bits(recorded.get(where)) != _bits(again.get(where))
    ]
    return sorted(found, key=lambda each: (-each.size, each.where.step, str(each.where)))


def _bits(value: float | None) -> bytes | None:
    return None if value is None else b"nan" if math.isnan(value) else struct.pack("<d", value)
