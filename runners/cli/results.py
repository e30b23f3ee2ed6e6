"""Commands that show the state and the results of a campaign: status, table, compare."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from grid.errors import NotFoundError, SpecError
from grid.names import some
from runners.cli.options import AnyGrid, Campaign, Campaigns, Cells, Csv, GridFlags, Json, Listing, OneGrid, flag_group
from runners.cli.resolve import MOST_NAMED, choose_grid, find_several, open_campaign, open_grid, read_warnings
from runners.cli.verdict_text import (
    find_cells,
    keep_cells,
    label_cells,
    select_columns,
    sort_cells,
    write_title,
    write_verdicts,
)
from runners.output import format_count, name_measure, tell, write, write_frame, write_json, write_prose, write_table
from store.export.plain import plain

if TYPE_CHECKING:
    import polars as pl

    from store.analysis.verdicts import GridMeasure
    from store.store import Store

_MOST_INGEST_S = 1.0
"""Seconds for which `ablate status` reads what is new; it says what is left."""
_MOST_COMPARED = 12
_MOST_RESULTS = 30
"""Results of up to `_BESIDE` trials that are listed; of more, whose columns follow below, fewer."""
_BESIDE = 4
_ABSENT = "(not there)"


def status(*query: Cells, campaign: Campaign = None, grid: AnyGrid = None, as_json: Json = False) -> None:
    """Show the progress of each cell, the running trials and the failures.

    A query keeps cells, running trials and failures.
    """
    from runners.monitoring.status_text import read_status, write_status
    from runners.monitoring.trial_locations import locate_trials
    from runners.monitoring.trial_query import select_planned

    with open_campaign(campaign, thorough=False, most_s=_MOST_INGEST_S) as store:
        names = (store.grids() if grid is None else []) or [choose_grid(store, grid)]
        state = read_status(store, locate_trials(store, done=False), names, grid)
        state = state.keep(store, grid, select_planned(store, query)) if query else state
    if as_json:
        write_json("status", state.data(), state.warnings)
    else:
        write_status(state)
        tell(*state.warnings)


@flag_group
class GridsFlags:
    """A grid of each of some campaigns, and the format of the answer."""

    campaign: Campaigns = ()
    grid: OneGrid = None
    as_json: Json = False
    as_csv: Csv = False


@flag_group
class Judged:
    """The measure that is compared; by default that of the grid.

    Parameters
    ----------
    measure
        Another measurement than the grid's measure, or another point of it: loss, or mse@sigma_f=5. A name that does
        not exist is answered with those that do.
    better
        The direction of `--measure`, if neither the grid nor a task says it.
    best_over
        An axis such as the learning rate, or several: every setting of the others is represented by its best cell,
        chosen on half of the seeds and compared on the other half.
    """

    measure: str | None = None
    better: Literal["lower", "higher"] | None = None
    best_over: Annotated[Sequence[str], Parameter(negative="")] = ()

    @property
    def words(self) -> str:
        """The options of a command about the same measure."""
        measure = "" if self.measure is None else f" --measure {self.measure}"
        return measure if self.better is None else f"{measure} --better {self.better}"

    def check(self) -> None:
        """Raise SpecError for options that do not go together."""
        if self.better is not None and self.measure is None:
            raise SpecError("--better is about --measure, and the grid says it of its own measure; leave --better out")
        if self.best_over and self.measure is not None:
            raise SpecError("--best-over chooses by the grid's measure; leave --measure out")

    def find(self, store: "Store", grid: str) -> "GridMeasure":
        """Return the measure in a grid; say so if its direction is unknown."""
        from store.analysis.measurements import find_measure
        from store.analysis.metrics import direction
        from store.analysis.verdicts import measure_of

        if self.measure is None:
            return measure_of(store, grid, None)
        found = find_measure(store, grid, self.measure, {} if self.better is None else {"better": self.better})
        own = (store.grid(grid)["measure"] or {}).get("name")
        if self.better is None and found.name != own and direction(found.name) is None:
            tell(f"the direction of {found.name} is unknown, and lower is taken as better; --better says it")
        return found


def table(
    *query: Cells,
    of: GridsFlags = GridsFlags(),
    rows: Listing = Listing(),
    why: str | None = None,
    judged_by: Judged = Judged(),
) -> None:
    """Show the verdict table: every cell against the grid's baseline, paired by seed.

    Each campaign has a table of its own.

    Parameters
    ----------
    why
        A cell: all that its verdict is based on, instead of the table. Its label, the beginning of its label or key, or
        a query that only this cell fits: 'operator=SSA lr=0.001', or 'operator="two words" lr=0.001'.
    """
    import polars as pl

    judged_by.check()
    best_over = judged_by.best_over
    if why is not None:
        if query:
            raise SpecError(f"--why names the cell; leave {' '.join(query)!r} out")
        _write_why(of, why, judged_by)
        return
    frames: list[pl.DataFrame] = []
    warnings: list[str] = []
    for path in of.campaign or (None,):
        flags = GridFlags(path, of.grid, of.as_json, of.as_csv)
        with open_grid(flags) as (store, name, notes):
            judged = judged_by.find(store, name)
            found, bases = _compare_cells(store, name, judged, best_over)
            shown = sort_cells(keep_cells(store, name, found, query), rows.sort, judged.better)
            several = str(path) if len(of.campaign) > 1 else None
            named = _name_rows(shown, judged, rows.columns, None if flags.as_text else several)
            if flags.as_text:
                if several:
                    write(f"campaign {several}")
                header = _with_measure(store.grid(name), judged)
                bases = write_title(store, header, found, shown, bases, best_over)
                write_verdicts(store, header, shown, bases, best_over, None if rows.columns is None else named)
                if shown.height and not best_over:
                    write(f"ablate table{judged_by.words} --why CELL shows what a verdict is based on")
                continue
            warnings += notes
            frames.append(named)
    if frames:
        together = pl.concat(frames, how="diagonal_relaxed")
        write_frame("table", together, as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)


def _name_rows(
    rows: "pl.DataFrame", measure: "GridMeasure", columns: str | None, campaign: str | None
) -> "pl.DataFrame":
    """Add the measure, and the campaign if there are several, to rows of verdicts."""
    import polars as pl

    from store.analysis.measurements import text_of

    shown = select_columns(rows.with_columns(measure=pl.lit(text_of(measure.name, measure.point))), columns)
    return shown if campaign is None else shown.select(pl.lit(campaign).alias("campaign"), pl.all())


def _with_measure(header: "Mapping[str, Any]", measure: "GridMeasure") -> dict[str, Any]:
    """Return the header of a grid with a measure; the unit of another one is unknown."""
    own = header["measure"] or {}
    unit = own.get("unit") if measure.name == own.get("name") else None
    return {**header, "measure": {**measure._asdict(), "unit": unit}}


def _compare_cells(
    store: "Store", grid: str, measure: "GridMeasure", best_over: Sequence[str]
) -> "tuple[pl.DataFrame, list[dict[str, Any]]]":
    """Return the verdicts of a grid and the rows of its baselines."""
    from store.analysis.tuned_verdicts import tuned_table
    from store.analysis.verdicts import baseline_rows, baselines_of, runs, verdicts

    if best_over:
        return tuned_table(store, grid, best_over)
    bases = baseline_rows(runs(store, grid, measure), baselines_of(store, grid, None), measure)
    return verdicts(store, grid, measure=measure._asdict()), bases


def _find_cell(store: "Store", grid: str, words: str) -> str:
    """Return the key of the one cell that `words` mean. Raise NotFoundError if they mean none, SpecError if several."""
    from runners.monitoring.trial_query import split_quoted

    names = label_cells(store, grid)
    exact = [cell for cell, label in names.items() if words in (cell, label)]
    begun = [cell for cell, label in names.items() if cell.startswith(words) or label.startswith(words)]
    parts = split_quoted([words])
    found = exact or begun or find_cells(store, grid, words.split() if parts == [words] else parts)
    if len(found) > 1:
        several = some([names[cell] for cell in found], MOST_NAMED)
        raise SpecError(f"--why is about one cell, and {len(found)} fit {words!r}: {several}")
    return found[0]


def _write_why(of: GridsFlags, words: str, judged_by: Judged) -> None:
    from store.analysis.explain_verdict import why, why_text

    if judged_by.best_over or of.as_csv or len(of.campaign) > 1:
        raise SpecError("--why is about one cell of one campaign; leave --best-over, --csv and more campaigns out")
    with open_grid(GridFlags(next(iter(of.campaign), None), of.grid, of.as_json)) as (store, grid, warnings):
        found = why(store, grid, _find_cell(store, grid, words), measure=judged_by.find(store, grid)._asdict())
    if of.as_json:
        write_json("why", found, warnings)
    else:
        write(f"{found['label']}, grid {grid}")
        for line in why_text(found):
            write_prose(f"  {line}")


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
    found: set[Sequence[str]] = set()
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
                found.add(words)
                runs += [_read_trial(store, key, path if len(campaign) > 1 else None) for key in keys]
    for unknown in missing.keys() - found:
        raise missing[unknown]
    if len(runs) < 2:
        given = f"{' '.join(trials)!r} means {len(runs)}" if trials else "none is named"
        raise SpecError(f"a comparison is between two trials or more; {given}; name them by label, key or a condition")
    _write_comparison(runs, warnings, as_json=as_json)


def _write_comparison(runs: "Sequence[_ComparedTrial]", warnings: Sequence[str], *, as_json: bool) -> None:
    is_pair, spec, (columns, rows) = len(runs) == 2, _differences([run.spec for run in runs]), _results(runs)
    if as_json:
        lines = [f"{path}: {' -> '.join(values)}" for path, values in spec]
        results = [dict(zip(columns, row, strict=True)) for row in rows]
        write_json("compare", {"spec": lines if is_pair else spec, "results": results}, warnings)
        return
    if len(runs) > _MOST_COMPARED:
        raise SpecError(f"a table has room for {_MOST_COMPARED} trials; got {len(runs)}: add conditions, or --json")
    fields = [each for each in spec if not _follows(*each, spec)]
    if len(fields) < len(runs) > 2:
        trials = [(run.name, run.label, *(values[at] for _, values in fields)) for at, run in enumerate(runs)]
        write_table(["trial", "cell", *(path for path, _ in fields)], trials, blocks=True)
    else:
        write("\n".join(f"{run.name}  {run.label}  seed {run.seed}" for run in runs))
    if is_pair:
        write("\n".join(f"{path}: {' -> '.join(values)}" for path, values in fields) or "the specs are equal")
    elif len(fields) >= len(runs):
        write_table(["field", *(run.name for run in runs)], [(path, *values) for path, values in fields], blocks=True)
    different = [row for row in rows if len(set(row[2:4] if is_pair else row[2:])) > 1]
    if different:
        most = _MOST_RESULTS * _BESIDE // max(_BESIDE, len(runs))
        shown = [
            (name_measure({"name": name, "point": dict(point)}), *values)
            for name, point, *values in _sort_results(runs, different)[:most]
        ]
        write_table(["result", *columns[2:]], shown, blocks=True)
        if len(different) > most:
            more = f"... {len(different) - most} more, sorted by difference relative to the largest value of a name"
            write(f"{more}; --json has all")
    left_out = (
        (len(spec) - len(fields), "field that comes with a kind above", "fields that come with a kind above"),
        (len(rows) - len(different), "result that is equal", "results that are equal"),
    )
    if words := " and ".join(format_count(*each) for each in left_out if each[0]):
        write(f"left out: {words}; --json has all")


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
    """Return True if a field is there only since the kind of a choice differs, and is equal wherever it is there."""
    kinds = [each.removesuffix("kind") for each, of in spec if each.endswith(".kind") and _ABSENT not in of]
    return _ABSENT in values and len(set(values)) == 2 and path.startswith(tuple(kinds))


class _ComparedTrial(NamedTuple):
    key: str
    name: str
    """Heading of its column."""
    label: str | None
    seed: int | None
    measure: tuple[str, Mapping[str, float]] | None
    """Name and point of the measure of its grid."""
    spec: Mapping[str, Any]
    final: Mapping[tuple[str, str], tuple[Any, float]]
    """By name and point as text, the point and the value."""


def _read_trial(store: "Store", key: str, campaign: Path | None) -> _ComparedTrial:
    text, label, seed, grid = store.sql(
        "SELECT t.spec, g.label, g.seed, g.grid FROM trial t LEFT JOIN grid_trial g USING (trial) WHERE trial = $key "
        "LIMIT 1",
        {"key": key},
    ).row(0)
    final = store.sql(
        """
        SELECT DISTINCT name, point, value FROM v_final
        WHERE trial = $key AND source = 'evaluation' AND NOT coalesce(map_contains(point, 'position'), false)
        ORDER BY name, point
        """,
        {"key": key},
    )
    values = {(name, json.dumps(plain(point))): (point, value) for name, point, value in final.rows()}
    name = f"{key[:8]}{f' in {campaign}' if campaign else ''}"
    measure = store.grid(grid)["measure"] if grid else None
    own = (measure["name"], measure.get("point") or {}) if measure and "name" in measure else None
    return _ComparedTrial(key, name, label, seed, own, json.loads(text), values)


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
    found = [(path, [each.get(path, _ABSENT) for each in leaves]) for path in paths]
    return [(path, values) for path, values in found if len(set(values)) > 1]


def _leaves(data: object, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, json.dumps(data, ensure_ascii=False)
