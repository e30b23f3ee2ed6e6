"""The command that shows the results of a campaign: table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ablate.grid.errors import SpecError
from ablate.runners.cli.cell_selection import find_cells, keep_cells, label_cells
from ablate.runners.cli.cell_tables import (
    select_columns,
    sort_cells,
    write_title,
    write_verdicts,
)
from ablate.runners.cli.options import (
    Campaigns,
    Cells,
    Csv,
    GridFlags,
    Json,
    Listing,
    OneGrid,
    flag_group,
)
from ablate.runners.cli.resolve import open_grid
from ablate.runners.output import tell, write, write_frame, write_json, write_prose

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.analysis.verdicts import GridMeasure
    from ablate.store.store import Store


@flag_group
class GridsFlags:
    """A grid of each of some campaigns, and the format of the answer."""

    campaign: Campaigns = ()
    grid: OneGrid = None
    as_json: Json = False
    as_csv: Csv = False


@flag_group
class MeasureFlags:
    """The measure that is compared; by default that of the grid.

    Parameters
    ----------
    measure
        Another measurement than the grid's measure, or another point of it: loss, or mse@sigma_f=5. A name that does
        not exist is answered with those that do.
    better
        The direction of `--measure`, if neither the grid nor a task says it.
    """

    measure: str | None = None
    better: Literal["lower", "higher"] | None = None

    @property
    def words(self) -> str:
        """The options of a command about the same measure."""
        measure = "" if self.measure is None else f" --measure {self.measure}"
        return measure if self.better is None else f"{measure} --better {self.better}"

    def check(self) -> None:
        """Raise SpecError for options that do not go together."""
        if self.better is not None and self.measure is None:
            raise SpecError(
                "--better has no effect without --measure: the grid says it of its own measure; leave it out"
            )

    def find(self, store: "Store", grid: str) -> "GridMeasure":
        """Return the measure in a grid; say so if its direction is unknown."""
        from ablate.store.analysis.measurements import find_measure
        from ablate.store.analysis.metrics import direction
        from ablate.store.analysis.verdicts import measure_of

        if self.measure is None:
            return measure_of(store, grid, None)
        measure = find_measure(store, grid, self.measure, {} if self.better is None else {"better": self.better})
        own = (store.grid(grid)["measure"] or {}).get("name")
        if self.better is None and measure.name != own and direction(measure.name) is None:
            tell(f"the direction of {measure.name} is unknown, and lower is taken as better; --better says it")
        return measure


@flag_group
class Judged(MeasureFlags):
    """The measure that is compared, and which cells.

    Parameters
    ----------
    best_over
        An axis such as the learning rate, or several, besides those with tune=True: every setting of the others is
        represented on each seed by the cell that is best on the other seeds.
    """

    best_over: Annotated[Sequence[str], Parameter(negative="")] = ()

    def check(self) -> None:
        """Raise SpecError for options that do not go together."""
        MeasureFlags.check(self)
        if self.best_over and self.measure is not None:
            raise SpecError(
                "--measure has no effect with --best-over, which chooses by the grid's measure; leave one out"
            )


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
        a query: 'operator=SSA lr=0.001', or 'operator="two words" lr=0.001'. Several cells get a line each.
    """
    judged_by.check()
    if why is not None:
        if query:
            raise SpecError(
                f"{' '.join(query)!r} and --why do not go together: --why names the cell; leave the query out"
            )
        _write_why(of, why, judged_by)
        return
    _write_tables(query, of, rows, judged_by)


def _write_tables(query: Sequence[str], of: GridsFlags, rows: Listing, judged_by: Judged) -> None:
    import polars as pl

    from ablate.store.analysis.judge import judge
    from ablate.store.analysis.noise_caution import noise_caution
    from ablate.store.analysis.verdicts import baseline_rows, compared_runs, tune_over

    frames: list[pl.DataFrame] = []
    warnings: list[str] = []
    best_over = judged_by.best_over
    for path in of.campaign or (None,):
        flags = GridFlags(path, of.grid, of.as_json, of.as_csv)
        with open_grid(flags) as (store, name, notes):
            store = tune_over(store, name, best_over) if best_over else store  # the same data
            judged = judged_by.find(store, name)
            verdicts = judge(store, name, measure=judged._asdict()).rows
            bases = baseline_rows(compared_runs(store, name, judged), judged)
            shown = sort_cells(keep_cells(store, name, verdicts, query), rows.sort, judged.better)
            several = str(path) if len(of.campaign) > 1 else None
            named = _name_rows(shown, judged, rows.columns, None if flags.as_text else several)
            if flags.as_text:
                if several:
                    write(f"campaign {several}")
                header = with_measure(store.grid(name), judged)
                bases = write_title(store, header, verdicts, shown, bases)
                write_verdicts(store, header, shown, bases, None if rows.columns is None else named)
                if shown.height:
                    _write_footer(store, name, judged, shown)
                    if not best_over:
                        write(f"ablate table{judged_by.words} --why CELL shows what a verdict is based on")
                continue
            warnings += notes
            if flags.as_json:
                warnings += noise_caution(store, name, measure=judged._asdict()).sentences
            frames.append(_add_two_parts(store, name, judged, named) if flags.as_json else named)
    if frames:
        together = pl.concat(frames, how="diagonal_relaxed")
        write_frame("table", together, as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)


