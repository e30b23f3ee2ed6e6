"""Two trials side by side: what differs in their specs, in words, and what their evaluations say."""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import polars as pl

    from store.store import Store

_ABSENT = "(not there)"


class Comparison(NamedTuple):
    """`spec`: one line per differing field. `results`: name, point, first, second, difference (second - first)."""

    spec: list[str]
    results: "pl.DataFrame"


def compare_trials(store: "Store", first: str, second: str) -> Comparison:
    """Compare two trials by their full keys; results are the final evaluations both have."""
    specs = [
        json.loads(store.sql("SELECT spec FROM trial WHERE trial = $key", {"key": key})["spec"][0])
        for key in (first, second)
    ]
    results = store.sql(
        """
        WITH final AS (SELECT DISTINCT trial, name, point, value FROM v_final WHERE source = 'evaluation')
        SELECT a.name, a.point, a.value AS first, b.value AS second, b.value - a.value AS difference
        FROM final a JOIN final b ON a.name = b.name AND a.point IS NOT DISTINCT FROM b.point
        WHERE a.trial = $first AND b.trial = $second AND NOT coalesce(map_contains(a.point, 'position'), false)
        ORDER BY a.name, CAST(a.point AS VARCHAR)
        """,
        {"first": first, "second": second},
    )
    return Comparison(list(_differences(*specs)), results)


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    one, other = dict(_leaves(first)), dict(_leaves(second))
    for path in dict.fromkeys((*one, *other)):
        if one.get(path, _ABSENT) != other.get(path, _ABSENT):
            yield f"{path}: {one.get(path, _ABSENT)} -> {other.get(path, _ABSENT)}"


def _leaves(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, json.dumps(data, ensure_ascii=False)
