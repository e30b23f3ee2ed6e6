"""Commands about factors and cost: main effects, learning curves at equal cost, dominated cells."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from grid.errors import SpecError
from grid.names import some
from runners.cli.options import Cells, Flag, GridFlags, Listing, flag_group
from runners.cli.resolve import MOST_NAMED, open_grid
from runners.cli.verdict_text import (
    ONE_COMPARISON,
    difference_headings,
    equal_words,
    format_difference,
    format_number,
    format_p,
    format_percent,
    keep_cells,
    label_cells,
    name_cells,
    select_columns,
    sort_cells,
    write_remarks,
)
from runners.output import (
    LONG_LABEL,
    average_of,
    describe_measure,
    fits,
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

    from store.analysis.pareto import Way
    from store.analysis.verdicts import GridMeasure
    from store.statistics import Factorial, SeedContrasts
    from store.store import Store


def effects(
    *query: Annotated[str, Parameter(show=False)], of: GridFlags = GridFlags(), interactions: Flag = False
) -> None:
    """Show what each axis does: levels against the baseline's, F tests and means.

    Differences have a value per seed, so they hold for new seeds. If all axes have two levels, pairs of them are shown.
    JSON has everything, CSV the differences. docs/factorial.md explains them.

    Parameters
    ----------
    interactions
        Test also by F whether what one axis does depends on another.
    """
    from store.analysis.effects import analysis, effects as effects_of

    if query:
        raise SpecError(
            f"effects are averages over all cells of the grid; leave {' '.join(query)!r} out, or compare cells "
            "with `ablate table`"
        )
    with open_grid(of) as (store, name, warnings):
        header = store.grid(name)
        contrasts, found = effects_of(store, name), analysis(store, name, interactions=interactions)
    notes = [*contrasts.notes, *found.notes]
    if of.as_json:
        tables = {"effects": contrasts.effects, "terms": found.terms, "means": found.means}
        data = {key: frame.rows(named=True) for key, frame in tables.items()}
        about = {"seeds": contrasts.seeds, "runs": found.runs, "noise": found.noise}
        write_json("effects", {**data, **about}, [*warnings, *notes])
    elif of.as_csv:
        write_frame("effects", contrasts.effects, as_json=False, as_csv=True)
    else:
        measure = header["measure"]
        write_prose(f"{describe_measure(header)} on the {measure['scale']} scale, {measure['better']} is better")
        _write_effects(contrasts, measure)
        _write_tests(found, measure, interactions=interactions)
        _write_means(found.means, measure)
        tell(*notes)


def _write_effects(found: "SeedContrasts", measure: Mapping[str, Any]) -> None:
    """Write a row per level that is no reference, the best first, axes before pairs of axes."""
    if found.effects.is_empty():
        return
    scale, rows = measure["scale"], found.effects.rows(named=True)
    bases = {row["factor"]: row["against"] for row in rows if row["order"] == 1}
    averaged = ", averaged over the other axes" if len(bases) > 1 else ""
    write_prose(f"against {', '.join(map('='.join, bases.items()))}{averaged}{equal_words(measure)}")
    families = dict(found.effects.select("order", "family").rows())
    counts = [format_count(families[order], *_KINDS[order]) for order in families]
    seeds = format_count(len(found.seeds), "seed")
    intervals = f"{seeds} with one value each, so intervals hold for new seeds; {ONE_COMPARISON}"
    write_prose(intervals if len(found.seeds) > 1 else f"{seeds}, so there are no intervals")
    write(f"p by Holm over {', over '.join(counts)}, alpha {measure['alpha']:g}")
    sign = 1 if measure["better"] == "lower" else -1
    rows.sort(key=lambda row: (row["order"], row["effect"] is None, sign * (row["effect"] or 0.0)))
    cells = [(row["factor"], row["level"], *format_difference(row, row["effect"], scale)) for row in rows]
    write_table(["axis", "level", *difference_headings(measure)], cells, spare=(4,), labels=2)
    if len(families) > 1:
        write("×: what both do together beyond the sum of what each does alone")
    write("")


_KINDS = {1: ("level",), 2: ("pair of axes", "pairs of axes")}


def _write_tests(found: "Factorial", measure: dict[str, Any], *, interactions: bool) -> None:
    if found.terms.is_empty():
        write("no axis of this grid varies")
        return
    pairs = ", with pairs of axes as terms" if interactions else ", without pairs of axes (--interactions adds them)"
    write_prose(f"F tests of whole axes, about these seeds{pairs if found.terms.height > 1 else ''}")
    headings = ["axis", "df", "F", "p (Holm)", "partial omega²", _level(1 - 2 * measure["alpha"]), "to"]
    columns = ["term", "df", "f", "p_holm", "omega_squared", "omega_low", "omega_high"]
    rows = found.terms.select(columns).rows()
    cells = [(*map(round_value, row[:3]), format_p(row[3]), *map(round_value, row[4:])) for row in rows]
    write_table(headings, cells, labels=1)
    for term, note in found.terms.filter(found.terms["note"] != "").select("term", "note").rows():
        write_prose(f"{term}: {note}")
    if found.noise is not None:
        freedom = format_count(found.terms["df_error"][0], "degree of freedom", "degrees of freedom")
        write(f"noise of a run: standard deviation {found.noise:.3g} on this scale, {freedom}")


def _write_means(means: "pl.DataFrame", measure: dict[str, Any]) -> None:
    import polars as pl

    from store.statistics.design import CROSS

    if means["term"].n_unique() < 2:
        return  # `table` has the means of one axis
    write("")
    shown = means.filter(~pl.col("term").str.contains(CROSS, literal=True))
    headings = ["axis", "level", "runs", average_of(measure), _level(1 - measure["alpha"]), "to", "note"]
    rows: list[tuple[Any, ...]] = [(*row[:3], *map(format_number, row[3:6]), row[6]) for row in shown.rows()]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    write_table(headings, rows, labels=2)
    if shown.height < means.height:
        write("--json has the means of pairs of levels, too")


def _level(share: float) -> str:
    return f"{100 * share:g} % from"


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
            write_prose(f"{title}; the last value recorded at or before it")
            write_prose(
                f"differences on the {rule.scale} scale, of costs by ratios, paired by seed; Holm over "
                f"{format_count(found['cell'].n_unique(), 'cell')} of a question, alpha {rule.alpha:g}"
            )
            _write_curves(store, name, parts, order, at.by)
            return
    write_frame("curves", shown, as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)


def _write_curves(store: "Store", grid: str, parts: "Sequence[pl.DataFrame]", order: Sequence[str], costs: str) -> None:
    """Write the baselines and a row for each cell in `order`, with the questions side by side, and each note once."""
    from store.analysis.verdicts import baselines_of

    answers = [{row["cell"]: row for row in part.iter_rows(named=True)} for part in parts]
    firsts = [rows[order[0]] for rows in answers]
    questions = [
        f"{row['question']} {row['at']:g}{'' if row['question'] == 'cost to' else f' {costs}'}" for row in firsts
    ]
    known, against = label_cells(store, grid), baselines_of(store, grid, None)
    base_of = {cell: against if isinstance(against, str) else against[cell] for cell in order}
    bases = [cell for cell in known if cell in base_of.values()]
    matched = store.grid(grid).get("matched")
    write_prose(f"against the baseline of the same {', '.join(matched)}" if matched else f"against {known[bases[0]]}")
    labels, names = name_cells(store, grid, [{"cell": cell, "label": known[cell]} for cell in (*bases, *order)])
    headings = [*labels, "n", *(name for question in questions for name in (question, "%", "p (Holm)"))]
    cells = []
    for name, base in zip(names, bases, strict=False):
        most = max((cell for cell in order if base_of[cell] == base), key=lambda cell: answers[0][cell]["pairs"])
        values = [each for rows in answers for each in (format_number(rows[most]["baseline_value"]), None, None)]
        cells.append([*name, answers[0][most]["pairs"], *values])
    for name, cell in zip(names[len(bases) :], order, strict=True):
        values = [
            form(rows[cell][column])
            for rows in answers
            for column, form in (("value", format_number), ("percent", format_percent), ("p_holm", format_p))
        ]
        cells.append([*name, answers[0][cell]["pairs"], *values])
    first = len(labels) + 1
    later = [at + 3 * place for at in (first, first + 2, first + 1) for place in range(len(firsts) - 1, 0, -1)]
    write_table(headings, cells, spare=(*later, len(labels), first), labels=len(labels))
    notes = [(row["cell"], row["note"]) for part in parts for row in part.iter_rows(named=True) if row["note"]]
    write_remarks(note for _, note in dict.fromkeys(notes))  # a cell has a row per question
    write_prose("--json and --columns have intervals too: --columns label,question,difference,low,high")


def pareto(
    *query: Cells,
    against: Annotated[tuple[str, ...], Parameter(negative="")] = ("train_s",),
    of: GridFlags = GridFlags(),
    sort: Literal["effect", "plan"] = "effect",
    columns: str | None = None,
) -> None:
    """Show which cells are worse than another both in the measure and in cost.

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

    from store.analysis.pareto import pareto as pareto_of, rule
    from store.analysis.verdicts import measure_of

    with open_grid(of) as (store, name, warnings):
        found = pareto_of(store, name, against)
        header, measure = store.grid(name), measure_of(store, name, None)
        ways = {each: rule(store, name, each) for each in against if each != measure.name}
        shown = keep_cells(store, name, found, query)
        if sort == "effect":
            ranked = pl.col("standing").replace_strict(_STANDINGS, range(len(_STANDINGS)), return_dtype=pl.Int64)
            best = [False, measure.better == "higher"]
            shown = shown.sort(ranked, measure.name, descending=best, nulls_last=True, maintain_order=True)
        if columns is None and of.as_text:
            _write_pareto_title(header, measure, ways)
            _write_unlisted(store, name, found)
            _write_standings(store, header, shown, [measure.name, *ways])
            return
    write_frame("pareto", select_columns(shown, columns), as_json=of.as_json, as_csv=of.as_csv, warnings=warnings)


