"""A grid as a table of its cells, in LaTeX or Markdown: what is best, what is missing."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations
from typing import Final, Literal, NamedTuple

import numpy as np
import polars as pl

from ablate.grid.errors import NotFoundError, SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.store.analysis.verdicts import GridMeasure, measure_of
from ablate.store.database.queries import in_plan_order
from ablate.store.export import latex, markdown
from ablate.store.state import ENDED, State
from ablate.store.statistics import MIN_PAIRS, Better, Scale, holm, p_zero, summarise, t_interval
from ablate.store.statistics.arms import Outcome
from ablate.store.statistics.scales import fits, forward
from ablate.store.store import Store

Spread = Literal["interval", "sd"]
MOST_COLUMNS: Final = 24


class ExportEntry(NamedTuple):
    """One cell at one column: the mean over seeds, or why there is none."""

    mean: float | None
    spread: float | None
    seeds: int
    planned: int
    missing: Outcome | None
    best: bool


class ExportColumn(NamedTuple):
    """One measurement at one point; `better` is None where nobody said which way is good."""

    name: str
    point: Mapping[str, float]
    better: Better | None
    scale: Scale
    entries: list[ExportEntry]


class CellTable(NamedTuple):
    """The table: `labels` name the rows; `alpha` is that of the interval and of what is bold."""

    grid: str
    labels: list[str]
    columns: list[ExportColumn]
    spread: Spread
    alpha: float


def cells(
    store: Store,
    grid: str,
    wanted: Sequence[str],
    at: Mapping[str, float],
    spread: Spread,
    only: Collection[str] | None = None,
) -> CellTable:
    """The cells of `grid`, or `only` some, baselines first and then in the order of the spec.

    `wanted` are measurements, each at all its points that agree with `at`, such as "mse" or "accuracy:higher"; without
    any, the grid's own measure at its own point. Raises NotFoundError for a name that nothing has, and SpecError for
    more columns than a page holds, or where no measurement is meant.
    """
    own = measure_of(store, grid, None) if store.grid(grid)["measure"] or not wanted else GridMeasure("")
    twice = sorted({word for word in wanted if list(wanted).count(word) > 1})
    if twice:
        raise SpecError(f"{', '.join(twice)} came several times; ask for a measurement once")
    columns = []
    for word in wanted or [own.name]:
        ways: dict[str, Better] = {"lower": "lower", "higher": "higher"}
        name, _, way = word.rpartition(":")
        better = ways.get(way) if name else None
        name = name if better else word
        points = _points(store, grid, name, at) if wanted else [{**own.point, **at}]
        better = better or (own.better if name == own.name else None)
        scale = own.scale if name == own.name else "linear"
        columns += [ExportColumn(name, point, better, scale, []) for point in points]
    if len(columns) > MOST_COLUMNS:
        raise SpecError(
            f"{len(columns)} columns do not fit a page of at most {MOST_COLUMNS}; choose points, --at NAME=VALUE"
        )
    finals = (store.final(grid, column.name, column.point) for column in columns)
    frames = [in_plan_order(store.sql, store.grid(grid), final) for final in finals]
    frames = frames if only is None else [frame.filter(pl.col("cell").is_in([*only])) for frame in frames]
    filled = [
        column._replace(entries=_entries(frame, column, spread, own.alpha))
        for column, frame in zip(columns, frames, strict=True)
    ]
    labels = frames[0].unique("cell", maintain_order=True)["label"].to_list()
    return CellTable(grid, labels, filled, spread, own.alpha)


def _points(store: Store, grid: str, name: str, at: Mapping[str, float]) -> list[dict[str, float]]:
    rows = store.sql(
        "SELECT DISTINCT point FROM v_final WHERE grid = $grid AND name = $name "
        "QUALIFY source = min(source) OVER () ORDER BY point",
        {"grid": grid, "name": name},
    )
    if rows.is_empty():
        known = store.list_names(grid, "v_final")
        near = suggest_name(name, known)
        raise NotFoundError(f"no finished run of {grid!r} has {name!r}; they have {some(known, 12)}{near}")
    points = [dict(point) for point in rows["point"].to_list()]
    agreeing = [point for point in points if all(point.get(axis) == value for axis, value in at.items())]
    if not agreeing:
        raise NotFoundError(f"{name!r} has no point with {dict(at)}; it has {len(points)}, such as {points[0]}")
    return sorted(agreeing, key=lambda point: sorted(point.items()))


def _entries(values: pl.DataFrame, column: ExportColumn, spread: Spread, alpha: float) -> list[ExportEntry]:
    """Return an entry per cell. One with a run that failed, or whose value is not finite, has no verdict."""
    marks = {"failed": pl.col("state") == State.FAILED, "infinite": ~pl.col("value").fill_null(0.0).is_finite()}
    rows = [part for _, part in values.with_columns(**marks).group_by("cell", maintain_order=True)]
    finite = [dict(part.filter(pl.col("value").is_finite()).select("seed", "value").iter_rows()) for part in rows]
    judged = [
        {} if (part["failed"] | part["infinite"]).any() else runs for part, runs in zip(rows, finite, strict=True)
    ]
    best = within_noise(judged, column.scale, column.better, alpha) if column.better else set()
    both = enumerate(zip(rows, finite, strict=True))
    return [_entry(part, runs, spread, alpha, best=i in best) for i, (part, runs) in both]


def _entry(part: pl.DataFrame, runs: Mapping[int, float], spread: Spread, alpha: float, *, best: bool) -> ExportEntry:
    if not runs:
        unfinished = part["state"].is_in(ENDED).not_().any()
        ended: Outcome = "failed" if part["failed"].any() else "not finite" if part["infinite"].any() else "unmeasured"
        missing: Outcome = "outstanding" if unfinished else ended
        return ExportEntry(None, None, 0, part.height, missing, best=False)
    summary = summarise(np.array(list(runs.values()), dtype=np.float64))
    mean, sd = float(summary.mean), float(summary.sd)
    width = None
    if len(runs) > 1:
        width = sd if spread == "sd" or sd == 0 else mean - float(t_interval(summary, alpha)[0])
    return ExportEntry(mean, width, len(runs), part.height, None, best)


def within_noise(runs: Sequence[Mapping[int, float]], scale: Scale, better: Better, alpha: float) -> set[int]:
    """Return the indices of the cells that are not shown to be worse than the best; empty if no cell is shown worse.

    Each entry of `runs` has the values of a cell by seed. All pairs of cells are compared by paired t tests on the
    scale, with Holm's adjustment over all pairs. So the chance of any wrong "worse" is at most `alpha`. Cells with
    fewer than three values, or with one that the scale cannot take, are left out.
    """
    units = {
        i: dict(zip(of, forward(np.array(list(of.values())), scale).tolist(), strict=True))
        for i, of in enumerate(runs)
        if len(of) >= MIN_PAIRS and fits(np.array(list(of.values())), scale)
    }
    if len(units) < 2:
        return set()
    pairs = list(combinations(units, 2))
    shared = [sorted(units[one].keys() & units[other].keys()) for one, other in pairs]
    parts = [
        np.array([units[one][seed] - units[other][seed] for seed in seeds], dtype=np.float64)
        for (one, other), seeds in zip(pairs, shared, strict=True)
    ]
    p = holm(np.array([p_zero(summarise(part)) if part.size >= MIN_PAIRS else np.nan for part in parts]))
    sign = 1 if better == "lower" else -1
    best = min(units, key=lambda i: sign * sum(units[i].values()) / len(units[i]))
    kept = {best}
    for (one, other), part, chance in zip(pairs, parts, p, strict=True):
        rival = other if one == best else one
        alike = part.size > 0 and not part.any()  # equal on every seed: nothing to test, and no worse
        if best in (one, other) and (alike or not chance <= alpha):  # without a p nothing is shown
            kept.add(rival)
    return kept if len(kept) < len(units) else set()


_MARKS: Final = {"failed": "×", "not finite": "!", "outstanding": "…", "unmeasured": "–"}
_MEANT: Final = {
    "failed": "no run of the cell has a finite value, and some failed",
    "not finite": "the runs of the cell finished, and their values are not finite numbers",
    "outstanding": "not finished",
    "unmeasured": "not planned: finished runs do not measure it",
}
_ARROWS: Final = {"lower": "↓", "higher": "↑"}
_NO_BOLD: Final = "Arrows say which way is better. Nothing is bold"
_BOLD: Final = (
    "Arrows say which way is better. Bold: not shown to be worse than the best of the column, which itself may be luck "
    "(paired t tests by seed, Holm over all pairs of its cells, {} together); none is where none is shown to be worse."
)


class _Style(NamedTuple):
    """How a kind of page writes the parts of an entry."""

    escape: Callable[[str], str]
    bold: str
    plus_minus: str
    power: str
    few: str


_LATEX: Final = _Style(latex.escape, r"\textbf{{{}}}", r" $\pm$ ", r"$\,\cdot\,10^{{{}}}$", "$^{{{}/{}}}$")
_MARKDOWN: Final = _Style(markdown.escape, "**{}**", " ± ", r" · 10\^{}", " ({}/{})")


def latex_cells(table: CellTable, said: str = "") -> str:
    """One row per cell, one column per measurement; needs booktabs only. `said` is in place of the usual caption."""
    return latex.table(*_texts(table, _LATEX), latex.escape(said or caption(table)))


def markdown_cells(table: CellTable) -> str:
    """One row per cell, one column per measurement, and the caption below."""
    return f"{markdown.table(*_texts(table, _MARKDOWN))}\n{markdown.escape(caption(table))}\n"


def _texts(table: CellTable, style: _Style) -> tuple[list[str], list[list[str]], list[bool]]:
    columns = [[_format_entry(entry, style) for entry in column.entries] for column in table.columns]
    rows = [[style.escape(label), *row] for label, *row in zip(table.labels, *columns, strict=True)]
    return ["cell", *map(style.escape, headings(table))], rows, [False, *[True] * len(columns)]


def _format_entry(entry: ExportEntry, style: _Style) -> str:
    if entry.mean is None:
        return style.escape(_MARKS[entry.missing or "unmeasured"])
    number = round_to_spread(entry.mean, entry.spread)
    value = style.escape(number.value.replace("-", "−"))
    text = style.bold.format(value) if entry.best else value
    if number.spread is not None:
        text += f"{style.plus_minus}{number.spread}"
    if number.exponent:  # the power is of both
        power = style.power.format(number.exponent)
        text = f"{text}{power}" if number.spread is None else f"({text}){power}"
    return text + (style.few.format(entry.seeds, entry.planned) if entry.seeds < entry.planned else "")


def headings(table: CellTable) -> list[str]:
    """Name, the coordinates that tell the columns apart, and which way is good."""
    shared = _shared_part(table.columns)
    texts = []
    for column in table.columns:
        apart = [f"{axis}={value:g}" for axis, value in column.point.items() if (axis, value) not in shared]
        texts.append(" ".join([column.name, *apart, *([_ARROWS[column.better]] if column.better else [])]))
    return texts


def caption(table: CellTable) -> str:
    """Describe the table in sentences."""
    level = f"{100 * (1 - table.alpha):g} %"
    what = "the standard deviation" if table.spread == "sd" else f"half the {level} t interval of the mean"
    entries = [entry for column in table.columns for entry in column.entries]
    counts = sorted({entry.planned for entry in entries})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    seeds += " planned seed" if counts == [1] else " planned seeds"
    where = ", ".join(f"{axis}={value:g}" for axis, value in sorted(_shared_part(table.columns)))
    said = [
        f"{table.grid}{f' at {where}' if where else ''}: arithmetic mean over {seeds}; ± is {what}, and "
        "values without it are of one seed."
    ]
    if any(column.better for column in table.columns):
        is_bold = any(entry.best for entry in entries)
        said.append(_BOLD.format(level) if is_bold else f"{_NO_BOLD}: no cell is shown to be worse than the best.")
    if any(0 < entry.seeds < entry.planned for entry in entries):
        said.append(
            "a/b: a of b planned seeds have a value; a cell with one that failed or is not finite has no verdict."
        )
    marks = [mark for mark in _MARKS if any(entry.missing == mark for entry in entries)]
    said += [f"{_MARKS[mark]}: {_MEANT[mark]}." for mark in marks]
    return " ".join(said)


def _shared_part(columns: Sequence[ExportColumn]) -> set[tuple[str, float]]:
    return set.intersection(*(set(column.point.items()) for column in columns)) if columns else set()


_SINGLE_DIGITS = 4  # digits of a number without a spread


class Rounded(NamedTuple):
    """`value` and `spread` as digits, times ten to the `exponent` where that is not 0."""

    value: str
    spread: str | None
    exponent: int


def round_to_spread(value: float, spread: float | None) -> Rounded:
    """`value` with `spread`, both finite, to the second significant digit of the spread; four digits without one."""
    size = max(abs(value), spread or 0.0)
    exponent = math.floor(math.log10(size)) if size else 0
    exponent = max(exponent, -300) if not -4 < exponent < 6 else 0
    scaled, width = value / 10.0**exponent, (spread or 0.0) / 10.0**exponent
    last = _last(width, 2) if width else _last(scaled, _SINGLE_DIGITS)
    shown = None if spread is None else _digits(width, last) if width else "0"
    return Rounded(_digits(scaled, last), shown, exponent)


def _last(number: float, significant: int) -> int:
    """The power of ten of the last significant digit, after rounding to it: 0.0996 to two digits is 0.10."""
    return int(f"{number:.{significant - 1}e}".partition("e")[2]) - significant + 1 if number else 0


def _digits(number: float, last: int) -> str:
    text = f"{round(number, -last):.{max(-last, 0)}f}"
    return text.removeprefix("-") if not float(text) else text
