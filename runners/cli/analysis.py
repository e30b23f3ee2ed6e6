"""Commands about factors and cost: main effects, learning curves at equal cost, dominated cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

from cyclopts import Parameter

from runners.cli.options import BY_EFFECT, ONE_GRID, Cells, Flag, GridFlags, Listing
from runners.cli.resolve import open_grid
from runners.cli.verdict_text import (
    format_number,
    format_p,
    format_percent,
    keep_cells,
    name_cells,
    select_columns,
    sort_cells,
    write_remarks,
)
from runners.output import (
    average_of,
    describe_measure,
    format_count,
    round_value,
    say,
    write,
    write_frame,
    write_json,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

    from store.analysis.pareto import Way
    from store.analysis.verdicts import GridMeasure
    from store.statistics import Factorial
    from store.store import Store


def effects(*, of: GridFlags = ONE_GRID, interactions: Flag = False) -> int:
    """Show the effect of each axis, with seeds as blocks: F tests, effect sizes, means. docs/factorial.md.

    JSON has tests and means, CSV the tests.

    Parameters
    ----------
    interactions
        Test also whether what one axis does depends on another.
    """
    from store.analysis.effects import analysis

    with open_grid(of) as (store, name, warnings):
        header = store.grid(name)
        found = analysis(store, name, interactions=interactions)
    if of.as_json:
        data = {"terms": found.terms.rows(named=True), "means": found.means.rows(named=True)}
        write_json("effects", {**data, "runs": found.runs, "noise": found.noise}, [*warnings, *found.notes])
    elif of.as_csv:
        write_frame("effects", found.terms, as_json=False, as_csv=True)
    else:
        write(
            f"{describe_measure(header)} on the {header['measure']['scale']} scale, {format_count(found.runs, 'run')}"
        )
        _write_tests(found, header["measure"])
        _write_means(found.means, header["measure"])
        for note in found.notes:
            say(f"ablate: {note}")
    return 0


def _write_tests(found: "Factorial", measure: dict[str, Any]) -> None:
    if found.terms.is_empty():
        write("no axis of this grid varies")
        return
    headings = ["axis", "df", "F", "p (Holm)", "partial omega²", _level(1 - 2 * measure["alpha"]), "to", "note"]
    columns = ["term", "df", "f", "p_holm", "omega_squared", "omega_low", "omega_high", "note"]
    write_table(headings, [tuple(map(round_value, row)) for row in found.terms.select(columns).rows()])
    if found.noise is not None:
        freedom = format_count(found.terms["df_error"][0], "degree of freedom", "degrees of freedom")
        write(f"noise of a run: standard deviation {found.noise:.3g} on this scale, {freedom}")


def _write_means(means: "pl.DataFrame", measure: dict[str, Any]) -> None:
    if means.is_empty():
        return
    write("")
    headings = ["axis", "level", "runs", average_of(measure), _level(1 - measure["alpha"]), "to", "note"]
    write_table(headings, [tuple(map(round_value, row)) for row in means.rows()])


def _level(share: float) -> str:
    return f"{100 * share:g} % from"


@Parameter(name="*")
@final
@dataclass(frozen=True)
class CostAxis:
    """At which cost curves are compared.

    Parameters
    ----------
    by
        What is made equal.
    budget
        Compare after so much, between the first and the last recorded cost; default what every run reached that did
        not break off.
    level
        Also compare the cost to reach this value.
    """

    by: Literal["steps", "tokens", "seconds"] = "tokens"
    budget: float | None = None
    level: float | None = None


def curves(
    metric: str = "loss",
    /,
    *query: Cells,
    at: CostAxis = CostAxis(),
    of: GridFlags = ONE_GRID,
    rows: Listing = BY_EFFECT,
) -> int:
    """Learning curves against the baseline's at equal cost, paired by seed. docs/factorial.md says what is compared.

    Parameters
    ----------
    metric
        A training metric.
    """
    import polars as pl

    from store.analysis.learning_curves import compare_learning, rule_of

    if "=" in metric:
        metric, query = "loss", (metric, *query)
    with open_grid(of) as (store, name, warnings):
        found = compare_learning(store, name, metric, at.by, budget=at.budget, level=at.level)
        rule = rule_of(store, name, metric)
        parts = keep_cells(store, name, found, query).partition_by("question", maintain_order=True)
        order = sort_cells(parts[0], rows.sort, rule.better)["cell"].to_list()
        rank = pl.col("cell").replace_strict(order, range(len(order)), return_dtype=pl.Int64)
        shown = select_columns(pl.concat(part.sort(rank) for part in parts), rows.columns)
        if rows.columns is None and of.as_text:
            title = f"{name}: {metric} at equal {at.by}, {rule.better} is better"
            write(f"{title}; the last value recorded at or before it")
            write(
                f"differences on the {rule.scale} scale, of costs by ratios, paired by seed; Holm over "
                f"{format_count(found['cell'].n_unique(), 'cell')} of a question, alpha {rule.alpha:g}"
            )
            _write_curves(store, name, parts, order, at.by)
            return 0
    write_frame("curves", shown, as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)
    return 0


def _write_curves(store: "Store", grid: str, parts: "Sequence[pl.DataFrame]", order: Sequence[str], costs: str) -> None:
    """Write a row for each cell in `order`, with the questions side by side, and each note once."""
    answers = [{row["cell"]: row for row in part.iter_rows(named=True)} for part in parts]
    firsts = [rows[order[0]] for rows in answers]
    questions = [
        f"{row['question']} {row['at']:g}{'' if row['question'] == 'cost to' else f' {costs}'}" for row in firsts
    ]
    labels, names = name_cells(store, grid, [answers[0][cell] for cell in order])
    headings = [*labels, "n", *(name for question in questions for name in (question, "%", "p (Holm)"))]
    baseline = [value for row in firsts for value in (format_number(row["baseline_value"]), None, None)]
    several = store.grid(grid).get("baselines")
    cells = [] if several else [["baseline", *[""] * (len(labels) - 1), None, *baseline]]
    for name, cell in zip(names, order, strict=True):
        values = [
            form(rows[cell][column])
            for rows in answers
            for column, form in (("value", format_number), ("percent", format_percent), ("p_holm", format_p))
        ]
        cells.append([*name, answers[0][cell]["pairs"], *values])
    write_table(headings, cells)
    write_remarks(note for part in parts for note in part["note"] if note)
    write("--json and --columns have intervals too: --columns label,question,difference,low,high")


def pareto(
    *query: Cells,
    against: Annotated[tuple[str, ...], Parameter(negative="")] = ("train_s",),
    of: GridFlags = ONE_GRID,
    columns: str | None = None,
) -> int:
    """Show which cells are worse than another in the measure and in cost, which are not, and which are inconclusive.

    Parameters
    ----------
    against
        train_s, memory_bytes, parameters, flops, joules, tokens_per_s, flops_per_s, a measurement or a probe; repeat it
        for more. The title says which way each is better; what nothing is known of is taken as better when lower.
    columns
        Columns of the JSON answer to show instead, separated by commas: label,standing,dominated_by.
    """
    from store.analysis.pareto import pareto as pareto_of, rule
    from store.analysis.verdicts import measure_of

    with open_grid(of) as (store, name, warnings):
        found = pareto_of(store, name, against)
        header, measure = store.grid(name), measure_of(store, name, None)
        ways = {each: rule(store, name, each) for each in against if each != measure.name}
        shown = keep_cells(store, name, found, query)
        if columns is None and of.as_text:
            _write_pareto_title(header, measure, ways)
            _write_standings(store, name, shown, [measure.name, *ways], measure.better)
            return 0
    write_frame("pareto", select_columns(shown, columns), as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)
    return 0


def _write_standings(store: "Store", grid: str, found: "pl.DataFrame", numbers: Sequence[str], better: str) -> None:
    """Write the front first, then what is inconclusive, then what is dominated; rivals are named by the first."""
    ordered = found.sort(numbers[0], descending=better == "higher", nulls_last=True)
    rows = sorted(ordered.rows(named=True), key=lambda row: _STANDINGS.index(row["standing"]))
    labels, names = name_cells(store, grid, rows)
    headings = [*labels, "n", *numbers, "standing"]
    cells = [
        (*name, row["n"], *(format_number(row[each]) for each in numbers), _standing(row))
        for name, row in zip(names, rows, strict=True)
    ]
    write_table(headings, cells)
    write_remarks(row["note"] for row in rows if row["note"])


_STANDINGS = ("on the front", "not told apart", "dominated")


def _standing(row: Mapping[str, Any]) -> str:
    """`dominated by SSA · 0.001 and 2 more`, `not told apart from 3 cells`."""
    standing, rivals = row["standing"], row["dominated_by"] or row["inconclusive"]
    if not rivals:
        return str(standing)
    if not row["dominated_by"] and len(rivals) > 1:
        return f"{standing}{'' if standing == 'not told apart' else ', not told apart'} from {len(rivals)} cells"
    joined = {"dominated": "dominated by", "not told apart": "not told apart from"}.get(
        standing, f"{standing}, not told apart from"
    )
    return f"{joined} {rivals[0]}" + (f" and {len(rivals) - 1} more" if len(rivals) > 1 else "")


def _write_pareto_title(header: Mapping[str, Any], measure: "GridMeasure", ways: Mapping[str, "Way"]) -> None:
    others = [
        f"{name} ({way.better} is better{'' if way.known else ', as nothing says which way'})"
        for name, way in ways.items()
    ]
    write(f"{describe_measure(header)} ({measure.better} is better) against {', '.join(others)}")
    cells = header["cells"]
    write(
        f"one-sided t tests paired by seed, alpha {measure.alpha:g}: Holm over {cells * (cells - 1)} ordered pairs "
        f"(dominated), over {format_count(cells, 'cell')} (on the front)"
    )
