"""Why a cell of a grid has its verdict: everything that the verdict rests on, with both error bars.

The sentence of the verdict itself is `reason` of `ablate.store.statistics.verdict`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from ablate.grid.errors import SpecError
from ablate.store.analysis.control_tests import control_tests
from ablate.store.analysis.judge import judge
from ablate.store.analysis.verdicts import GridMeasure, compared_runs, measure_of, setting_of
from ablate.store.database import queries
from ablate.store.files.plans import added_cells, role_of
from ablate.store.statistics import basis, item_bars
from ablate.store.statistics.verdict import ROBUST_PAIRS
from ablate.store.store import Store


def why(
    store: Store, grid: str, cell: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Explain the verdict of `cell`: a key or a label, of a tuned setting also that of one of its cells.

    The columns of `judge` and `basis`, `better` of the measure, the grid's `variance`, `checks` as dicts, and
    `controls`: its row of `beyond_controls`. `items` has the fields of `ItemBars` if both arms recorded values of the
    same items. Raises as `verdicts` does, and SpecError for a baseline or a control.
    """
    grid_measure = measure_of(store, grid, measure)
    compared = compared_runs(store, grid, grid_measure, baseline=baseline)
    key, base = setting_of(store, grid, compared, cell), compared.baseline
    theirs = base if isinstance(base, str) else base.get(key, key)
    if key == theirs or key in added_cells(store.grid(grid)):
        what = role_of(store.grid(grid), key)
        label = dict(compared.values.select("cell", "label").iter_rows()).get(key, cell)
        raise SpecError(f"the cell {label!r} is a {what}, which has no verdict; ask for another cell")
    based_on = basis(compared.values, baseline=base, scale=grid_measure.scale, alpha=grid_measure.alpha)
    asked: dict[str, Any] = {"baseline": baseline, "measure": grid_measure._asdict()}
    judged = judge(store, grid, **asked)
    row = judged.rows.filter(cell=key).join(based_on, on="cell").row(0, named=True)
    tests = control_tests(store, grid, **asked).filter(cell=key).to_dicts()
    row |= {"better": grid_measure.better, "variance": grid_measure.variance, "controls": tests[0] if tests else None}
    row["checks"] = [check._asdict() for check in judged.checks[key]]
    kept = _item_differences(store, grid, grid_measure, (key, theirs))
    if kept.is_empty():
        return {**row, "items": None}
    by_seed = kept["difference"].to_numpy().astype(np.float64).reshape(kept["seed"].n_unique(), -1)
    return {**row, "items": item_bars(by_seed, grid_measure.alpha)._asdict()}


def _item_differences(store: Store, grid: str, measure: GridMeasure, cells: tuple[str, str]) -> pl.DataFrame:
    """The value of every item in the first of `cells` less that in the second: seed, item, difference, in this order.

    Compare items that both recorded on every shared seed; at the last step, in the unit of the measure.
    """
    condition, parameters = queries.agrees(measure.point)
    differences = store.sql(
        f"""
        WITH found AS (
            SELECT g.cell, g.seed, i.item, i.value
            FROM v_item i JOIN grid_trial g USING (trial) JOIN trial t USING (trial)
            WHERE g.grid = $grid AND g.cell IN ($ours, $theirs) AND t.state = 'done' AND i.name = $name AND {condition}
                AND isfinite(i.value)
            QUALIFY i.step = max(i.step) OVER (PARTITION BY i.trial)
        )
        SELECT a.seed, a.item, a.value - b.value AS difference FROM found a JOIN found b USING (seed, item)
        WHERE a.cell = $ours AND b.cell = $theirs ORDER BY a.seed, a.item
        """,
        {"grid": grid, "name": measure.name, "ours": cells[0], "theirs": cells[1], **parameters},
    )
    return differences.filter(pl.len().over("item") == pl.col("seed").n_unique())


