"""Verdicts of cells that were chosen as the best over some axes, such as the learning rate."""

import json
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from ablate.grid.errors import SpecError
from ablate.grid.names import label_of
from ablate.grid.suggestions import suggest_name
from ablate.store.analysis.verdicts import GridMeasure, baseline_rows, baselines_of, judge_runs, measure_of, runs
from ablate.store.statistics import Baseline
from ablate.store.statistics.selection import Selected, TunedChoice, select_then_report
from ablate.store.store import Store

_AXIS: Final = "axis: "  # keeps an axis that is called like a column of the runs apart from it


def selected_verdicts(store: Store, grid: str, over: Sequence[str]) -> pl.DataFrame:
    """One row per setting of the axes that are not in `over`, but for the baseline's: columns of `compare` and more.

    On each seed, every setting, the baseline's too, is represented by the level that is best on the other seeds. The
    row is called after the level that is best on all. Further columns are selected (its levels of `over`), among
    (number of cells it was chosen from) and otherwise (seeds for which the others choose another one). There is no
    verdict, and `among` is 0, if the setting or the baseline's has no value. Raises as `verdicts` does, and SpecError
    for an axis that is not there or one setting.
    """
    return tuned_table(store, grid, over)[0]


def tuned_table(store: Store, grid: str, over: Sequence[str]) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """Return `selected_verdicts` and the `baseline_rows` of their baselines. Raises as it does."""
    chosen, values, baseline, by = _tune(store, grid, over)
    return _with_choices(judge_runs(values, baseline, by), chosen), baseline_rows(values, baseline, by)


def _tune(store: Store, grid: str, over: Sequence[str]) -> tuple[Selected, pl.DataFrame, Baseline, GridMeasure]:
    """The choice, the runs to report without those of a cell that nothing chose, their baseline and the measure."""
    by = measure_of(store, grid, None)
    header = store.grid(grid)
    names = [axis["name"] for axis in header["axes"]]
    for name in over:
        if name not in names:
            raise SpecError(f"a selection is over axes of the grid: {names}; got {name!r}{suggest_name(name, names)}")
    matched = header.get("matched") or []
    if matched and set(names) <= {*over, *matched}:
        raise SpecError(
            f"a selection keeps an axis on which cells differ from their baseline; got {', '.join(over)}, and beside "
            f"it each cell has its baseline's levels: select over {' or '.join(matched)}"
        )
    values = runs(store, grid, by)
    axes = [json.loads(text) for text in values["axes"]]
    columns = [pl.Series(_AXIS + name, [label_of(row.get(name)) for row in axes], pl.String) for name in names]
    wide = values.with_columns(columns)
    within = [_AXIS + name for name in names if name not in over]
    if wide.select("cell", *within).unique().group_by(within).len()["len"].max() == 1:
        raise SpecError(
            f"a selection over {', '.join(over)} has nothing to choose: each setting of the other axes is one cell, as "
            f"where axes are zipped; name the zipped axes too, of {names}"
        )
    axes_over = [_AXIS + name for name in over]
    chosen = select_then_report(wide, over=axes_over, within=within, scale=by.scale, better=by.better)
    if len(chosen.choices) < 2:
        raise SpecError(f"a selection over {', '.join(over)} leaves one cell, of the axes {names}: nothing to compare")
    base = _represent(wide, chosen, within, baselines_of(store, grid, None))
    unselected = [cell for cell, choice in chosen.choices.items() if not choice.among]
    value = pl.when(~pl.col("cell").is_in(unselected)).then(pl.col("value")).alias("value")
    return chosen, chosen.values.with_columns(value), base, by


def _represent(values: pl.DataFrame, chosen: Selected, within: Sequence[str], baseline: Baseline) -> Baseline:
    """The chosen cell of the setting that the baseline belongs to; of each cell's baseline if there are several."""
    settings = {row[0]: row[1:] for row in values.select("cell", *within).iter_rows()}
    cells = {settings[cell]: cell for cell in chosen.choices}
    if isinstance(baseline, str):
        return cells[settings[baseline]]
    return {cell: cells[settings[baseline[cell]]] for cell in chosen.choices if cell in baseline}


def _of_selecting(choice: TunedChoice, where: str) -> str:
    planned = f"{choice.runs} runs that choose{where}"
    unusable = [f"{choice.unusable} of {planned} ended without a finite value"] if choice.unusable else []
    if not choice.among:
        left = [f"{choice.outstanding} of them outstanding"] if choice.outstanding else []
        return "; ".join([f"nothing was chosen: none of the {planned} has a value", *left, *unusable])
    ended = choice.runs - choice.outstanding
    left = [f"preliminary: {ended} of {planned}"] if choice.outstanding else []
    return "; ".join([*left, *unusable])


def _with_choices(judged: pl.DataFrame, chosen: Selected) -> pl.DataFrame:
    picks = [chosen.choices[cell] for cell in judged["cell"]]
    words, reasons = [], []
    for pick, cell, word, reason in zip(picks, judged["baseline"], judged["verdict"], judged["reason"], strict=True):
        base = chosen.choices[cell]
        selected = pick.among and base.among
        words.append(word if selected else "no verdict")
        doubts = [_of_selecting(pick, ""), _of_selecting(base, " in the baseline"), reason if selected else ""]
        reasons.append("; ".join(filter(None, [*doubts, "levels chosen for each seed by the other seeds"])))
    levels = [
        ", ".join(f"{name.removeprefix(_AXIS)}={level}" for name, level in pick.levels.items()) if pick.among else None
        for pick in picks
    ]
    return judged.with_columns(
        pl.Series("verdict", words, pl.String),
        pl.Series("reason", reasons, pl.String),
        pl.Series("selected", levels, pl.String),
        pl.Series("among", [pick.among for pick in picks], pl.Int64),
        pl.Series("otherwise", [pick.otherwise for pick in picks], pl.Int64),
    )
