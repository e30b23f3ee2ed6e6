"""The command `compare`: specs and results of some trials side by side."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import label_of
from ablate.runners.cli.cell_selection import sort_by_plan
from ablate.runners.cli.options import Campaigns, Json
from ablate.runners.cli.resolve import find_several, open_campaign, read_warnings
from ablate.runners.output import format_count, name_measure, write, write_json, write_table
from ablate.store.export.plain import plain
from ablate.store.state import State

if TYPE_CHECKING:
    from ablate.store.store import Store

_MOST_COMPARED = 12
_MOST_RESULTS = 30
"""Results of up to `_BESIDE` trials that are listed; of more, whose columns follow below, fewer."""
_BESIDE = 4
_SCREEN, _FEWEST_RESULTS = 53, 10
"""Lines of a screen without headings of results and what was left out, and those that results have in any case."""
_ABSENT = "(not there)"


def compare(*trials: str, campaign: Campaigns = (), as_json: Json = False) -> None:
    """Compare two trials or more: first their specs, then their results.

    Parameters
    ----------
    trials
        Keys of trials, or their beginnings, or labels; or a query that fits them: operator=SSA seed=1. A trial that is
        in several of the campaigns is compared with itself.
    """
    wanted: list[Sequence[str]] = (
        [trials] if any("=" in word for word in trials) else [(word,) for word in dict.fromkeys(trials)]
    )
    runs: list[_ComparedTrial] = []
    missing: dict[Sequence[str], NotFoundError] = {}
    matched: set[Sequence[str]] = set()
    warnings: list[str] = []
    for path in campaign or (None,):
        with open_campaign(path) as store:
            warnings += read_warnings(store, quiet=as_json)
            for words in wanted:
                try:
                    keys = find_several(store, words)
                except NotFoundError as error:
                    missing[words] = error
                    continue
                matched.add(words)
                keys = _in_plan_order(store, keys)
                runs += [_read_trial(store, key, path if len(campaign) > 1 else None) for key in keys]
    for unknown in missing.keys() - matched:
        raise missing[unknown]
    if len(runs) < 2:
        named = f"{' '.join(trials)!r} means {format_count(len(runs), 'trial')}" if trials else "no trial is named"
        raise SpecError(f"{named}, and a comparison has at least two; name them by label, key or a condition")
    _write_comparison(runs, warnings, as_json=as_json)


def _in_plan_order(store: "Store", keys: list[str]) -> list[str]:
    """Sort keys of trials as `ablate table --sort plan` lists their cells, then by the plan's seeds; others follow."""
    if len(keys) < 2:
        return keys
    frame = store.sql(
        "SELECT grid, cell, trial FROM grid_trial WHERE list_contains($keys, trial) ORDER BY grid, position",
        {"keys": keys},
    )
    return [*dict.fromkeys([*sort_by_plan(store, frame)["trial"], *keys])]


def _write_comparison(runs: "Sequence[_ComparedTrial]", warnings: Sequence[str], *, as_json: bool) -> None:
    is_pair, spec, (columns, rows) = len(runs) == 2, _differences([run.spec for run in runs]), _results(runs)
    if as_json:
        texts = [f"{path}: {' -> '.join(values)}" for path, values in spec]
        data = [dict(zip(columns, row, strict=True)) for row in rows]
        write_json("compare", {"spec": texts if is_pair else spec, "results": data}, warnings)
        return
    if len(runs) > _MOST_COMPARED:
        raise SpecError(
            f"{len(runs)} trials do not fit a table, which has room for {_MOST_COMPARED}; add a condition such as "
            "seed=0, or --json"
        )
    fields, lines = [each for each in spec if not _follows(*each, spec)], len(runs)
    runs, specs = _shorten_names(runs), list({run.key: at for at, run in enumerate(runs)}.values())
    columns[2:] = columns[2:] if is_pair else [run.name for run in runs]
    if len(fields) < len(runs) > 2:
        lines = _write_trials(runs, fields)
    else:
        names = [f"{run.name}  {run.label or 'in no grid'}{run.at_seed}" for run in runs]
        write("\n".join(f"{name}  {run.state}".rstrip() for name, run in zip(names, runs, strict=True)))
    if is_pair:
        write("\n".join(f"{path}: {' -> '.join(values)}" for path, values in fields) or "the specs are equal")
    elif len(fields) >= len(runs):
        by_field = [(path, *(values[at] for at in specs)) for path, values in fields]
        lines += write_table(["field", *(runs[at].key[:8] for at in specs)], by_field, overflow="blocks")
    different = [row for row in rows if len(set(row[2:4] if is_pair else row[2:])) > 1]
    if different:
        room = min(_MOST_RESULTS, max(_SCREEN - lines, _FEWEST_RESULTS))
        most = room * _BESIDE // max(_BESIDE, len(runs))
        results = [
            (name_measure({"name": name, "point": dict(point)}), *values)
            for name, point, *values in _sort_results(runs, different)[:most]
        ]
        write_table(["result", *columns[2:]], results, overflow="blocks")
        if len(different) > most:
            more = f"... {len(different) - most} more, sorted by difference relative to the largest value of a name"
            write(f"{more}; --json has all")
    left_out = (
        (len(spec) - len(fields), "field that comes with one above", "fields that come with one above"),
        (len(rows) - len(different), "result that is equal", "results that are equal"),
    )
    if words := " and ".join(format_count(*each) for each in left_out if each[0]):
        write(f"left out: {words}; --json has all")