def why_text(row: Mapping[str, Any]) -> list[str]:
    """`why` as sentences, a topic each."""
    paired = row["method"] == "paired t"
    runs = f"{row['pairs']} {'pair' if row['pairs'] == 1 else 'pairs'} of {row['planned']} planned"
    runs = runs if paired else f"{row['runs']} and {row['baseline_runs']} runs"
    p = "no p" if row["p"] is None else f"p {_number(row['p'])}, after Holm {_number(row['p_holm'])}"
    return [
        f"verdict: {row['verdict']}; {row['reason']}",
        f"method: {row['method']}, {runs}",
        f"seeds: {_list(row['seeds'])} here, {_list(row['baseline_seeds'])} in the baseline",
        f"difference: {_difference(row)}",
        f"family: {row['family']} comparison{'s' * (row['family'] != 1)}; {p}",
        f"variance: {_variance(row)}",
        f"size: {_size(row)}",
        f"assumptions: {_assumptions(row)}",
        f"failures: {row['failed_here']} only here, {row['failed_baseline']} only in the baseline, "
        f"{row['failed_both']} in both",
        f"measure not finite: {row['not_finite_here']} finished here, {row['not_finite_baseline']} in the baseline",
        f"budgets: {_list(row['budgets'])}{' steps' if row['budgets'] else ''}",
        f"code: {_list(row['codes'])}",
        f"error bars: {_bars(row['items'])}",
        *(f"{check['name']}: {check['answer']}; {check['reason']}" for check in row["checks"]),
    ]


def _difference(row: Mapping[str, Any]) -> str:
    if row["difference"] is None:
        return "unknown"
    interval = "no interval"
    if row["low"] is not None:
        interval = f"interval {_number(row['low'])} to {_number(row['high'])} of this comparison alone"
    if row["corrected_low"] is not None:
        interval += (
            f"; {_number(row['corrected_low'])} to {_number(row['corrected_high'])} corrected for all, which decides"
        )
    return f"{_number(row['difference'])} in units of the scale, {interval}"


def _variance(row: Mapping[str, Any]) -> str:
    if row["error"] is None:
        return "unknown"
    error, own = (f"{_number(row[f'{of}error'])} with {_number(row[f'{of}freedom'])}" for of in ("", "own_"))
    choosing = ", which contains that of choosing levels" if row.get("among") else ""
    basis = f"standard error {error} degrees of freedom{choosing}"
    larger = ", the larger one" if row["variance"] == "shared" else ""
    return (
        f"its own{larger}, {basis}" if own == error else f"shared by the comparisons, {basis}; its own runs give {own}"
    )


def _size(row: Mapping[str, Any]) -> str:
    share, g = row["superiority"], row["hedges_g"]
    better = None if share is None else f"the cell is better in {100 * share:.0f} % of all pairs of runs"
    if better and row["method"] == "paired t":
        better = f"the cell is better in {share * row['pairs']:g} of {row['pairs']} pairs (a tie counts half)"
    return "; ".join(filter(None, (None if g is None else f"Hedges g {_number(g)}", better))) or "unknown"


def _assumptions(row: Mapping[str, Any]) -> str:
    known = {
        "spread over seeds {} here": row["spread"],
        "{} in the baseline": row["baseline_spread"],
        "correlation of the pairs {}": row["pairing"],
        "without pairing p {}": row["unpaired_p"] if row["method"] == "paired t" and not row.get("among") else None,
        "sign flip p {}": row["sign_flip_p"],
        "normality (Shapiro and Wilk) p {}": row["normal_p"],
    }
    few = f"fewer than {ROBUST_PAIRS} pairs or the sign-flip test disagrees: holds for normal noise only"
    leans = few if row["leans_on_normal"] else "assumes both groups have noise of one shape and spread, or normal noise"
    return ", ".join([*(text.format(_number(value)) for text, value in known.items() if value is not None), leans])


def _list(values: list[Any]) -> str:
    return " ".join(f"{value:.0f}" if isinstance(value, float) else str(value) for value in values) or "none"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1e4 else f"{value:.0f}"


def _bars(items: Mapping[str, Any] | None) -> str:
    if items is None or items["items"] == 1:
        return "over seeds only, as values of several items are not recorded for both groups"
    mean, n = f"{items['difference']:.3g}", f"{items['items']:,} items"
    if items["seeds"] == 1:
        low, high = items["interval_items"]
        return f"{mean} over {n} of one seed, interval {low:.3g} to {high:.3g} over items, which ignores seeds"
    low, high = items["interval_both"]
    few = "three seeds and items are the fewest for a bar over both"
    both = few if np.isnan(low) else f"for other seeds and other items {low:.3g} to {high:.3g}"
    return (
        f"{mean} over {n} and {items['seeds']} seeds; standard error {items['se_seeds']:.2g} over seeds, "
        f"{items['se_items']:.2g} over items; {both}"
    )