def _write_footer(store: "Store", grid: str, measure: "GridMeasure", shown: "pl.DataFrame") -> None:
    import polars as pl

    from ablate.runners.cli.two_part_text import write_two_parts
    from ablate.store.analysis.headline import LEGEND, count_headlines
    from ablate.store.analysis.noise_caution import noise_caution
    from ablate.store.analysis.two_part import two_part

    write_prose(LEGEND)
    if headlines := count_headlines(shown):
        write_prose(headlines)
    for sentence in noise_caution(store, grid, measure=measure._asdict()).sentences:
        write_prose(sentence)
    if (parts := two_part(store, grid, measure=measure._asdict())) is not None:
        kept = parts.rows.filter(pl.col("cell").is_in(shown["cell"].implode()))
        write_two_parts(parts._replace(rows=kept), measure)


def _add_two_parts(store: "Store", grid: str, measure: "GridMeasure", rows: "pl.DataFrame") -> "pl.DataFrame":
    """Add to rows of verdicts what `two_part` says of each cell, where runs learn or do not."""
    import polars as pl

    from ablate.store.analysis.two_part import two_part

    if "cell" not in rows.columns or (parts := two_part(store, grid, measure=measure._asdict())) is None:
        return rows
    told = {row.pop("cell"): {"learned_by": parts.learned, **row} for row in parts.rows.rows(named=True)}
    return rows.with_columns(two_part=pl.Series([told[cell] for cell in rows["cell"]]))


def _name_rows(
    rows: "pl.DataFrame", measure: "GridMeasure", columns: str | None, campaign: str | None
) -> "pl.DataFrame":
    """Add the measure, and the campaign if there are several, to rows of verdicts."""
    import polars as pl

    from ablate.store.analysis.measurements import text_of

    shown = select_columns(rows.with_columns(measure=pl.lit(text_of(measure.name, measure.point))), columns)
    return shown if campaign is None else shown.select(pl.lit(campaign).alias("campaign"), pl.all())


def with_measure(header: "Mapping[str, Any]", measure: "GridMeasure") -> dict[str, Any]:
    """Return the header of a grid with a measure."""
    from ablate.store.analysis.row_labels import unit_of

    return {**header, "measure": {**measure._asdict(), "unit": unit_of(header, measure.name)}}


def _find_cells(store: "Store", grid: str, words: str) -> list[str]:
    """Return the keys of the cells that `words` mean. Raise NotFoundError if they mean none."""
    from ablate.store.analysis.query import split_quoted

    names = label_cells(store, grid)
    exact = [cell for cell, label in names.items() if words in (cell, label)]
    begun = [cell for cell, label in names.items() if cell.startswith(words) or label.startswith(words)]
    parts = split_quoted([words])
    return exact or begun or find_cells(store, grid, words.split() if parts == [words] else parts)


def _write_why(of: GridsFlags, words: str, judged_by: Judged) -> None:
    from ablate.store.analysis.control_tests import control_line, control_rows
    from ablate.store.analysis.explain_verdict import why, why_text
    from ablate.store.analysis.judge import judge
    from ablate.store.analysis.verdicts import compared_runs
    from ablate.store.files.plans import added_cells, role_of

    if judged_by.best_over or of.as_csv or len(of.campaign) > 1:
        raise SpecError(
            "--why and --best-over, --csv or a second campaign do not go together: it is about cells of one campaign; "
            "leave those out"
        )
    with open_grid(GridFlags(next(iter(of.campaign), None), of.grid, of.as_json)) as (store, grid, warnings):
        judged = judged_by.find(store, grid)
        measure, header, runs = judged._asdict(), store.grid(grid), compared_runs(store, grid, judged)
        settings = dict(runs.values.select("label", "cell").iter_rows())
        meant = [settings[words]] if words in settings else _find_cells(store, grid, words)
        cells = [*dict.fromkeys(runs.stands_for.get(cell, cell) for cell in meant)]
        cells = [cell for cell in cells if cell not in added_cells(header)] or cells
        several = judge(store, grid, measure=measure).rows.rows(named=True) if len(cells) > 1 else []
        rows = [row for row in several if row["cell"] in cells]
        explanation = None if rows else why(store, grid, cells[0], measure=measure)
        controls = control_rows(store, grid, measure=measure).filter(cell=explanation["cell"]) if explanation else None
        compared, names = {row["cell"] for row in rows}, label_cells(store, grid) | {v: k for k, v in settings.items()}
    if of.as_json:
        write_json("why" if explanation else "table", explanation or rows, warnings)
    elif explanation is None:
        for cell in cells:
            if cell not in compared:
                write_prose(f"{names[cell]}: {role_of(header, cell)}")
        for row in rows:
            write_prose(f"{row['label']}: {row['verdict']}; {row['reason']}")
    else:
        write(f"{explanation['label']}, grid {grid}")
        for line in why_text(explanation):
            write_prose(f"  {line}")
        for control in () if controls is None else controls.rows(named=True):
            write_prose(f"  {control_line(control, judged)}")
