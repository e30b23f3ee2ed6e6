"""Controls and longer training beside the cells of a grid, as a table."""

import re
from collections.abc import Mapping

import polars as pl
from markdown import table
from result_words import say_measure, say_number

from ablate.papers.results.grid_results import GridResult
from ablate.store.analysis.learned_runs import has_learned
from ablate.store.analysis.verdicts import GridMeasure
from ablate.store.files.plans import added_cells, role_of


def write_controls(result: GridResult, measure: GridMeasure) -> str:
    """Write means over seeds of controls and of longer training, the best first, and how many learned if known.

    A tuned grid has a column per level.
    """
    values = result.every_run(measure).drop_nulls("value")
    means = values.group_by("cell", maintain_order=True).agg(pl.col("label").first(), pl.len(), pl.col("value").mean())
    added = means.filter(pl.col("cell").is_in([*added_cells(result.header)]))
    learned = _count_learned(result)
    tuned = [axis["name"] for axis in result.header["axes"] if axis.get("tune")]
    if tuned:
        return f"{say_measure(result, measure)}\n\n{_tabulate_levels(result, added, measure, tuned[0], learned)}"
    rows = [
        (label, role_of(result.header, cell), str(n), *([learned[cell]] if learned else []), say_number(mean))
        for cell, label, n, mean in added.sort(
            "value", descending=measure.better == "higher", maintain_order=True
        ).rows()
    ]
    heads = ("cell", "it is a", "runs", *(["learned the task"] if learned else []), "mean")
    return f"{say_measure(result, measure)}\n\n{table(heads, rows)}"


def _tabulate_levels(
    result: GridResult, added: pl.DataFrame, measure: GridMeasure, axis: str, learned: Mapping[str, str]
) -> str:
    """Write the mean of every added cell, a row per setting and a column per level of a tuned axis."""
    found = re.compile(rf" · ({axis}=[^\s,]+)")
    (labels,) = (each["labels"] for each in result.header["axes"] if each["name"] == axis)
    levels = [f"{axis}={label}" for label in labels]
    settings: dict[tuple[str, str], dict[str, str]] = {}
    for cell, label, n, mean in added.sort("value", descending=measure.better == "higher", maintain_order=True).rows():
        (level,) = found.findall(label)
        row = settings.setdefault((found.sub("", label), role_of(result.header, cell)), {})
        row[level] = f"{say_number(mean)} ({f'{learned[cell]} of ' if learned else ''}{n})"
    rows = [(*setting, *(own.get(level, "") for level in levels)) for setting, own in settings.items()]
    said = f"Means, in brackets the {'runs that learned, of all' if learned else 'number of runs'}."
    return f"{said}\n\n{table(('cell', 'it is a', *levels), rows)}"


def _count_learned(result: GridResult) -> dict[str, str]:
    """Return by cell how many runs reached the criterion of the grid; empty without one."""
    if (criterion := result.header.get("learned")) is None:
        return {}
    values = result.every_run(GridMeasure(criterion["name"], criterion["point"])).drop_nulls("value")
    return dict(values.group_by("cell").agg(has_learned(criterion).sum().cast(pl.String)).rows())