def _write_trials(runs: "Sequence[_ComparedTrial]", fields: Sequence[tuple[str, Sequence[str]]]) -> int:
    """Write a row per trial with `fields`, and its label unless they repeat it; return the number of lines."""
    from ablate.grid.columns import BETWEEN

    labels = [(run.label or "").split(BETWEEN) for run in runs]
    common = [part for part in labels[0] if all(part in parts for parts in labels)]
    shown = [{label_of(json.loads(of[at])) for _, of in fields if of[at] != _ABSENT} for at in range(len(runs))]
    parts = [{part.rpartition("=")[2] for part in label if part not in common} for label in labels]
    repeats = any(parts) and all(words <= values for words, values in zip(parts, shown, strict=True))
    if shared := repeats and bool(common):
        write(f"in all labels: {BETWEEN.join(common)}")
    states = ["state"] if any(run.state for run in runs) else []
    headings = ["trial", *([] if repeats else ["cell"]), *states, *(path for path, _ in fields)]
    names = [[run.name, *([] if repeats else [run.label]), *([run.state] if states else [])] for run in runs]
    rows = [(*name, *(values[at] for _, values in fields)) for at, name in enumerate(names)]
    return write_table(headings, rows, overflow="blocks") + shared


def _shorten_names(runs: "Sequence[_ComparedTrial]") -> "list[_ComparedTrial]":
    """Name the campaigns of trials by their folders' names if these differ."""
    folders = {run.campaign.resolve(): run.campaign.resolve().name for run in runs if run.campaign}
    if len({*folders.values()}) < len(folders):
        return [*runs]
    return [
        run if run.campaign is None else run._replace(name=f"{run.key[:8]} in {folders[run.campaign.resolve()]}")
        for run in runs
    ]


def _sort_results(runs: "Sequence[_ComparedTrial]", rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Sort rows of `_results`: measures of grids, then the largest differences, relative to what their name reaches."""
    values = [[value for value in row[2 : 2 + len(runs)] if value is not None] for row in rows]
    largest: dict[str, float] = {}
    for (name, *_), of in zip(rows, values, strict=True):
        largest[name] = max(largest.get(name, 0.0), *map(abs, of))
    own = [run.measure for run in runs]
    ranks = [
        ((row[0], dict(row[1])) not in own, -(max(of) - min(of)) / (largest[row[0]] or 1.0))
        for row, of in zip(rows, values, strict=True)
    ]
    return [rows[at] for at in sorted(range(len(rows)), key=ranks.__getitem__)]


def _follows(path: str, values: Sequence[str], spec: Sequence[tuple[str, Sequence[str]]]) -> bool:
    """Return True if a field is there only since a choice's kind differs, or is a knock-out, which planning adds."""
    if path.startswith("execution.knockout."):
        return True
    kinds = [each.removesuffix("kind") for each, of in spec if each.endswith(".kind") and _ABSENT not in of]
    return _ABSENT in values and len(set(values)) == 2 and path.startswith(tuple(kinds))


class _ComparedTrial(NamedTuple):
    key: str
    name: str
    """Heading of its column."""
    campaign: Path | None
    """Its campaign, if there are several."""
    label: str | None
    at_seed: str
    """Two blanks and its seed in its grid."""
    state: str
    """With the reason of a failure; empty if it is done."""
    measure: tuple[str, Mapping[str, float]] | None
    """Name and point of the measure of its grid."""
    spec: Mapping[str, Any]
    final: Mapping[tuple[str, str], tuple[Any, float]]
    """By name and point as text, the point and the value."""


def _read_trial(store: "Store", key: str, campaign: Path | None) -> _ComparedTrial:
    text, state, reason, label, seed, grid = store.sql(
        "SELECT t.spec, t.state, t.reason, g.label, g.seed, g.grid FROM trial t LEFT JOIN grid_trial g USING (trial) "
        "WHERE trial = $key LIMIT 1",
        {"key": key},
    ).row(0)
    measure = store.grid(grid)["measure"] if grid else None
    own = (measure["name"], measure.get("point") or {}) if measure and "name" in measure else None
    final = store.sql(
        """
        SELECT DISTINCT name, point, source, value FROM v_final
        WHERE trial = $key AND (source = 'evaluation' OR name = $measure)
          AND NOT coalesce(map_contains(point, 'position'), false)
        ORDER BY name, point, source DESC
        """,  # the evaluation is last, so it counts
        {"key": key, "measure": own and own[0]},
    )
    values = {(name, json.dumps(plain(point))): (point, value) for name, point, _, value in final.rows()}
    name = f"{key[:8]}{f' in {campaign}' if campaign else ''}"
    at_seed = "" if seed is None else f"  seed {seed}"
    state = "" if state == State.DONE else f"{state}: {reason}" if state == State.FAILED else state
    return _ComparedTrial(key, name, campaign, label, at_seed, state, own, json.loads(text), values)


def _results(runs: Sequence[_ComparedTrial]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return columns and rows: of two runs what both have and the difference, else what any has."""
    if len(runs) == 2:
        first, second = (run.final for run in runs)
        pairs = {key: (point, value, second[key][1]) for key, (point, value) in first.items() if key in second}
        columns = ["name", "point", "first", "second", "difference"]
        return columns, [(name, point, one, two, two - one) for (name, _), (point, one, two) in pairs.items()]
    keys = {key: run.final[key][0] for run in runs for key in run.final}
    return ["name", "point", *(run.name for run in runs)], [
        (key[0], point, *(run.final.get(key, (None, None))[1] for run in runs)) for key, point in keys.items()
    ]


def _differences(specs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    leaves = [dict(_leaves(spec)) for spec in specs]
    paths = dict.fromkeys(path for each in leaves for path in each)
    rows = [(path, [each.get(path, _ABSENT) for each in leaves]) for path in paths]
    return [(path, values) for path, values in rows if len(set(values)) > 1]


def _leaves(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, json.dumps(data, ensure_ascii=False)
