"""The command `compare`: what differs between trials, in spec and result."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from grid.errors import NotFoundError, SpecError
from runners.cli.options import Campaigns, Json, say_warnings
from runners.output import write, write_json, write_table
from store.export.plain import plain

if TYPE_CHECKING:
    from pathlib import Path

    from store.store import Store

_ABSENT = "(not there)"


def compare(*trials: str, campaign: Campaigns = (), as_json: Json = False) -> int:
    """Compare two trials or more: first their specs, then their results.

    Parameters
    ----------
    trials
        Keys of trials, or their beginnings. A trial that is in several of the campaigns is compared with itself.
    """
    from runners.cli.resolve import find_trial, open_campaign

    runs: list[_Compared] = []
    problems: dict[str, NotFoundError] = {}
    warnings: list[str] = []
    for path in campaign or (None,):
        with open_campaign(path) as store:
            warnings += store.warnings() if as_json else say_warnings(store)
            for word in dict.fromkeys(trials):
                try:
                    runs.append(_read_run(store, find_trial(store, word), path if len(campaign) > 1 else None))
                except NotFoundError as error:
                    problems[word] = error
    for word, problem in problems.items():
        if not any(run.key.startswith(word.lower()) for run in runs):
            raise problem
    if len(runs) < 2:
        raise SpecError(f"a comparison is between two trials or more; got {' '.join(trials) or 'none'}")
    spec, columns, rows = _differences([run.spec for run in runs]), *_results(runs)
    if as_json:
        told = [": ".join((path, " -> ".join(values))) for path, values in spec] if len(runs) == 2 else spec
        results = [dict(zip(columns, row, strict=True)) for row in rows]
        write_json("compare", {"spec": told, "results": results}, warnings)
        return 0
    if len(runs) == 2:
        write("\n".join(": ".join((path, " -> ".join(values))) for path, values in spec) or "the specs are equal")
    else:
        write_table(["field", *(run.name for run in runs)], [(path, *values) for path, values in spec])
    write_table(columns, rows)
    return 0


class _Compared(NamedTuple):
    key: str
    name: str
    """Heading of its column."""
    spec: Mapping[str, Any]
    final: Mapping[tuple[str, str], tuple[Any, float]]
    """By name and point as text, the point and the value."""


def _read_run(store: "Store", key: str, campaign: "Path | None") -> _Compared:
    """Read the spec and the final evaluations of a trial."""
    (text,) = store.sql("SELECT spec FROM trial WHERE trial = $key", {"key": key}).row(0)
    final = store.sql(
        """
        SELECT DISTINCT name, point, value FROM v_final
        WHERE trial = $key AND source = 'evaluation' AND NOT coalesce(map_contains(point, 'position'), false)
        ORDER BY name, CAST(point AS VARCHAR)
        """,
        {"key": key},
    )
    values = {(name, json.dumps(plain(point))): (point, value) for name, point, value in final.rows()}
    return _Compared(key, f"{key[:8]}{f' in {campaign}' if campaign else ''}", json.loads(text), values)


def _results(runs: Sequence[_Compared]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return columns and rows: of two runs what both have and the difference, else what any has."""
    if len(runs) == 2:
        first, second = (run.final for run in runs)
        rows = [
            (
                name,
                first[name, at][0],
                first[name, at][1],
                second[name, at][1],
                second[name, at][1] - first[name, at][1],
            )
            for name, at in first
            if (name, at) in second
        ]
        return ["name", "point", "first", "second", "difference"], rows
    places = {place: run.final[place][0] for run in runs for place in run.final}
    return ["name", "point", *(run.name for run in runs)], [
        (place[0], point, *(run.final.get(place, (None, None))[1] for run in runs)) for place, point in places.items()
    ]


def _differences(specs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """List the fields in which the specs differ, with the value in each."""
    leaves = [dict(_leaves(spec)) for spec in specs]
    paths = dict.fromkeys(path for each in leaves for path in each)
    found = [(path, [each.get(path, _ABSENT) for each in leaves]) for path in paths]
    return [(path, values) for path, values in found if len(set(values)) > 1]


def _leaves(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, json.dumps(data, ensure_ascii=False)