def _write_unlisted(store: "Store", grid: str, found: "pl.DataFrame") -> None:
    """Name the cells of the grid that `found` lacks, which count in the families."""
    listed = set(found["cell"])
    absent = [label for cell, label in label_cells(store, grid).items() if cell not in listed]
    if absent:
        named = some(absent, MOST_NAMED)
        write_prose(f"{format_count(len(absent), 'cell')} of these not listed, as no run has all values: {named}")


def _write_standings(store: "Store", header: Mapping[str, Any], found: "pl.DataFrame", numbers: Sequence[str]) -> None:
    """Write the baselines, which are marked, then the other cells of `found`; rivals are named by the first."""
    from store.database.queries import baseline_cells

    bases = baseline_cells(header)
    rows = sorted(found.rows(named=True), key=lambda row: row["cell"] not in bases)
    labels, names = name_cells(store, header["grid"], rows)
    headings = [*labels, "n", *numbers, "standing"]
    for most in (LONG_LABEL, 0, None):
        cells = [
            (
                *(*name, row["n"], *(format_number(row[each]) for each in numbers)),
                f"{'baseline, ' if row['cell'] in bases else ''}{_standing(row, most)}",
            )
            for name, row in zip(names, rows, strict=True)
        ]
        if fits(headings, cells, len(labels)):
            break
    write_table(headings, cells, spare=(len(labels),), labels=len(labels), brief=True)
    write_remarks(row["note"] for row in rows if row["note"])


