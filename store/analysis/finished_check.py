"""Was training finished: the check of a verdict that longer training answers, or, if it can only be no, a curve.

Twice as long agrees if the difference moves by less than the band and, if it is one, keeps its sign. From values during
training only *no* follows: if an arm still improves by as much as the difference and the band, the speed of learning is
compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from ablate.store.analysis.once import once
from ablate.store.analysis.tuned_verdicts import ComparedRuns, nuisance_axes
from ablate.store.analysis.verdicts import GridMeasure, compare_runs, every_run, measure_of, verdicts
from ablate.store.database import queries
from ablate.store.state import ENDED
from ablate.store.statistics.check import Check
from ablate.store.statistics.scales import forward, margin
from ablate.store.statistics.verdict import CLAIMS
from ablate.store.store import Store

LAST: Final = 0.75
"""The last quarter of training begins here."""
_UNKNOWN: Final = "neither of the two was trained longer (`Grid(longer=2)` adds the best variant)"
_NOT_LONGER: Final = "it was not trained longer, as the baseline and the best variant are"
_UNITS: Final = {"linear": "", "log": " in its logarithm", "logit": " in log odds"}


@once
def finished_checks(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> dict[str, Check]:
    """Return the check of each row of `verdicts`, by cell. Raises as it does."""
    by = measure_of(store, grid, measure)
    every, longer = every_run(store, grid, by), store.grid(grid).get("longer") or {"of": {}}
    of, gains = longer["of"], _read_gains(store, grid, by)
    checks = {}
    for row in verdicts(store, grid, baseline=baseline, measure=by._asdict()).iter_rows(named=True):
        cell, base = row["cell"], row["baseline"]
        check = None
        if cell in of and base in of:
            short, long = (_verdict_of(every, by, *pair) for pair in ((cell, base), (of[cell], of[base])))
            check = _compare(short, long, longer["factor"], by, tuned=bool(nuisance_axes(store.grid(grid))))
        known = [gains[arm] for arm in (cell, base) if arm in gains]
        unknown = _NOT_LONGER if of and cell not in of else _UNKNOWN
        checks[cell] = check or _read_curves(row, known, margin(by.rope, by.scale), unknown)
    return checks


def _verdict_of(every: pl.DataFrame, by: GridMeasure, cell: str, base: str) -> dict[str, Any] | None:
    """The comparison of two cells alone, once all of their runs have ended; None without a verdict."""
    values = every.filter(pl.col("cell").is_in([cell, base]))
    if values["cell"].n_unique() < 2 or not values["state"].is_in(ENDED).all():
        return None
    row = compare_runs(ComparedRuns(values, base), by).row(0, named=True)
    return None if row["verdict"] == "no verdict" else row


def _compare(
    short: Mapping[str, Any] | None, long: Mapping[str, Any] | None, factor: int, by: GridMeasure, *, tuned: bool
) -> Check | None:
    """Compare the difference of two cells with that of the same trained longer; `tuned`: verdicts choose levels."""
    band = margin(by.rope, by.scale)
    if short is None or long is None or not band:
        return None
    before, after = short["difference"], long["difference"]
    moved = abs(after - before)
    turned = short["verdict"] in CLAIMS and before * after <= 0  # inside the band a sign is noise
    agrees = moved < band and not turned
    pair = f"the difference{' between these two cells, without choosing,' if tuned else ''}"
    words = (
        f"{factor} times as long, {pair} is {after:+.3g}{_UNITS[by.scale]} and not {before:+.3g}: it moves by "
        f"{moved:.2g}, where {band:.2g} counts as equal{', and changes its sign' if turned else ''}"
    )
    return Check("finished", "yes" if agrees else "no", words, moved)


def _read_gains(store: Store, grid: str, by: GridMeasure) -> dict[str, float]:
    """By how much the measure improves in the last quarter of training, in units of the scale: mean of each cell.

    Without cells whose runs recorded no value up to its beginning.
    """
    condition, parameters = queries.agrees(by.point)
    listed = store.sql(
        f"""
        SELECT g.cell, g.seed, e.step, e.value FROM grid_trial g JOIN trial t USING (trial)
        JOIN v_evaluation e USING (trial)
        WHERE g.grid = $grid AND t.state = 'done' AND e.name = $name AND {condition} AND e.later IS NULL
        ORDER BY g.cell, g.seed, e.step
        """,
        {"grid": grid, "name": by.name, **parameters},
    )
    gains = dict[str, list[float]]()
    for run in listed.partition_by("cell", "seed", maintain_order=True):
        steps, units = run["step"].to_numpy(), forward(run["value"].to_numpy(), by.scale)
        begins = LAST * steps[-1]
        if steps[0] <= begins and np.isfinite(units).all():
            gain = float(np.interp(begins, steps, units) - units[-1])
            gains.setdefault(run["cell"][0], []).append(gain if by.better == "lower" else -gain)
    return {cell: sum(each) / len(each) for cell, each in gains.items()}


def _read_curves(row: Mapping[str, Any], gains: Sequence[float], band: float, unknown: str) -> Check:
    """Judge a comparison that nothing longer answers by the gains of its arms; those inside the band say nothing."""
    if row["difference"] is None or not gains:
        return Check("finished", "unknown", f"{unknown}, and its measure was not recorded during training")
    gain = max(gains)
    if gain > 0 and gain >= max(abs(row["difference"]), band):
        words = f"the last quarter of training still improves by {gain:.2g}, the difference is {row['difference']:+.2g}"
        return Check("finished", "no", f"{words}: the speed of learning is compared", gain)
    return Check("finished", "unknown", f"{unknown}; the last quarter of training improves by {gain:.2g}", gain)
