"""Whether the variants of a grid are more than their simplest explanations, read from its store."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from ablate.store.analysis.learned_runs import never_learned
from ablate.store.analysis.once import once
from ablate.store.analysis.tuned_verdicts import ComparedRuns
from ablate.store.analysis.verdicts import GridMeasure, baselines_of, compared_runs, every_run, measure_of
from ablate.store.statistics import beyond_controls
from ablate.store.statistics.selection import select_then_report
from ablate.store.store import Store


@once
def control_tests(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """One row per variant that has controls: the columns of `beyond_controls`, and `never_learned`, labels of controls.

    Where verdicts compare settings at their best level of nuisance axes, so are controls. A control none of whose runs
    learned the task explains nothing: if no other was tested, `beyond` is "unknown". Raises as `verdicts` does.
    """
    by, runs, own = _read_controls(store, grid, baseline, measure)
    values, base, missing = runs.values, runs.baseline, own.missing
    tests = beyond_controls(values, baseline=base, controls=own.of, missing=missing, scale=by.scale, alpha=by.alpha)
    return _mark_never_learned(tests, own.of, never_learned(store, grid, by), dict(values["cell", "label"].rows()))


@once
def control_rows(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """One row per variant and control, the least sure first: the columns of `control_tests` for this control alone.

    `p` is 1 if the variant does not exceed it, and null without a test; `never_learned` names it if it never learned.
    """
    by, runs, own = _read_controls(store, grid, baseline, measure)
    values, never = runs.values, never_learned(store, grid, by)
    labels, rows = dict(values["cell", "label"].rows()), []
    for at in range(max(map(len, own.of.values()), default=0) or 1):
        one = {cell: each[at : at + 1] for cell, each in own.of.items()}
        tests = beyond_controls(values, baseline=runs.baseline, controls=one, scale=by.scale, alpha=by.alpha)
        rows.append(_mark_never_learned(tests, one, never, labels))
    label = pl.coalesce("control_label", pl.col("untested").list.first())
    return pl.concat(rows).with_columns(control_label=label).sort("p", descending=True, maintain_order=True)


class _Controls(NamedTuple):
    of: Mapping[str, Sequence[str]]  # cells of the controls of each variant
    missing: Mapping[str, Sequence[str]]  # labels of those that the grid does not have


def _read_controls(
    store: Store, grid: str, baseline: str | None, measure: Mapping[str, Any] | None
) -> tuple[GridMeasure, ComparedRuns, _Controls]:
    """Return the runs of variants, baselines and controls, each setting at its best level, and who controls whom."""
    by = measure_of(store, grid, measure)
    values, planned = every_run(store, grid, by), store.grid(grid).get("controls") or {"of": {}, "missing": {}}
    there = set(values["cell"])
    controls = {cell: [each for each in own if each in there] for cell, own in planned["of"].items()}
    missing = {cell: list(labels) for cell, labels in planned["missing"].items()}
    for cell, own in planned["of"].items():
        missing.setdefault(cell, []).extend(each for each in own if each not in there)  # its lines are lost
    base, compared = baselines_of(store, grid, baseline), compared_runs(store, grid, by, baseline=baseline)
    if compared.choices:
        of = store.grid(grid).get("baselines") or {}
        values, controls = _tune_controls(values, compared, controls, of, by)
        base, missing = compared.baseline, _by_setting(compared, missing)
    return by, ComparedRuns(values, base), _Controls(controls, missing)


def _mark_never_learned(
    tests: pl.DataFrame, controls: Mapping[str, Sequence[str]], never: set[str], labels: Mapping[str, str]
) -> pl.DataFrame:
    idle = [[labels[each] for each in controls.get(cell, ()) if each in never] for cell in tests["cell"]]
    marked = tests.with_columns(pl.Series("never_learned", idle, pl.List(pl.String)))
    only = (pl.col("beyond") == "yes") & (pl.col("never_learned").list.len() == pl.col("controls"))
    return marked.with_columns(beyond=pl.when(only).then(pl.lit("unknown")).otherwise("beyond"))


def _by_setting(compared: ComparedRuns, of: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """List what cells have, each once, for the cell that stands for their setting."""
    settings: dict[str, dict[str, None]] = {}
    for cell, own in of.items():
        if cell in compared.stands_for:
            settings.setdefault(compared.stands_for[cell], {}).update(dict.fromkeys(own))
    return {cell: [*own] for cell, own in settings.items()}


def _tune_controls(
    every: pl.DataFrame,
    compared: ComparedRuns,
    controls: Mapping[str, Sequence[str]],
    baselines: Mapping[str, str],
    by: GridMeasure,
) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """The compared runs with those of controls at their best level, and the controls of each setting.

    Controls are one at several levels if they are called alike behind the labels of baselines of one setting. The label
    of a tuned control is that of this setting and its change.
    """
    labels, settings = (dict(each.select("cell", "label").iter_rows()) for each in (every, compared.values))
    groups: dict[str, str] = {}
    for variant, own in controls.items():
        base = baselines.get(variant, "")
        for cell in own:
            if cell not in compared.stands_for:  # otherwise it is a variant, too
                change = labels[cell].removeprefix(labels.get(base, ""))
                groups.setdefault(cell, settings.get(compared.stands_for.get(base, base), base) + change)
    group = pl.col("cell").replace_strict(groups, default=None, return_dtype=pl.String).alias("group_")
    runs = every.with_columns(group).drop_nulls("group_")
    chosen = select_then_report(runs, over=(), within=["group_"], scale=by.scale, better=by.better)
    best = {groups[cell]: cell for cell in chosen.choices}
    stands_for = {**compared.stands_for, **{cell: best[name] for cell, name in groups.items()}}
    tuned = {variant: [stands_for[cell] for cell in own] for variant, own in controls.items()}
    of_controls = chosen.values.drop("label").rename({"group_": "label"})
    values = pl.concat([compared.values, of_controls], how="diagonal")
    return values, _by_setting(compared, tuned)


def control_text(control: Mapping[str, Any], *, better: bool) -> str:
    """Say what the tests against controls show of a cell that is `better` than its baseline, or worse."""
    word = "better" if better else "worse"
    nearest = "no control was tested"
    if control["control_label"] is not None:
        numbers = ", ".join(_with_sign(control[name]) for name in ("difference", "low"))
        nearest = f"{control['control_label']} ({numbers} to {_with_sign(control['high'])})"
    if control["beyond"] == "no":
        return f"not shown to be {word} than {nearest}"
    never = [*control["never_learned"]]
    if control["beyond"] == "unknown" and never and not control["untested"]:
        return f"no control learned the task, so none explains it: {', '.join(never)}"
    if control["beyond"] == "unknown":
        tested = "" if control["control_label"] is None else f"; {word} than {nearest}"
        return f"not tested against {', '.join(control['untested'])}{tested}"
    told = f"{word} than each of {control['controls']} controls, least surely than {nearest}"
    idle = f"; {', '.join(never)} never learned the task and explain{'s' * (len(never) == 1)} nothing" if never else ""
    return f"{told}; p after Holm {control['p_holm']:.3g}{idle}"


def beside_control(row: Mapping[str, Any], by: GridMeasure) -> str:
    """Say whether the variant of a row of `control_rows` is shown to differ from the control as from its baseline.

    It is "better" or "worse" than the control, "by less than the band" of `by` if the whole interval lies within it.
    Else it is "not beyond it" or "not tested", or the control never learned the task.
    """
    if row["never_learned"]:
        return "never learned the task: explains nothing"
    if row["p"] is None or row["p"] > by.alpha:
        return "not tested" if row["p"] is None else "not beyond it"
    word = "better" if (row["difference"] > 0) == (by.better == "higher") else "worse"
    return f"{word}, by less than the band" if max(-row["low"], row["high"]) < by.rope else word


def control_line(row: Mapping[str, Any], by: GridMeasure) -> str:
    """Say of a row of `control_rows` by how much the variant differs from the control, and whether it is beyond it."""
    difference, low, high = (_with_sign(row[name]) for name in ("difference", "low", "high"))
    return f"control {row['control_label']}: difference {difference}, {low} to {high}; {beside_control(row, by)}"


def _with_sign(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3g}"
