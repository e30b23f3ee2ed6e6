"""The command that shows what each axis of a grid does."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from ablate.runners.cli.cell_tables import (
    ONE_COMPARISON,
    difference_headings,
    equal_words,
    format_difference,
    format_number,
    format_p,
    select_columns,
)
from ablate.runners.cli.options import Flag, GridFlags, Listing
from ablate.runners.cli.resolve import open_grid
from ablate.runners.cli.results import MeasureFlags, with_measure
from ablate.runners.output import (
    average_of,
    describe_measure,
    format_count,
    round_value,
    tell,
    write,
    write_frame,
    write_json,
    write_prose,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.statistics import Factorial, SeedContrasts
    from ablate.store.store import Store

MOST_PAIRS: Final = 24
"""Number of means of pairs of levels that the terminal shows; JSON has all."""

Runs = Annotated[str, Parameter(help="Only these runs: operator=SSA, lr<0.01, seed<3, or a label.")]


def effects(
    *query: Runs,
    of: GridFlags = GridFlags(),
    rows: Listing = Listing(),
    judged_by: MeasureFlags = MeasureFlags(),
    interactions: Flag = False,
) -> None:
    """Show what each axis does: all variants and levels against the baseline's, F tests and means.

    Differences have a value per seed, so they hold for new seeds. If all axes have two levels, pairs of them are shown.
    JSON has everything, CSV the differences. docs/factorial.md explains them.

    Parameters
    ----------
    interactions
        Test also by F whether what one axis does depends on another, and show the means of at most 24 pairs of levels.
    """
    from ablate.store.analysis.effects import analysis, effects as effects_of, sort_by_axis

    judged_by.check()
    with open_grid(of) as (store, name, warnings):
        judged, only = judged_by.find(store, name), _find_runs(store, name, query)
        header, by = with_measure(store.grid(name), judged), judged._asdict()
        contrasts = effects_of(store, name, measure=by, only=only)
        tests = analysis(store, name, interactions=interactions, measure=by, only=only)
        checks = [*_doubt_claims(store, name, contrasts.effects, measure=by, only=only)]
    contrasts = contrasts._replace(effects=sort_by_axis(contrasts.effects, rows.sort, judged.better))
    shown = select_columns(contrasts.effects, rows.columns)
    notes = [*dict.fromkeys([*contrasts.notes, *checks, *tests.notes])]
    if interactions and contrasts.effects.filter(order=1)["factor"].n_unique() == 1:
        notes.append("one axis: no interactions")
    if of.as_json:
        data = {"effects": shown.rows(named=True)}
        data |= {key: frame.rows(named=True) for key, frame in {"terms": tests.terms, "means": tests.means}.items()}
        basis = {"seeds": contrasts.seeds, "runs": tests.runs, "noise": tests.noise}
        write_json("effects", {**data, **basis}, [*warnings, *notes])
    elif of.as_csv or rows.columns is not None:
        tell(*notes)
        write_frame("effects", shown, as_json=False, as_csv=of.as_csv)
    else:
        measure = header["measure"]
        kept = f", of {tests.runs} runs that fit {' '.join(query)}" if query else ""
        write_prose(f"{describe_measure(header)} on the {measure['scale']} scale, {measure['better']} is better{kept}")
        _write_effects(contrasts, measure)
        _write_tests(tests, measure, interactions=interactions)
        _write_means(tests.means, measure)
        for note in notes:
            write_prose(note)


def _find_runs(store: "Store", grid: str, query: tuple[str, ...]) -> "pl.DataFrame | None":
    """Return cell and seed of the runs of a grid that a query means; None without one."""
    from ablate.store.analysis.trial_query import select

    if not query:
        return None
    keys = select(store, [*query, f"grid={grid}"])
    return store.sql(
        "SELECT cell, seed FROM grid_trial WHERE grid = $grid AND list_contains($keys, trial)",
        {"grid": grid, "keys": keys},
    )


def _doubt_claims(store: "Store", grid: str, effects: "pl.DataFrame", **of: Any) -> Iterator[str]:
    """Name the checks that speak against each level with a claim."""
    from ablate.store.analysis.effects import tell_doubts_of_levels

    levels, doubts = effects.select("factor", "level").rows(), tell_doubts_of_levels(store, grid, effects, **of)
    yield from (f"{' '.join(level)}, {told}" for level, told in zip(levels, doubts, strict=True) if told)


def _write_effects(contrasts: "SeedContrasts", measure: Mapping[str, Any]) -> None:
    """Write a row per level that is no reference, by axis; axes before pairs of axes, and all variants last."""
    rows = [row for row in contrasts.effects.rows(named=True) if row["effect"] is not None]
    rows.sort(key=lambda row: row["order"] == 0)
    if not rows:
        return
    bases = {row["factor"]: row["against"] for row in rows if row["order"] == 1}
    averaged = ", averaged over the other axes" if len(bases) > 1 else ""
    against = f"against {', '.join(map('='.join, bases.items()))}{averaged}" if bases else "no axis is compared"
    write_prose(f"{against}{equal_words(measure)}")
    families = {row["order"]: row["family"] for row in rows}
    counts = [format_count(families[order], *_KINDS[order]) for order in families if order]
    seeds = format_count(len(contrasts.seeds), "seed")
    intervals = f"{seeds} with one value each, so intervals hold for new seeds; {ONE_COMPARISON}"
    write_prose(intervals if len(contrasts.seeds) > 1 else f"{seeds}, so there are no intervals")
    if counts:
        alone = "; all variants is one question, not corrected" if 0 in families else ""
        write_prose(f"p by Holm over {', over '.join(counts)}, alpha {measure['alpha']:g}{alone}")
    cells = [(row["factor"], row["level"], *format_difference(row, row["effect"], measure["scale"])) for row in rows]
    write_table(["axis", "level", *difference_headings(measure)], cells, spare=(4,), labels=2)
    for row in rows:
        if row["order"] == 0:
            write_prose(f"{row['factor']}: the mean of {row['level']} against {row['against']}")
    if 2 in families:
        write("×: what both do together beyond the sum of what each does alone")
    write("")


_KINDS = {1: ("level",), 2: ("pair of axes", "pairs of axes")}


def _write_tests(tests: "Factorial", measure: dict[str, Any], *, interactions: bool) -> None:
    if tests.terms.is_empty():
        if not any("F tests" in note for note in tests.notes):
            write("no axis has an F test")
        return
    pairs = ", with pairs of axes as terms" if interactions else ", without pairs of axes (--interactions adds them)"
    write_prose(f"F tests of whole axes, about these seeds{pairs if tests.terms.height > 1 else ''}")
    headings = ["axis", "df", "F", "p (Holm)", "partial omega²", _level(1 - 2 * measure["alpha"]), "to"]
    columns = ["term", "df", "f", "p_holm", "omega_squared", "omega_low", "omega_high"]
    rows = tests.terms.select(columns).rows()
    cells = [(*map(round_value, row[:3]), format_p(row[3]), *map(round_value, row[4:])) for row in rows]
    write_table(headings, cells, labels=1)
    for term, note in tests.terms.filter(tests.terms["note"] != "").select("term", "note").rows():
        write_prose(f"{term}: {note}")
    if tests.noise is not None:
        freedom = format_count(tests.terms["df_error"][0], "degree of freedom", "degrees of freedom")
        write(f"noise of a run: standard deviation {tests.noise:.3g} on this scale, {freedom}")


def _write_means(means: "pl.DataFrame", measure: dict[str, Any]) -> None:
    import polars as pl

    from ablate.store.statistics.design import CROSS

    if means["term"].n_unique() < 2 and not (means["note"] != "").any():
        return  # `table` has the means of one axis
    write("")
    write_prose("means of levels, with intervals about these seeds alone: too narrow for new seeds")
    of_pair = pl.col("term").str.contains(CROSS, literal=True)
    pairs = means.filter(of_pair).height
    shown = means if pairs <= MOST_PAIRS else means.filter(~of_pair)
    headings = ["axis", "level", "runs", average_of(measure), _level(1 - measure["alpha"]), "to", "note"]
    rows: list[tuple[Any, ...]] = []
    for *names, mean, low, high, own, note in shown.rows():
        own_runs = f"; own runs {format_number(own)}" if note and own is not None else ""
        rows.append((*names, *map(format_number, (mean, low, high)), f"{note}{own_runs}"))
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    write_table(headings, rows, labels=2)
    if shown.height < means.height:
        write(f"--json has the means of {pairs} pairs of levels, too")


def _level(share: float) -> str:
    return f"{100 * share:g} % from"
