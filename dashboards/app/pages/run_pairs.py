"""The cells of two runs, paired by seed: the mean difference of everything that both measured, with its interval."""

from typing import Any, Final

import numpy as np
import polars as pl

from ablate.dashboards.app.page import PageView, SlotContent
from ablate.dashboards.app.table_columns import BY_SIZE, columns
from ablate.dashboards.data.formatting import count, number, point as at_point
from ablate.dashboards.data.user_errors import Unknown
from ablate.store.analysis.measurements import text_of
from ablate.store.database.queries import agrees
from ablate.store.statistics import Paired, t_interval
from ablate.store.statistics.paired_differences import or_null

_SHARED: Final = """
    SELECT a.grid, a.cell AS one, b.cell AS other, a.label AS one_label, b.label AS other_label
    FROM grid_trial a JOIN grid_trial b USING (grid)
    WHERE a.trial = $one AND b.trial = $other ORDER BY grid LIMIT 1
"""
_PAIRS: Final = """
    SELECT name, point, source, count(*) AS pairs, avg(a.value) AS one, avg(b.value) AS other,
           avg(b.value - a.value) AS difference, stddev_samp(b.value - a.value) AS sd
    FROM v_final a JOIN v_final b USING (grid, seed, name, point, source)
    WHERE a.grid = $grid AND a.cell = $one AND b.cell = $other AND isfinite(a.value) AND isfinite(b.value)
    GROUP BY name, point, source ORDER BY name <> $measure, NOT ({at}), difference = 0, source, name, point
"""


def _with_sign(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def pair_cells(view: PageView, one: str, other: str) -> SlotContent:
    """Differences between the cells of two trials over the seeds that both have. Raises Unknown if no grid has both."""
    shared = view.store.sql(_SHARED, {"one": one, "other": other})
    if shared.is_empty():
        raise Unknown("no grid of this campaign has both runs, so that their seeds are no pairs")
    pair = shared.row(0, named=True)
    if pair["one"] == pair["other"]:
        return SlotContent(message=f"Both runs are seeds of {pair['one_label']}, so that there is nothing to pair.")
    measure = view.store.grid(pair["grid"])["measure"] or {}
    at, coordinates = agrees(measure.get("point") or {})
    parameters = {name: pair[name] for name in ("grid", "one", "other")} | {"measure": measure.get("name", "")}
    rows = view.store.sql(_PAIRS.format(at=at), parameters | coordinates)
    if rows.is_empty():
        return SlotContent(message="No seed of both cells has finished with a value yet.")
    spread = rows["sd"].fill_null(float("nan")).to_numpy()
    low, high = t_interval(Paired(rows["pairs"].to_numpy().astype(float), rows["difference"].to_numpy(), spread))
    data = rows.select(
        pl.Series("measurement", [text_of(row["name"], dict(row["point"])) for row in rows.iter_rows(named=True)]),
        "difference",
        *(pl.Series(name, list(map(or_null, end)), pl.Float64) for name, end in (("low", low), ("high", high))),
        "pairs",
        *(pl.col(side).alias(pair[f"{side}_label"]) for side in ("one", "other")),
    )
    ends = zip(low, high, strict=True)
    spans = ["–" if np.isnan(least) else f"{_with_sign(least)} to {_with_sign(most)}" for least, most in ends]
    texts = data.with_columns(
        pl.Series("measurement", [f"{row['name']} {at_point(dict(row['point']))}".strip() for row in rows.to_dicts()]),
        pl.Series("difference", map(_with_sign, data["difference"]), pl.String),
        pl.Series("95 % interval", spans),
    )
    first = ["measurement", "difference", "95 % interval"]
    shown = texts.select(*first, pl.exclude("low", "high", *first))
    caption = (
        f"Means of the cells over {count(max(rows['pairs'].to_list()), 'shared seed')}, and {pair['other_label']} "
        f"minus {pair['one_label']} seed by seed. 95 % t interval of each measurement alone, not corrected for "
        "their number."
    )
    shares = pl.all_horizontal(pl.col("one", "other").is_between(0, 1))
    if (rows.select(shares.alias("share"))["share"] & ((data["low"] < -1) | (data["high"] > 1))).any():
        caption += " Intervals of few pairs can go beyond what is possible, such as below −1 for accuracies."
    top = texts.row(0, named=True)
    span = "" if top["95 % interval"] == "–" else f" ({top['95 % interval']})"
    answer = (
        f"{pair['other_label']} against {pair['one_label']}, {count(top['pairs'], 'pair')}: {top['measurement']} "
        f"{top['difference']}{span}."
    )
    own: dict[str, dict[str, Any]] = {pair[f"{side}_label"]: {"flex": 1, "minWidth": 130} for side in ("one", "other")}
    own |= {"difference": {**BY_SIZE, "width": 120}, "95 % interval": {"type": "rightAligned", "width": 190}}
    listed = columns(shown, own)
    return SlotContent(caption=caption, data=data if view.whole else shown, columns=listed, answer=answer)
