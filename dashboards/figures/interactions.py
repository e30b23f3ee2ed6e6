"""Do axes act together: how much of the variance each pair explains, and the means of one pair, a line per level."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, Final, NamedTuple

import plotly.graph_objects as go
import polars as pl

from ablate.dashboards.data.formatting import number, p_value
from ablate.dashboards.data.seed_averages import Scale
from ablate.dashboards.figures.heat import draw_heat, heat_ramp
from ablate.dashboards.figures.lines import Drawing, Series, draw_lines
from ablate.dashboards.theme.styles import Style
from ablate.store.statistics import Factorial
from ablate.store.statistics.design import CROSS

MOST_LINES: Final = 9  # more lines in one picture cannot be told apart


class AxisPair(NamedTuple):
    """Two axes, and whether they are shown to act together."""

    axes: tuple[str, str]
    p_holm: float | None  # None where the runs cannot tell
    passes: bool
    note: str

    @property
    def name(self) -> str:
        """As the analysis calls the term."""
        return CROSS.join(self.axes)

    @property
    def key(self) -> str:
        """As an address calls it."""
        return "*".join(self.axes)


def mains(factorial: Factorial) -> list[str]:
    """The axes that vary, in the grid's order."""
    return [str(name) for name in factorial.terms.filter(pl.col("order") == 1)["term"]]


def pairs(factorial: Factorial, alpha: float) -> list[AxisPair]:
    """The interactions that the plan has something to say about, those with the smallest p first."""
    terms = {row["term"]: row for row in factorial.terms.filter(pl.col("order") == 2).iter_rows(named=True)}
    listed = []
    for axes in combinations(mains(factorial), 2):
        row = terms.get(CROSS.join(axes))
        if row is not None:
            p = row["p_holm"]
            listed.append(AxisPair(axes, p, p is not None and p <= alpha, row["note"]))
    return sorted(listed, key=lambda each: (each.p_holm is None, each.p_holm or 0.0))


def matrix(factorial: Factorial) -> pl.DataFrame:
    """Every axis by every axis: x, y, value (partial omega squared), text, note, reason, key; both halves are alike."""
    names = mains(factorial)
    terms = {row["term"]: row for row in factorial.terms.iter_rows(named=True)}
    rows = []
    for up, across in product(names, names):
        axes = sorted((across, up), key=names.index)
        term = across if across == up else CROSS.join(axes)
        key = None if across == up else "*".join(axes)
        rows.append({"x": across, "y": up, "key": key, **_cell(terms.get(term))})
    texts = dict.fromkeys(("text", "note", "reason", "key"), pl.String)
    kinds: dict[str, Any] = {"x": pl.Enum(names), "y": pl.Enum(names), "value": pl.Float64, **texts}
    return pl.DataFrame(rows, schema=kinds)


def _cell(row: dict[str, Any] | None) -> dict[str, object]:
    if row is None:
        return {"reason": "not applicable: the plan does not cross them"}
    share, p = row["omega_squared"], row["p_holm"]
    if share is None:
        return {"reason": f"not run: {row['note'] or 'there is no noise to test against'}"}
    said = p_value(p)
    equal = "" if said.startswith("<") else "= "
    return {"value": share, "text": f"{number(share, 2)}<br>p {equal}{said}", "note": row["note"]}


def draw_matrix(frame: pl.DataFrame) -> go.Figure:
    """The shares as a map, beginning at no share at all; a click chooses a pair."""
    known = pl.Series([0.0, *frame["value"].drop_nulls().to_list()])
    return draw_heat(frame, heat_ramp(known, "partial omega²"), x="", y="")


def means(factorial: Factorial, pair: tuple[str, str]) -> pl.DataFrame:
    """Estimated marginal means of one interaction: x (levels of the first axis), series (of the second), n, value,
    low, high, note; in the grid's order. Empty where the analysis has no such term.
    """
    rows = factorial.means.filter(pl.col("term") == CROSS.join(pair))
    first, second = (factorial.means.filter(pl.col("term") == name)["level"].to_list() for name in pair)
    if rows.height != len(first) * len(second):
        return pl.DataFrame()
    x = [level for level in first for _ in second]  # as the analysis lists them: names may hold its own signs
    kept = rows.select("n", pl.col("mean").alias("value"), "low", "high", "note")
    lines = kept.with_columns(pl.Series("x", x, pl.String), pl.Series("series", second * len(first), pl.String))
    place = {level: i for i, level in enumerate(second)}
    order = pl.col("series").replace_strict(place, return_dtype=pl.Int64)
    return lines.sort(order, maintain_order=True).select("x", "series", "n", "value", "low", "high", "note")


def draw_means(
    frame: pl.DataFrame, styles: dict[str, Style], pair: tuple[str, str], title: str, scale: Scale
) -> go.Figure:
    """A line with its interval per level of the second axis; parallel lines are no interaction."""
    levels: Sequence[str] = list(dict.fromkeys(frame["series"]))[:MOST_LINES]
    series = {level: Series(level, styles[level]) for level in levels}
    shown = frame.filter(pl.col("series").is_in(levels))
    return draw_lines(shown, series, x=pair[0], y=title, scale=scale, drawing=Drawing(markers=True, height=380))
