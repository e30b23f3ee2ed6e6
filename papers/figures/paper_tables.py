"""A table of a paper with your own results in its places, and how the two compare."""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ablate.dashboards.data.captions import describe_measure
from ablate.dashboards.data.formatting import count
from ablate.dashboards.data.grid_context import GridContext, campaign_styles, grid_context
from ablate.dashboards.figures.table import table_latex, table_sheet
from ablate.papers.figures.cell_matching import levels as levels_by_cell, match, variation
from ablate.papers.figures.derived_metrics import Measured, find_values, list_needed_names, read_recorded
from ablate.papers.figures.item import Drawn, Item
from ablate.papers.matching.our_results import Own
from ablate.papers.matching.published_comparison import compare_published
from ablate.papers.matching.published_matching import differs
from ablate.store import Store
from ablate.store.analysis.effects import levels_of
from ablate.store.analysis.verdicts import runs
from ablate.store.export.cells import within_noise
from ablate.store.published.tables import PublishedCell, cells
from ablate.store.state import State
from ablate.store.statistics import MIN_PAIRS, Scale, summarise, t_interval
from ablate.store.statistics.arms import Outcome
from ablate.store.statistics.scales import back, forward

ALPHA: Final = 0.05
NOT_COMPARED: Final = "not compared: the paper contradicts itself here"
_ROUNDING: Final = 1e-12
_MOST_CELLS: Final = 200  # most cells of a group that competes for bold: more pairs take too long


class Beside(NamedTuple):
    """A printed cell and what stands in its place."""

    cell: PublishedCell
    own: Own | None
    alike: int  # number of matching cells; the one that matches most places of the table is shown, then the first
    got: Measured

    @property
    def key(self) -> str:
        """The cell of the grid; empty if there is none."""
        return self.own.cell if self.own is not None else ""

    @property
    def runs(self) -> dict[int, float]:
        """Its values by seed that are finite and on the scale of the printed cell."""
        log = self.cell.scale == "log"
        return {seed: value for seed, value in self.got.runs.items() if math.isfinite(value) and (value > 0 or not log)}


def printed_table(paper: str, number: int) -> list[PublishedCell]:
    """The cells of a table, both halves of one that has two."""
    wanted = f"T{number}"
    return [each for each in cells() if each.paper == paper and each.paper_table.partition("-")[0] == wanted]


def columns_of(table: Sequence[PublishedCell]) -> str:
    """The quantity whose values are the column headings of most cells, such as "sigma_f"; empty if there is none."""
    facts = [({**cell.point, **cell.setup, **cell.arguments}, cell.column_label) for cell in table]
    for name in dict.fromkeys(name for each, _ in facts for name in each):
        same = [_equal(str(each[name]), heading) for each, heading in facts if name in each]
        if all(same) and 2 * len(same) > len(table):
            return name
    return ""


def _equal(level: str, heading: str) -> bool:
    try:
        return float(level) == float(heading)
    except ValueError:
        return False


def pair_with_own(context: GridContext, table: Sequence[PublishedCell]) -> list[Beside]:
    """Every cell of a table with what the grid has for it."""
    recorded, by_cell = read_recorded(context, table), levels_by_cell(context)
    pairs: list[Beside] = []
    for half in dict.fromkeys(cell.paper_table for cell in table):
        part = [cell for cell in table if cell.paper_table == half]
        facts = variation(part)
        matches = [match(cell, facts, context, recorded.results, by_cell) for cell in part]
        often = Counter(own.cell for candidates, _ in matches for own in candidates)
        for cell, (candidates, why) in zip(part, matches, strict=True):
            if candidates:
                own = max(candidates, key=lambda each: often[each.cell])
                pairs.append(Beside(cell, own, len(candidates), find_values(cell, own, recorded)))
            else:
                pairs.append(Beside(cell, None, 0, Measured({}, why=why)))
    return pairs


def frame(context: GridContext, pairs: Sequence[Beside]) -> pl.DataFrame:
    """One row per printed cell.

    Returns:
        row, column, printed, unit, measurement, point, cell (the label of your own), n, planned, mean (on the log
        scale the geometric one), spread (the longer half of a 95 % t interval over seeds, from three on), low, high:
        in the printed unit; scale; missing, why, best, differs, notes, trust, mark, note (what was chosen among
        several cells or points).
    """
    progress = {row["cell"]: row for row in context.store.progress(context.grid).iter_rows(named=True)}
    best = _best(pairs, progress)
    rows = [_row(each, progress.get(each.key)) | {"best": i in best} for i, each in enumerate(pairs)]
    kinds: Any = {
        **dict.fromkeys(("mean", "spread", "low", "high"), pl.Float64),
        **dict.fromkeys(("cell", "missing", "why", "differs", "trust", "mark", "note"), pl.String),
        "notes": pl.List(pl.Int64),
    }
    return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)


