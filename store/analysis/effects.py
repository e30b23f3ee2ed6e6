"""Effects of the axes of a grid, from its store, on the grid's measure or another one."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import polars as pl

from ablate.grid.names import label_of
from ablate.store.analysis.headline import tell_doubts
from ablate.store.analysis.judge import judge
from ablate.store.analysis.row_labels import clip_interval
from ablate.store.analysis.tuned_verdicts import ComparedRuns, nuisance_axes
from ablate.store.analysis.two_part import two_part
from ablate.store.analysis.verdicts import baseline_of, matched_axes, measure_of, runs, tune_runs
from ablate.store.statistics import Better, Factorial, SeedContrasts, factorial, seed_contrasts, variants_together
from ablate.store.statistics.verdict import CLAIMS
from ablate.store.store import Store

_AXIS: Final = "axis: "  # keeps an axis that is called `seed` or `value` apart from the columns of that name
TOGETHER: Final = " = "  # joins the names of axes that always move together
BESIDE: Final = " / "  # joins the levels of axes that always move together, where they are not called alike
MOST_COEFFICIENTS: Final = 800
"""The axes together, or their interactions, have at most so many; more take minutes to estimate."""
_TOO_MANY: Final = (
    "differences between levels left out: the axes have {:,} levels beside their first ones, and {} can be estimated; "
    "`ablate table` compares each cell with its baseline"
)

_CHOSEN: Final = (
    "no F tests and means of levels: they would leave out the error of choosing levels, which the differences have"
)


def effects(
    store: Store, grid: str, *, measure: Mapping[str, Any] | None = None, only: pl.DataFrame | None = None
) -> SeedContrasts:
    """Compare levels of each axis of the grid with the level of the baseline, one value per seed.

    The first row, of order 0, compares all variants together with their baselines. The columns are explained in
    docs/factorial.md. Zipped axes are one factor, named after all of them, with levels such as "0.1 / 32", since their
    effects cannot be separated. An axis without a level in the baseline is compared with its first level. Settings
    count at their best level of nuisance axes, which have no effects, as verdicts compare them. `only` has the cell and
    the seed of the runs to compare; the baselines of these cells need not be among them. Raises as `verdicts` does, and
    SpecError for a value that does not fit the scale.
    """
    by, header = measure_of(store, grid, measure), store.grid(grid)
    every = runs(store, grid, by)
    compared = tune_runs(store, grid, _keep(every, only), by)
    values, factors, notes = _factors(store, grid, compared.values)
    rule: dict[str, Any] = {name: getattr(by, name) for name in ("scale", "better", "rope", "alpha")}
    base = baseline_of(store, grid, None) if header["baseline"] else ""
    of_base = values.filter(cell=compared.stands_for.get(base, base))
    planned = {}
    for factor, levels in factors.items():
        first = of_base[_AXIS + factor].drop_nulls().to_list()[:1]
        planned[_AXIS + factor] = [*first, *(level for level in levels if level not in first)]
    result = seed_contrasts(values, planned, **rule)
    bases = _bases(tune_runs(store, grid, every, by), {*values["cell"]}) if base else set[str]()
    if bases and bases <= {*every["cell"]}:  # lines of a plan may be lost
        whole = tune_runs(store, grid, _keep(every, only, bases), by)
        together = variants_together(whole.values, whole.baseline, **rule)
        said = [*dict.fromkeys([*together.notes, *result.notes])]
        result = SeedContrasts(pl.concat([together.effects, result.effects]), result.seeds or together.seeds, said)
    if compared.choices:
        tuned = ", ".join(nuisance_axes(header))
        notes.append(f"{tuned} tuned, not compared: each setting counts at its best level, chosen on the other seeds")
    if base and (parts := two_part(store, grid, measure=by._asdict())) is not None:
        notes.append(f"some runs did not learn ({parts.learned}): means compare how often as much as how well")
    rows = result.effects.with_columns(_strip_marks(pl.col("factor", "note")))
    return result._replace(effects=rows, notes=[*(note.replace(_AXIS, "") for note in result.notes), *notes])


def tell_doubts_of_levels(
    store: Store,
    grid: str,
    rows: pl.DataFrame,
    *,
    measure: Mapping[str, Any] | None = None,
    only: pl.DataFrame | None = None,
) -> list[str]:
    """Say of each claim in `effects` which checks of its cells, as `judge` has them, answer no or unknown; '' if none.

    `only` is that of `effects`. Pairs of axes and grids without a baseline have none. Raises as `judge` does.
    """
    if not store.grid(grid)["baseline"]:
        return [""] * rows.height
    by = measure_of(store, grid, measure)
    judged, matched = judge(store, grid, measure=by._asdict()).rows, matched_axes(store, grid)
    judged = judged if only is None else judged.filter(pl.col("cell").is_in(only["cell"].implode()))
    values, _, _ = _factors(store, grid, tune_runs(store, grid, runs(store, grid, by), by).values)
    judged = judged.join(values.select("cell", pl.col(f"^{_AXIS}.*$")).unique("cell"), on="cell", how="left")
    said = []
    for order, factor, level, verdict in rows.select("order", "factor", "level", "verdict").iter_rows():
        of_level = judged.filter(pl.col(_AXIS + factor) == level) if order == 1 else judged
        own = order < 2 and factor not in matched  # within a level of these, cells are compared with their baseline
        said.append(tell_doubts(of_level) if own and verdict in CLAIMS else "")
    return said


def _bases(every: ComparedRuns, cells: Collection[str]) -> set[str]:
    """The baselines of `cells`, at all of their levels; `cells` without one are their own."""
    settings = {every.stands_for.get(cell, cell) for cell in cells}
    base = every.baseline
    bases = {base} if isinstance(base, str) else {base.get(cell, cell) for cell in settings}
    return bases | {cell for cell, setting in every.stands_for.items() if setting in bases}


def analysis(
    store: Store,
    grid: str,
    *,
    interactions: bool = False,
    measure: Mapping[str, Any] | None = None,
    only: pl.DataFrame | None = None,
) -> Factorial:
    """F tests and means of the levels of the axes, and of their interactions by two; factors as in `effects`.

    Intervals of means end where the measure does. Raises as `effects` does.
    """
    by = measure_of(store, grid, measure)
    compared = tune_runs(store, grid, _keep(runs(store, grid, by), only), by)
    values, factors, notes = _factors(store, grid, compared.values)
    if compared.choices:
        factors, notes = {}, [*notes, _CHOSEN]
    planned = {_AXIS + factor: levels for factor, levels in factors.items()}
    result = factorial(values, planned, scale=by.scale, order=2 if interactions else 1, alpha=by.alpha)
    return result._replace(
        terms=result.terms.with_columns(
            _strip_marks(pl.col("term", "note")), pl.col("aliased_with").list.eval(_strip_marks(pl.element()))
        ),
        means=clip_interval(store.grid(grid), result.means, by.name).with_columns(_strip_marks(pl.col("term", "note"))),
        notes=[*(note.replace(_AXIS, "") for note in result.notes), *notes],
    )


def sort_by_axis(effects: pl.DataFrame, sort: Literal["effect", "p", "plan"], better: Better) -> pl.DataFrame:
    """Sort the levels of each axis, and the axes by their first level: by effect, by p, or not at all (plan)."""
    if sort == "plan" or effects.is_empty():
        return effects
    by, descending = ("effect", better == "higher") if sort == "effect" else ("p_holm", False)
    ranked = effects.sort("order", by, descending=[False, descending], nulls_last=True, maintain_order=True)
    return pl.concat(ranked.partition_by("order", "factor", maintain_order=True))


def _keep(values: pl.DataFrame, only: pl.DataFrame | None, bases: Collection[str] = ()) -> pl.DataFrame:
    """The rows of `values` with a cell and seed of `only`, and those of the cells `bases` with a seed of it; or all."""
    if only is None:
        return values
    key = pl.struct("cell", "seed")
    of_bases = pl.col("cell").is_in([*bases]) & pl.col("seed").is_in(only["seed"].unique().to_list())
    return values.filter(key.is_in(only.select(key).to_series().to_list()) | of_bases)


def _strip_marks(names: pl.Expr) -> pl.Expr:
    return names.str.replace_all(_AXIS, "", literal=True)


def _factors(store: Store, grid: str, values: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, list[str]], list[str]]:
    """Runs with a column for each factor, marked as an axis; the factors' levels in order; sentences on other axes.

    An axis with one level is a factor, too, if it applies to some cells only, as these cells differ from others.
    There are no factors if they have too many levels.
    """
    header = store.grid(grid)
    labels = {axis["name"]: axis["labels"] for axis in header["axes"]}
    every, tuned = levels_of(header, values["axes"].to_list()), nuisance_axes(header)
    levels = {name: of_runs for name, of_runs in every.items() if name not in tuned}
    groups = moving_together(levels)
    factors = {TOGETHER.join(names): _joint({name: levels[name] for name in names}, labels) for names in groups}
    columns = [pl.Series(_AXIS + factor, of_runs, pl.String) for factor, (of_runs, _) in factors.items()]
    constant = [name for name in levels if not any(name in names for names in groups)]
    notes = [f"{name} left out: it has one level in these cells" for name in constant]
    coefficients = sum(len(order) - 1 for _, order in factors.values())
    if coefficients > MOST_COEFFICIENTS:
        return values, {}, [*notes, _TOO_MANY.format(coefficients, MOST_COEFFICIENTS)]
    return values.with_columns(columns), {factor: order for factor, (_, order) in factors.items()}, notes


def levels_of(header: Mapping[str, Any], axes: Sequence[str]) -> dict[str, list[str | None]]:
    """By the name of each axis of a grid the labels of its levels in `axes`, the JSON of as many trials.

    None where an axis does not apply. The axes, as their labels in the header, are in the grid's order.
    """
    rows = {text: json.loads(text) for text in dict.fromkeys(axes)}  # one per cell
    levels: dict[str, list[str | None]] = {}
    for axis in header["axes"]:
        name, nothing = axis["name"], None if label_of(None) not in axis["labels"] else label_of(None)
        labels = {text: nothing if row.get(name) is None else label_of(row[name]) for text, row in rows.items()}
        levels[name] = [labels[text] for text in axes]
    return levels


def moving_together(columns: Mapping[str, Sequence[str | None]]) -> list[list[str]]:
    """The names of columns grouped by what they tell apart, whatever they call it; those with one value are left out.

    Widths 32, 64 zipped with rates 0.1, 0.2 are one group: whenever one changes, so does the other.
    """
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, values in columns.items():
        if len(set(values)) > 1:
            codes: dict[str | None, int] = {}
            partition = tuple(codes.setdefault(value, len(codes)) for value in values)
            groups.setdefault(partition, []).append(name)
    return list(groups.values())


def _joint(
    group: Mapping[str, Sequence[str | None]], labels: Mapping[str, Sequence[str]]
) -> tuple[list[str | None], list[str]]:
    """The levels of axes that move together: one per run, and all of them in the grid's order.

    Levels called alike in all axes keep their name; others are joined.
    """
    rows = list(zip(*group.values(), strict=True))
    names = {row: BESIDE.join(dict.fromkeys(level for level in row if level is not None)) or None for row in rows}
    ranks: list[dict[str | None, int]] = [{level: at for at, level in enumerate(labels[name])} for name in group]

    def place(row: tuple[str | None, ...]) -> list[int]:
        return [rank.get(level, len(rank)) for level, rank in zip(row, ranks, strict=True)]

    ordered = [names[row] for row in sorted(names, key=place)]
    return [names[row] for row in rows], [name for name in ordered if name is not None]
