"""Whether the variants of a grid are more than their simplest explanations, read from its store."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from ablate.store.analysis.verdicts import baselines_of, every_run, measure_of
from ablate.store.statistics import beyond_controls
from ablate.store.store import Store


def control_tests(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """One row per variant that has controls: the columns of `beyond_controls`. Raises as `verdicts` does."""
    by = measure_of(store, grid, measure)
    values, planned = every_run(store, grid, by), store.grid(grid).get("controls") or {"of": {}, "missing": {}}
    there = set(values["cell"])
    controls = {cell: [each for each in own if each in there] for cell, own in planned["of"].items()}
    missing = {cell: list(labels) for cell, labels in planned["missing"].items()}
    for cell, own in planned["of"].items():
        missing.setdefault(cell, []).extend(each for each in own if each not in there)  # its lines are lost
    base = baselines_of(store, grid, baseline)
    return beyond_controls(values, baseline=base, controls=controls, missing=missing, scale=by.scale, alpha=by.alpha)


def control_text(control: Mapping[str, Any] | None, *, better: bool) -> str:
    """Say what the tests against controls show of a cell that is `better` than its baseline, or worse."""
    if control is None:
        return "none known, or none planned: `ablate plan` names those that are missing"
    word = "better" if better else "worse"
    nearest = "no control was tested"
    if control["control_label"] is not None:
        numbers = ", ".join(_with_sign(control[name]) for name in ("difference", "low"))
        nearest = f"{control['control_label']} ({numbers} to {_with_sign(control['high'])})"
    if control["beyond"] == "no":
        return f"not {word} than {nearest}"
    if control["beyond"] == "unknown":
        tested = "" if control["control_label"] is None else f"; {word} than {nearest}"
        return f"unknown without {', '.join(control['untested'])}{tested}"
    return f"{word} than all {control['controls']}, least so than {nearest}; p after Holm {control['p_holm']:.3g}"


def _with_sign(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3g}"