_STANDINGS = ("on the front", "inconclusive", "dominated")


def _standing(row: Mapping[str, Any], most: int | None) -> str:
    """`dominated by SSA · 0.001 and 2 more`; with a label of over `most` characters `by 3 cells`; alone for None."""
    standing, rivals = row["standing"], row["dominated_by"] or row["inconclusive"]
    if not rivals or most is None:
        return str(standing)
    joined = {"dominated": "dominated by", "inconclusive": "inconclusive against"}
    is_named = row["dominated_by"] and len(rivals[0]) <= most
    words = some(rivals, 1) if is_named else format_count(len(rivals), "cell")
    return f"{joined[standing]} {words}"


def _write_pareto_title(header: Mapping[str, Any], measure: "GridMeasure", ways: Mapping[str, "Way"]) -> None:
    others = [
        f"{name} ({way.better} is better{'' if way.known else ', as nothing says which way'})"
        for name, way in ways.items()
    ]
    write_prose(f"{describe_measure(header)} ({measure.better} is better) against {', '.join(others)}")
    cells = header["cells"]
    write_prose(
        f"one-sided t tests paired by seed, alpha {measure.alpha:g}: Holm over {cells * (cells - 1)} ordered pairs "
        f"(dominated), over {format_count(cells, 'cell')} (on the front)"
    )
