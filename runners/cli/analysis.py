"""Commands about cost: learning curves at equal cost, dominated cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ablate.grid.names import some
from ablate.runners.cli.cell_selection import keep_cells, label_cells
from ablate.runners.cli.cell_tables import (
    format_number,
    format_p,
    format_percent,
    name_cells,
    select_columns,
    sort_cells,
    write_remarks,
)
from ablate.runners.cli.options import Cells, GridFlags, Listing, flag_group
from ablate.runners.cli.resolve import MOST_NAMED, open_grid
from ablate.runners.cli.results import with_measure
from ablate.runners.output import (
    LONG_LABEL,
    describe_measure,
    fits,
    format_count,
    write_frame,
    write_prose,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.analysis.pareto import Way
    from ablate.store.analysis.verdicts import GridMeasure
    from ablate.store.store import Store

_MOST_UNEVEN = 2.0  # runs of one cell that differ by a larger factor in a cost of the machine are named


@flag_group
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
    of: GridFlags = GridFlags(),
    rows: Listing = Listing(),
) -> None:
    """Compare learning curves with the baseline's at equal cost, paired by seed.

    docs/factorial.md says what is compared.

    Parameters
    ----------
    metric
        A training metric.
    """
    import polars as pl

    from ablate.store.analysis.learning_curves import compare_learning, rule_of

    if "=" in metric:
        metric, query = "loss", (metric, *query)
    with open_grid(of) as (store, name, warnings):
        compared = compare_learning(store, name, metric, at.by, budget=at.budget, level=at.level)
        rule = rule_of(store, name, metric)
        parts = keep_cells(store, name, compared, query).partition_by("question", maintain_order=True)
        order = sort_cells(parts[0], rows.sort, rule.better)["cell"].to_list()
        rank = pl.col("cell").replace_strict(order, range(len(order)), return_dtype=pl.Int64)
        shown = select_columns(pl.concat(part.sort(rank) for part in parts), rows.columns)
        if rows.columns is None and of.as_text:
            title = f"{name}: {metric} at equal {at.by}, {rule.better} is better"
            write_prose(f"{title}; the last value recorded at or before it")
            write_prose(
                f"differences on the {rule.scale} scale, of costs by ratios, paired by seed; p by Holm over "
                f"{format_count(compared['cell'].n_unique(), 'cell')} of a question, alpha {rule.alpha:g}"
            )
            _write_curves(store, name, metric, parts, order, at.by)
            return
    write_frame("curves", shown, as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)


def _write_curves(
    store: "Store", grid: str, metric: str, parts: "Sequence[pl.DataFrame]", order: Sequence[str], costs: str
) -> None:
    """Write the baselines and a row for each cell in `order`, with the questions side by side, and each note once."""
    from ablate.store.analysis.tuned_verdicts import nuisance_axes
    from ablate.store.analysis.verdicts import baselines_of, compared_runs, matched_axes, measure_of

    answers = [{row["cell"]: row for row in part.iter_rows(named=True)} for part in parts]
    firsts = [rows[order[0]] for rows in answers]
    asked = [f"{row['question']} {format_number(row['at'])}" for row in firsts]
    headed = {"value": f"{asked[0]} {costs}", "mean": f"{asked[1]} {costs} of each curve", "cost": asked[-1]}
    questions = [*headed][: len(firsts)]
    write_prose("; ".join(f"{name}: {headed[name]}" for name in questions) + "; averaged over runs, costs by ratios")
    known, against = label_cells(store, grid), baselines_of(store, grid, None)
    if nuisance_axes(header := store.grid(grid)):
        runs, against, *_ = compared_runs(store, grid, measure_of(store, grid, None))
        known |= dict(runs.select("cell", "label").iter_rows())
        _write_tuned(header, metric)
    base_of = {cell: against if isinstance(against, str) else against[cell] for cell in order}
    bases = [cell for cell in known if cell in base_of.values()]
    same = ", ".join(matched_axes(store, grid))
    write_prose(f"against the baseline of the same {same}" if len(bases) > 1 else f"against {known[bases[0]]}")
    labels, names = name_cells(store, header, [{"cell": cell, "label": known[cell]} for cell in (*bases, *order)])
    headings = [
        *labels,
        "n",
        *(name for question in questions for name in (question, f"{question} change", f"{question} p")),
    ]
    cells = []
    for name, base in zip(names, bases, strict=False):
        most = max((cell for cell in order if base_of[cell] == base), key=lambda cell: answers[0][cell]["pairs"])
        values = [each for rows in answers for each in (format_number(rows[most]["baseline_value"]), None, None)]
        cells.append([*name, answers[0][most]["pairs"], *values])
    for name, cell in zip(names[len(bases) :], order, strict=True):
        values = [
            form(rows[cell][column])
            for rows in answers
            for column, form in (
                ("value", format_number),
                ("percent", _change),
                ("p_holm", format_p),
            )
        ]
        cells.append([*name, answers[0][cell]["pairs"], *values])
    first = len(labels) + 1
    later = [at + 3 * place for at in (first, first + 2, first + 1) for place in range(len(firsts) - 1, 0, -1)]
    write_table(headings, cells, spare=(*later, len(labels), first), labels=len(labels))
    notes = [(row["cell"], row["note"]) for part in parts for row in part.iter_rows(named=True) if row["note"]]
    write_remarks(note for _, note in dict.fromkeys(notes))  # a cell has a row per question
    write_prose("intervals: --columns label,question,difference,low,high; --json has all")


def pareto(
    *query: Cells,
    against: Annotated[tuple[str, ...], Parameter(name=("--cost", "--against"), negative="")] = ("train_s",),
    of: GridFlags = GridFlags(),
    sort: Literal["effect", "plan"] = "effect",
    columns: str | None = None,
) -> None:
    """Show which cells are worse than another both in the measure and in cost, as paired tests show it.

    Parameters
    ----------
    against
        train_s, memory_bytes, parameters, flops, joules, tokens_per_s, flops_per_s, a measurement or a probe; repeat it
        for more. The title says which way each is better; what nothing is known of is taken as better when lower.
    sort
        The front first, then what is inconclusive, then what is dominated, each by the measure; or the order of the
        plan.
    columns
        Columns of the JSON answer to show instead, separated by commas: label,standing,dominated_by.
    """
    import polars as pl

    from ablate.store.analysis.pareto import OF_MACHINE, known_costs, read_objectives, rule, standings
    from ablate.store.analysis.verdicts import measure_of
    from ablate.store.database.queries import in_plan_order

    with open_grid(of) as (store, name, warnings):
        objectives = read_objectives(store, name, against)
        front = in_plan_order(store.sql, objectives.header, standings(objectives))
        measure = measure_of(store, name, None)
        header = with_measure(store.grid(name), measure)
        ways = {each: rule(store, name, each) for each in against if each != measure.name}
        instead = "; --cost flops does not depend on the machine" if "flops" in known_costs(store, name) else ""
        uneven = [*_uneven_costs(objectives.values, [each for each in ways if each in OF_MACHINE], instead)]
        shown = keep_cells(store, name, front, query)
        if sort == "effect":
            ranked = pl.col("standing").replace_strict(_STANDINGS, range(len(_STANDINGS)), return_dtype=pl.Int64)
            best = [False, measure.better == "higher"]
            shown = shown.sort(ranked, measure.name, descending=best, nulls_last=True, maintain_order=True)
        if columns is None and of.as_text:
            cells = dict(objectives.values.select("cell", "label").iter_rows())
            _write_pareto_title(header, measure, ways, len(cells))
            _write_unlisted(header, [label for cell, label in cells.items() if cell not in front["cell"]])
            _write_standings(store, header, shown, [measure.name, *ways])
            for note in uneven:
                write_prose(note)
            return
        warnings += uneven
    write_frame("pareto", select_columns(shown, columns), as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)


def _change(percent: float | None) -> str | None:
    """`-12.3 %`; what is above 1000 % as `13 times`."""
    if percent is None or percent <= 1000:
        return percent if percent is None else f"{format_percent(percent)} %"
    return f"{1 + percent / 100:.3g} times"


def _uneven_costs(values: "pl.DataFrame", costs: Iterable[str], instead: str) -> Iterator[str]:
    """Name the cell whose runs differ the most in each of `costs`, if by a large factor."""
    for cost in costs:
        runs = {str(label): sorted(own[cost].drop_nulls()) for (label,), own in values.group_by("label")}
        known = {label: own for label, own in runs.items() if own and own[0] > 0}
        label = max(sorted(known), key=lambda each: known[each][-1] / known[each][0], default="")
        if known and known[label][-1] > _MOST_UNEVEN * known[label][0]:
            low, high = (format_number(known[label][end]) for end in (0, -1))
            yield f"runs of {label} differ in {cost} from {low} to {high}, as on a shared machine{instead}"


def _write_unlisted(header: Mapping[str, Any], absent: Sequence[str]) -> None:
    """Name the compared cells `absent` from the table, which count in the families, and count those not compared."""
    from ablate.store.files.plans import added_cells

    if absent:
        named = some(absent, MOST_NAMED)
        write_prose(f"{format_count(len(absent), 'cell')} of these not listed, as no run has all values: {named}")
    if added := added_cells(header):
        write_prose(f"{format_count(len(added), 'cell')} that are controls or trained longer are not compared")


def _write_standings(store: "Store", header: Mapping[str, Any], frame: "pl.DataFrame", numbers: Sequence[str]) -> None:
    """Write the cells of `frame`; rivals are named by the first."""
    rows = frame.rows(named=True)
    labels, names = name_cells(store, header, rows)
    headings = [*labels, "n", *numbers, "standing"]
    headings.insert(len(labels) + 2, f"{100 * (1 - header['measure']['alpha']):g} % interval")
    for most in (LONG_LABEL, 0, None):
        cells = [
            (
                *(*name, row["n"], format_number(row[numbers[0]]), _interval(row)),
                *(format_number(row[each]) for each in numbers[1:]),
                _standing(row, most),
            )
            for name, row in zip(names, rows, strict=True)
        ]
        if fits(headings, cells, len(labels)):
            break
    write_table(headings, cells, spare=(len(labels),), labels=len(labels), overflow="ellipsis")
    write_remarks(row["note"] for row in rows if row["note"])


def _interval(row: Mapping[str, Any]) -> str | None:
    return None if row["low"] is None else f"{row['low']:.3g} to {row['high']:.3g}"


_STANDINGS = ("on the front", "inconclusive", "dominated")


def _standing(row: Mapping[str, Any], most: int | None) -> str:
    """`dominated by SSA · 0.001 and 2 more`; with a label of over `most` characters `by 3`; alone for None."""
    standing, rivals = row["standing"], row["dominated_by"] or row["inconclusive"]
    if not rivals or most is None:
        return str(standing)
    joined = {"dominated": "dominated by", "inconclusive": "inconclusive against"}
    is_named = row["dominated_by"] and len(rivals[0]) <= most
    words = some(rivals, 1) if is_named else f"{len(rivals)}"
    return f"{joined[standing]} {words}"


def _write_pareto_title(
    header: Mapping[str, Any], measure: "GridMeasure", ways: Mapping[str, "Way"], cells: int
) -> None:
    others = [
        f"{name} ({'geometric mean' if way.scale == 'log' else 'mean'}, {way.better} is better"
        f"{'' if way.known else ', as nothing says which way'})"
        for name, way in ways.items()
    ]
    write_prose(f"{describe_measure(header)} ({measure.better} is better) against {', '.join(others)}")
    write_prose(
        f"dominated: some cell is shown to be better in {'both' if len(ways) == 1 else 'all'}; on the front: shown to "
        "be better than every other cell in something; inconclusive: neither is shown, whatever the means say"
    )
    write_prose(
        f"shown by one-sided t tests paired by seed, alpha {measure.alpha:g}: Holm over {cells * (cells - 1)} ordered "
        f"pairs (dominated), over {format_count(cells, 'cell')} (on the front); intervals are of each cell alone"
    )
    _write_tuned(header)


def _write_tuned(header: Mapping[str, Any], metric: str | None = None) -> None:
    from ablate.store.analysis.tuned_verdicts import nuisance_axes

    if tuned := nuisance_axes(header):
        write_prose(f"each setting at its best {', '.join(tuned)}, chosen for each seed by the other seeds")
        if metric not in (None, measure := header["measure"]["name"]):
            write_prose(f"a level is the best in {measure}: a cell and its baseline may differ in {metric} by it alone")