def _row(each: Beside, state: Mapping[str, Any] | None) -> dict[str, Any]:
    cell, own, _, got = each
    values = list(each.runs.values())
    mean, low, high = average(values, cell.scale)
    missing, why = (None, None) if values else _missing(got, state)
    half = cell.paper_table.partition("-")[2]
    several = f"1 of {each.alike} cells: {own.label}" if own is not None and each.alike > 1 else ""
    points = f"1 of {got.points} points: {got.point}" if got.points > 1 else ""
    return {
        "row": f"{cell.row_label} ({half})" if half else cell.row_label,
        "column": cell.column_label,
        **{name: getattr(cell, name) for name in ("printed", "unit", "scale", "trust", "mark")},
        "measurement": cell.measurement or cell.metric,
        "point": got.point,
        "cell": own.label if own else None,
        "n": len(values),
        "planned": state["planned"] if state else 0,
        "mean": mean,
        "spread": None if mean is None or low is None or high is None else max(high - mean, mean - low),
        "low": low,
        "high": high,
        "missing": missing,
        "why": why,
        "differs": differs(cell, own) if own else None,
        "notes": list(cell.notes),
        "note": ("; ".join(filter(None, (several, points))) or None) if values else None,
    }


def average(
    values: Sequence[float], scale: Scale, least: int = MIN_PAIRS
) -> tuple[float | None, float | None, float | None]:
    """The mean and its interval, computed on the scale; fewer than `least` values have no interval."""
    if not values:
        return None, None, None
    summary = summarise(forward(np.array(values, dtype=np.float64), scale))
    mean = float(summary.mean)
    if len(values) < least:
        return back(mean, scale), None, None
    flat = float(summary.sd) <= _ROUNDING * max(abs(mean), 1.0 if scale == "log" else 0.0)
    low, high = (mean, mean) if flat else map(float, t_interval(summary, ALPHA))
    return back(mean, scale), back(low, scale), back(high, scale)


def _missing(got: Measured, state: Mapping[str, Any] | None) -> tuple[Outcome, str]:
    if state is None:
        return "unmeasured", got.why
    if left := state["planned"] - state["done"] - state["failed"]:
        return "outstanding", f"{left} of {count(state['planned'], 'run')} not finished"
    if got.runs and not state["failed"]:
        return "not finite", f"no value of {count(state['planned'], 'run')} can be averaged"
    if state["failed"]:
        return "failed", f"{state['failed']} of {count(state['planned'], 'run')} failed; no other has a usable value"
    return "unmeasured", got.why


def _best(pairs: Sequence[Beside], progress: Mapping[str, Mapping[str, Any]]) -> set[int]:
    """Places of cells that are not shown to be worse than the best among cells that the paper compares.

    Compared are cells of one quantity, and of one model if the table has several operators.
    """
    groups: dict[Hashable, list[int]] = {}
    several = variation([each.cell for each in pairs]).operators
    for i, (cell, own, *_) in enumerate(pairs):
        if own is not None and cell.better is not None:
            where = (tuple(sorted(cell.point.items())), cell.setup.get("shots"), cell.setup.get("layer from the end"))
            key = (cell.paper_table, cell.metric, where, cell.model if several else None)
            groups.setdefault(key, []).append(i)
    best: set[int] = set()
    for places in groups.values():
        first = {pairs[i].key: pairs[i] for i in reversed(places)}
        if 1 < len(first) <= _MOST_CELLS:
            cell = pairs[places[0]].cell
            lost = {key for key, e in first.items() if progress[key]["failed"] or len(e.runs) < len(e.got.runs)}
            whole = [{} if key in lost else each.runs for key, each in first.items()]
            kept = within_noise(whole, cell.scale, cell.better or "lower", ALPHA)
            winners = {key for k, key in enumerate(first) if k in kept}
            best |= {i for i in places if pairs[i].key in winners}
    return best


