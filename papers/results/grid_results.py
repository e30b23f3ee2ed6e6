"""The runs of a grid in a result file, as rows and as a store."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import duckdb
import polars as pl

from ablate.grid.errors import NotFoundError
from ablate.store.analysis.tuned_verdicts import ComparedRuns, tune
from ablate.store.analysis.verdicts import GridMeasure, without_added
from ablate.store.database.connection import open_live
from ablate.store.database.readonly import locked_connection
from ablate.store.files.layout import Layout
from ablate.papers.results.result_files import damage_error, read_summary
from ablate.store.state import State
from ablate.store.statistics.check import Check
from ablate.store.store import Store

OF_RUN: Final = ("trial", "cell", "label", "operator", "baseline", "seed", "axes", "state", "budget", "code", "wall_s")
"""Columns of the rows that are of a run and of no measurement."""


class GridResult(NamedTuple):
    """The runs of one grid."""

    header: dict[str, Any]
    cost: dict[str, Any]
    rows: pl.DataFrame
    checks: Mapping[str, Sequence[Check]] = {}
    """By cell, at the planned measure; empty for files that were written before there were checks."""

    def measure(self) -> GridMeasure:
        fields = {**self.header["measure"], "variance": self.header.get("variance", "own")}
        return GridMeasure(**{name: fields[name] for name in GridMeasure._fields})

    def runs(self, measure: GridMeasure) -> pl.DataFrame:
        """Return the runs of variants and baselines with their `value` of the measure, for `compare`."""
        return without_added(self.every_run(measure), self.header)

    def every_run(self, measure: GridMeasure) -> pl.DataFrame:
        """Return these and the runs of controls and of cells that are trained longer."""
        planned = self.rows.select(*OF_RUN).unique(["cell", "seed"], maintain_order=True)
        named = self.rows.filter((pl.col("name") == measure.name) & (pl.col("source") != "probe"))
        points = [json.loads(point) for point in named["point"]]
        at = [all(point.get(axis) == value for axis, value in measure.point.items()) for point in points]
        values = named.filter(pl.Series(at, dtype=pl.Boolean)).select("cell", "seed", "value")
        return planned.join(values, on=["cell", "seed"], how="left", maintain_order="left", validate="1:1")

    @property
    def baselines(self) -> str | dict[str, str]:
        """The baseline cell, or that of each cell."""
        several: dict[str, str] = self.header.get("baselines") or {}
        return several or str(self.header["baseline"])

    def compared_runs(self, measure: GridMeasure) -> ComparedRuns:
        """Return the runs that verdicts compare."""
        values = self.runs(measure)
        return tune(values, self.header, self.baselines, scale=measure.scale, better=measure.better)


def read(folder: Path, grid: str) -> GridResult:
    """Read the result of a grid.

    Raises:
        NotFoundError: the folder has no such grid; names those that it has.
        StoreError: the files have another version, or are damaged.
    """
    known = sorted(path.stem for path in folder.glob("*.json"))
    if grid not in known:
        raise NotFoundError(f"{folder} has no result of a grid {grid!r}; it has {known}")
    place = folder / f"{grid}.json"
    record = read_summary(place)
    try:
        rows = pl.read_parquet(folder / f"{grid}.parquet")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damage_error(place, error) from error
    if "status" in rows.columns:  # a file of release 0.1.0
        rows = rows.rename({"status": "state"}).with_columns(pl.col("state").replace("ok", State.DONE))
    checks = {cell: tuple(Check(*each) for each in own) for cell, own in record["checks"].items()}
    return GridResult(record["header"], record["cost"], rows, checks)


@contextmanager
def open_result(folder: Path, grid: str, specs: Mapping[str, Mapping[str, Any]]) -> Iterator[Store]:
    """Open the result of a grid as the store of a campaign, with the specs of its cells, which the files do not have.

    Sizes of models, tokens and the noise of test items are null there: the files do not have them. Raises as `read`.
    """
    result = read(folder, grid)
    frame = pl.DataFrame(
        {"cell": list(specs), "spec": [json.dumps(spec) for spec in specs.values()]},
        schema={"cell": pl.String, "spec": pl.String},
    )
    with TemporaryDirectory() as root:
        layout = Layout(Path(root))
        with open_live(layout.live) as connection:
            connection.register("result", result.rows.with_row_index("place").to_arrow())
            connection.register("given", frame.to_arrow())
            try:
                connection.execute(_HEADER, {"header": json.dumps(result.header)})
                connection.execute(_ROWS)
            except _DAMAGED as error:
                raise damage_error(folder / f"{grid}.json", error) from error
        with Store(layout, locked_connection(layout.live), None) as store:
            yield store


_DAMAGED: Final = (
    duckdb.BinderException,
    duckdb.ConstraintException,
    duckdb.ConversionException,
    duckdb.InvalidInputException,
)
"""Columns or fields are missing, or are not what they should be; other errors are of the disk or the memory."""
_HEADER: Final = """
INSERT INTO grid BY NAME
SELECT h->>'grid' AS grid, (h->>'cells')::BIGINT AS cells, (h->>'trials')::BIGINT AS trials,
       (h->'seeds')::BIGINT[] AS seeds, h->>'baseline' AS baseline, h->'measure' AS measure, h->'rules' AS rules,
       h->'base' AS base, h AS header
FROM (SELECT $header::JSON AS h);
"""
_ROWS: Final = f"""
CREATE TEMP TABLE run AS
SELECT {", ".join(OF_RUN)}, min(place) AS position FROM result GROUP BY ALL;
INSERT INTO grid_trial BY NAME
SELECT grid, trial, cell, label, operator, seed, axes::JSON AS axes, position, run.baseline FROM run, grid;
INSERT INTO trial BY NAME
SELECT trial, cell, operator, seed, spec->>'$.task.kind' AS task, spec, state, (state <> 'pending')::INT AS attempts,
       budget::BIGINT AS step, wall_s
FROM run LEFT JOIN (SELECT cell, spec::JSON AS spec FROM given) USING (cell);
INSERT INTO attempt BY NAME
SELECT trial, 1 AS attempt, code, false AS alive, replace(state, 'done', 'ok') AS status, budget::BIGINT AS step,
       wall_s, [] AS shards, '' AS signature
FROM run WHERE state IN ('done', 'failed');
INSERT INTO counted BY NAME SELECT trial, attempt FROM attempt;
CREATE TEMP TABLE measured AS
SELECT trial, 1 AS attempt, coalesce(budget, 0)::BIGINT AS step, source, name, value, 0 AS shard,
       point::JSON::MAP(VARCHAR, DOUBLE) AS point
FROM result WHERE value IS NOT NULL;
INSERT INTO evaluation BY NAME SELECT * EXCLUDE (source), 0 AS items FROM measured WHERE source = 'evaluation';
INSERT INTO probe BY NAME
SELECT * EXCLUDE (source) REPLACE (
           map_from_entries(list_filter(map_entries(point), lambda e: e.key NOT IN ('layer', 'head'))) AS point),
       point['layer'] AS layer, point['head'] AS head
FROM measured WHERE source = 'probe';
"""