def compare_with_printed(data: pl.DataFrame, pairs: Sequence[Beside], claims: pl.DataFrame) -> pl.DataFrame:
    """Add to the `frame` of `pairs` how its values compare with the printed ones, and the words of `claims`.

    Claims are of `ablate.papers.matching.published_comparison.compare_published`, of the same table.

    Returns:
        difference (own less printed; their log ratio on the log scale), band ("inside", "above" or "below": where the
        printed value lies against the interval of your own mean) and word (of the claim that the cell makes, if this
        own cell was compared with it). All null if the paper contradicts itself, and then `note` says so.
    """
    words: dict[tuple[str, ...], set[str]] = {}
    for claim in claims.filter(pl.col("word") != "not comparable").iter_rows(named=True):
        place = tuple(claim[name] for name in ("paper_table", "row_label", "column_label", "label", "point"))
        words.setdefault(place, set()).add(claim["word"])
    rows: list[tuple[float | None, str | None, str | None, str | None]] = []
    for row, (cell, *_) in zip(data.iter_rows(named=True), pairs, strict=True):
        if cell.unusable:
            note = None if row["mean"] is None else "; ".join(filter(None, (NOT_COMPARED, row["note"])))
            rows.append((None, None, None, note))
        else:
            said = words.get((cell.paper_table, cell.row_label, row["column"], row["cell"], row["point"]), set())
            word = "differs between baselines, see Claims" if len(said) > 1 else next(iter(said), None)
            rows.append((*_difference_and_band(row, cell.value), word, row["note"]))
    kinds = {"difference": pl.Float64, **dict.fromkeys(("band", "word", "note"), pl.String)}
    return data.with_columns(pl.DataFrame(rows, schema=kinds, orient="row").get_columns())


def _difference_and_band(row: Mapping[str, Any], printed: float | None) -> tuple[float | None, str | None]:
    mean, low, high = row["mean"], row["low"], row["high"]
    if mean is None or printed is None:
        return None, None
    difference: float | None = mean - printed
    if row["scale"] == "log":
        difference = math.log(mean / printed) if mean > 0 and printed > 0 else None
    if low is None or high is None:
        return difference, None
    return difference, "above" if printed > high else "below" if printed < low else "inside"


def read_beside(store: Store, grid: str, paper: str, number: int) -> pl.DataFrame:
    """A table of a paper with the results of `grid` in its places, and how both compare; see `compare_with_printed`."""
    context = grid_context(store, grid, campaign_styles(store))
    pairs = pair_with_own(context, printed_table(paper, number))
    claims = compare_published(store, grid, paper=paper, table=f"T{number}")
    return compare_with_printed(frame(context, pairs), pairs, claims)


def overlaid(context: GridContext, item: Item) -> pl.DataFrame:
    """The printed values of the drawn cells for a figure: key (the cell), series, x, value, printed, color.

    `value` is in the unit of the measurement here. Values that the paper itself contradicts are left out.
    """
    number, axis = item.printed or (None, "")
    rows = []
    for each in pair_with_own(context, printed_table(item.paper, number)) if number is not None else ():
        cell, key = each.cell, each.key
        if axis in cell.point and key in context.drawn and cell.value is not None and not cell.unusable:
            place = cell.point[axis], cell.value * cell.factor
            rows.append(
                (key, context.appearance.names[key], *place, cell.printed, context.appearance.styles[key].color)
            )
    names = ("key", "series", "x", "value", "printed", "color")
    kinds = {name: pl.Float64 if name in ("x", "value") else pl.String for name in names}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def draw_printed(context: GridContext, paper: str, number: int) -> Drawn:
    """The table of a paper with your own results in its places; signs with a reason where there is none."""
    table = printed_table(paper, number)
    data = frame(context, pair_with_own(context, table))
    if data["mean"].is_null().all():
        reasons = data["why"].drop_nulls().value_counts(sort=True)["why"].to_list()
        return Drawn(data=data, message=f"The campaign has nothing of it: {reasons[0]}.")
    caption = f"{own_words(context, table)} {_SIGNS}"
    some = data["n"].is_between(1, data["planned"] - 1).any()
    few = " a/b: a of b planned seeds have a value." if some else ""
    latex = (
        f"The layout of {paper}, table {number}, with your own results: every number is of the grid {context.grid}, "
        f"none is printed in the paper. {caption}{few}"
    )
    return Drawn(caption, data, sheet=table_sheet(data, columns_of(table)), latex=table_latex(data, latex))


def own_words(context: GridContext, table: Sequence[PublishedCell]) -> str:
    """Explain your own numbers in a table."""
    logs = {cell.scale == "log" for cell in table if cell.value is not None}
    mean, of_logs = ("Geometric means", " of logarithms") if logs == {True} else ("Means", "")
    some = " (geometric where the table spans decades)" if logs == {True, False} else ""
    half = "the longer half" if True in logs else "half"
    return (
        f"{mean} over seeds{some}, {len(context.header['seeds'])} planned, in the printed unit; ± is {half} of the 95 "
        f"% t interval over seeds{of_logs}, from three seeds on."
    )


_SIGNS: Final = (
    "Bold: not shown to be worse than the best of its group (paired t tests by seed, Holm). Nothing is bold if no "
    "difference is shown. × failed, … not finished, – not measured."
)


def list_needs(paper: str, number: int) -> list[str]:
    """The names that a run has to record for values beside a table."""
    return list(dict.fromkeys(name for cell in printed_table(paper, number) for name in list_needed_names(cell)))


_NUMBERS: Final = {
    "β": "gate.strength",
    "γ": "normaliser.threshold",
    "α": "margin.amplification",
    "v₀": "readout.ground_value",
}
"""The paper's names, and the fields that axes vary."""
_HEADINGS: Final = {"constant": "Constant", "layer": "Per-Layer", "head": "Per-Head", "query": "Per-Query"}
"""The paper's names of levels of granularity."""


def draw_design(context: GridContext) -> Drawn:
    """The measure of the grid by level of each number, the other numbers averaged over."""
    if context.measure is None:
        return Drawn(message="The grid has no measure that its cells could be compared by.")
    axes = [
        (name, axis)
        for name, field in _NUMBERS.items()
        for axis in context.header["axes"]
        if axis["path"].removesuffix(".per").endswith(field) or axis["name"].startswith(field.partition(".")[2])
    ]
    if not axes:
        return Drawn(message="No axis of this grid varies beta, gamma, alpha or v0.")
    by_run = runs(context.store, context.grid, context.measure)
    levels = levels_of(context.header, by_run["axes"].to_list())
    rows = []
    for name, axis in axes:
        for label in axis["labels"]:
            at = by_run.filter([level == label for level in levels[axis["name"]]])
            place = {"row": name, "column": _HEADINGS.get(label, label), "best": False}
            rows.append(place | _average_level(at, context.measure.scale))
    data = pl.DataFrame(rows, schema_overrides={"spread": pl.Float64, "note": pl.String}, infer_schema_length=None)
    mean = "Geometric mean" if context.measure.scale == "log" else "Mean"
    caption = (
        f"{mean} of {describe_measure(context.measure, context.unit)} over seeds of the mean over the other numbers' "
        "levels; ± is half the 95 % t interval over seeds. Where runs failed or are missing, the mean is of the "
        "others, and says of how many: it is not comparable with its neighbours. The paper prints the design alone. "
        "Its constants are hyperparameters, and its constant v₀ is fixed."
    )
    latex = table_latex(data, f"The design of paper 001: {caption}")
    return Drawn(caption, data, sheet=table_sheet(data), latex=latex)


def _average_level(at: pl.DataFrame, scale: Scale) -> dict[str, Any]:
    """The columns of `table_sheet`; n counts seeds, and the note counts runs if some have no value."""
    units = forward(at["value"].cast(pl.Float64).fill_null(math.nan).to_numpy(), scale)
    kept = at.with_columns(value=units).filter(pl.col("state") == State.DONE, pl.col("value").is_finite())
    by_seed = kept.group_by("seed", maintain_order=True).agg(pl.col("value").mean())["value"]
    values = [back(value, scale) for value in by_seed]
    mean, _, high = average(values, scale, least=2)
    failed, ended = (int((at["state"] == each).sum()) for each in (State.FAILED, State.DONE))
    missing, why = "failed", f"{failed} of {count(at.height, 'run')} failed; no other has a usable value"
    if not failed:
        missing, why = "not finite", f"no value of {count(at.height, 'run')} can be averaged"
    if failed + ended < at.height:
        missing, why = "outstanding", f"{at.height - failed - ended} of {count(at.height, 'run')} not finished"
    return {
        "mean": mean,
        "spread": None if mean is None or high is None or high == mean else high - mean,
        "n": len(values),
        "planned": at["seed"].n_unique(),
        "missing": None if values else missing,
        "why": None if values else why,
        "note": f"{kept.height} of {count(at.height, 'run')}" if 0 < kept.height < at.height else None,
    }
