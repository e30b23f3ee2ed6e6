"""Tables of cells: their columns and order, and the verdict table as text."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ablate.grid.errors import NotFoundError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.runners.cli.cell_selection import label_cells
from ablate.runners.output import (
    LONG_LABEL,
    average_of,
    describe_measure,
    format_count,
    write,
    write_prose,
    write_table,
)

if TYPE_CHECKING:
    import polars as pl

    from ablate.store.store import Store

ONE_COMPARISON = "intervals are of one comparison each"
"""Says why an interval may leave zero out beside a verdict that is undecided."""
_MOST_REMARKS = 4
_MOST_CONTROLS = 6
_LEAST_PERCENT = 1e-6
"""Smaller changes are rounding."""
_MOST_WHOLE = 1e9
"""From here on, whole numbers have four digits and a power, too."""


_HEADED = {
    "n": "pairs",
    **dict.fromkeys(("mean", "geometric mean"), "value"),
    **dict.fromkeys(("%", "difference %", "difference % of odds"), "percent"),
    "p (Holm)": "p_holm",
}
"""Columns of rows of verdicts by the heading of their table."""


def select_columns(frame: "pl.DataFrame", names: str | None) -> "pl.DataFrame":
    """Select the columns that --columns names, or headings; all without it. Raise NotFoundError for an unknown one."""
    if names is None:
        return frame
    columns: dict[str, None] = {}
    for name in map(str.strip, names.split(",")):
        chosen = ("low", "high") if name.endswith("% interval") else (_HEADED.get(name, name),)
        chosen = (name,) if name in frame.columns else chosen
        if not set(chosen) <= set(frame.columns):
            raise NotFoundError(
                f"--columns {name!r} is no column; there are "
                f"{', '.join(frame.columns)}{suggest_name(name, frame.columns)}"
            )
        columns |= dict.fromkeys(chosen)
    return frame.select([*columns])


def sort_cells(frame: "pl.DataFrame", sort: str, better: str) -> "pl.DataFrame":
    """Sort rows by effect, by p, or not at all (plan); rows without a number come last."""
    if sort == "plan":
        return frame
    by, descending = ("difference", better == "higher") if sort == "effect" else ("p_holm", False)
    return frame.sort(by, descending=descending, nulls_last=True, maintain_order=True)


def write_title(
    store: "Store",
    header: Mapping[str, Any],
    verdicts: "pl.DataFrame",
    shown: "pl.DataFrame",
    baselines: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Write what the verdicts `verdicts` of a grid compare; return the baselines of the rows `shown`.

    `header` is that of the grid, with the measure of the verdicts.
    """
    from ablate.store.analysis.verdicts import matched_axes

    bases = _keep_baselines(store, header, verdicts, shown, baselines)
    for line in _heading(header, verdicts, bases, matched_axes(store, header["grid"])):
        write_prose(line)
    return bases


def format_page(
    store: "Store",
    header: Mapping[str, Any],
    verdicts: "pl.DataFrame",
    shown: "pl.DataFrame",
    baselines: Sequence[Mapping[str, Any]],
) -> tuple[list[str], list[list[str]], str]:
    """Headings, rows and caption of the verdict table on a page; arguments as of `write_title`."""
    bases, measure = _keep_baselines(store, header, verdicts, shown, baselines), header["measure"]
    from ablate.store.analysis.headline import LEGEND, count_headlines
    from ablate.store.analysis.verdicts import matched_axes

    compared = [*bases, *shown.rows(named=True)]
    headings, cells = _with_numbers(compared, measure)
    tuned, chosen = chosen_levels(store, header, compared)
    rows = [
        [row["label"], *("–" if cell is None else str(cell) for cell in (*levels, *numbers))]
        for row, levels, numbers in zip(compared, chosen, cells, strict=True)
    ]
    legend = [LEGEND, count_headlines(shown)] if "checks" in headings else []
    told = [*_heading(header, verdicts, bases, matched_axes(store, header["grid"])), *filter(None, legend)]
    return ["cell", *tuned, *headings], rows, f"{'; '.join(told)}."


def _with_numbers(
    rows: Sequence[Mapping[str, Any]], measure: Mapping[str, Any]
) -> tuple[list[str], Sequence[tuple[object, ...]]]:
    """Headings and cells of rows of verdicts and baselines, without their names; with checks if the verdicts have."""
    from ablate.store.analysis.headline import mark_checks

    headings = ["n", average_of(measure), *difference_headings(measure)]
    cells = [_cells(row, measure["scale"]) for row in rows]
    if any("headline" in row for row in rows):
        headings.insert(-1, "checks")
        marks = [mark_checks(row) if "headline" in row else None for row in rows]
        cells = [(*cell[:-1], mark, cell[-1]) for cell, mark in zip(cells, marks, strict=True)]
    return headings, cells


def _keep_baselines(
    store: "Store",
    header: Mapping[str, Any],
    verdicts: "pl.DataFrame",
    shown: "pl.DataFrame",
    baselines: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    every, order = shown.height == verdicts.height, list(label_cells(store, header["grid"]))
    kept = [
        {**row, "pairs": row["runs"], "verdict": "baseline"}
        for row in baselines
        if every or row["cell"] in shown["baseline"]
    ]
    return sorted(kept, key=lambda row: order.index(row["cell"]))


def _write_controls(store: "Store", header: "Mapping[str, Any]") -> None:
    from ablate.store.analysis.tuned_verdicts import nuisance_axes
    from ablate.store.files.plans import control_cells

    if controls := control_cells(header):
        levels = "|".join(re.escape(name) for name in nuisance_axes(header)) or "$."
        labels = dict.fromkeys(
            re.sub(rf" · ({levels})=[^ ]*", "", label)
            for cell, label in label_cells(store, header["grid"]).items()
            if cell in controls
        )
        named = some([*labels], _MOST_CONTROLS)
        write_prose(f"controls, against which --why compares (each variant has its own of these): {named}")


def write_verdicts(
    store: "Store",
    header: Mapping[str, Any],
    shown: "pl.DataFrame",
    bases: Sequence[Mapping[str, Any]],
    chosen: "pl.DataFrame | None" = None,
) -> None:
    """Write baselines and rows of verdicts of a grid, or `chosen` columns of these rows; see `write_title`."""
    from ablate.store.analysis.verdicts import matched_axes

    _write_controls(store, header)
    if chosen is not None:
        cells = [*([base.get(name) for name in chosen.columns] for base in bases), *chosen.rows()]
        lines = [[*map(_chosen_cell, chosen.columns, row)] for row in cells]
        write_table(chosen.columns, lines, labels=int(chosen.columns[0] == "label"))
        return
    rows = [*bases, *shown.rows(named=True)]
    columns, names = name_cells(store, header, rows)
    headings, numbers = _with_numbers(rows, header["measure"])
    n, named = len(columns), [(*name, *cell) for name, cell in zip(names, numbers, strict=True)]
    write_table([*columns, *headings], named, spare=(n + 1, n + 4, n, n + 5, n + 3), labels=n)
    write_remarks(_remarks(rows[len(bases) :]))
    if shown.height and sum(len(axis["labels"]) > 1 and not axis.get("tune") for axis in header["axes"]) > 1:
        matched = ", ".join(matched_axes(store, header["grid"]))
        more = f", and compares levels of {matched}, which this table does not" if matched else ""
        write_prose(f"ablate effects averages each component over the other axes{more}")


def _heading(
    header: Mapping[str, Any], verdicts: "pl.DataFrame", bases: Sequence[Mapping[str, Any]], matched: Sequence[str]
) -> Iterator[str]:
    from ablate.store.analysis.tuned_verdicts import nuisance_axes

    measure = header["measure"]
    if header.get("of"):
        yield f"grid {header['of']} with {' '.join(header['overrides'])}"
    averaged = ", averaged as log odds" if measure["scale"] == "logit" else ""
    yield f"{describe_measure(header)}, {measure['better']} is better{averaged}"
    against = f"against {bases[0]['label']}, " if bases else ""
    if matched:
        against = f"against the baseline of the same {', '.join(matched)}, "
    family = format_count(verdicts["family"][0], "comparison") if verdicts.height else "no comparison"
    yield f"{against}paired by seed{equal_words(measure)}"
    yield f"p by Holm over {family}, alpha {measure['alpha']:g}; {ONE_COMPARISON}"
    if header.get("variance") == "shared":
        yield "interval and p rest on a variance that comparisons share, never below a comparison's own"
    if earlier := header.get("earlier_variances"):
        yield f"the variance was {', then '.join(earlier)} before: chosen with results, its error rate is no promise"
    if "selected" in verdicts.columns and verdicts.height:
        tuned = ", ".join(nuisance_axes(header))
        yield (
            f"each setting at its best {tuned}, chosen for each seed by the other seeds; the {tuned} given is that of "
            "all seeds, whose own mean may differ; intervals contain the error of choosing"
        )


def equal_words(measure: Mapping[str, Any]) -> str:
    """`, less than 5 % counts as equal`; nothing without a margin."""
    margin = f"{100 * measure['rope']:g} %" if measure["scale"] != "linear" else f"{measure['rope']:g}"
    return f", less than {margin} counts as equal" if measure["rope"] else ""


def name_cells(
    store: "Store", header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[str | None]]]:
    """Return headings and names of the cells of `rows`: their label, or a column per axis if labels are long.

    Tuned settings have a column of each nuisance axis: the level that all seeds choose.
    """
    from ablate.store.database.queries import levels_of_cells

    labels = [str(row["label"]) for row in rows]
    if max(map(len, labels), default=0) <= LONG_LABEL:
        tuned, chosen = chosen_levels(store, header, rows)
        return ["cell", *tuned], [[label, *levels] for label, levels in zip(labels, chosen, strict=True)]
    names, levels = levels_of_cells(store.sql, header)
    return names, [[*levels[row["cell"]]] for row in rows]


def chosen_levels(
    store: "Store", header: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[list[str | None]]]:
    """Return the nuisance axes of a grid, and the levels that all seeds choose for each row; None if nothing chose."""
    from ablate.store.analysis.tuned_verdicts import nuisance_axes
    from ablate.store.database.queries import levels_on

    tuned = nuisance_axes(header)
    levels = levels_on(store.sql, header, tuned) if tuned else {}
    return tuned, [
        [*levels[row["cell"]]] if tuned and row.get("selected", "") is not None else [None] * len(tuned) for row in rows
    ]


def _cells(row: Mapping[str, Any], scale: str) -> tuple[object, ...]:
    if row["verdict"] == "baseline":
        return _of(row["runs"], row["planned"]), format_number(row["value"]), None, None, None, "baseline"
    return _count(row), format_number(row["value"]), *format_difference(row, row["difference"], scale)


def difference_headings(measure: Mapping[str, Any]) -> list[str]:
    """Head the columns of `format_difference`."""
    level = f"{100 * (1 - measure['alpha']):g} % interval"
    difference = {"log": "difference %", "logit": "difference % of odds"}.get(measure["scale"], "difference")
    return [difference, level, "p (Holm)", "verdict"]


def format_difference(row: Mapping[str, Any], value: float | None, scale: str) -> tuple[str | None, ...]:
    """Format a difference `value`, its interval, its p and its verdict."""
    interval = f"{_change(row['low'], scale)} to {_change(row['high'], scale)}" if row["low"] is not None else None
    return _change(value, scale), interval, format_p(row["p_holm"]), row["verdict"]


def _chosen_cell(column: str, value: Any) -> object:
    return format_p(value) if column in ("p", "p_holm", "sign_flip_p") else value


def _count(row: Mapping[str, Any]) -> object:
    if row["method"] == "Welch":
        return f"{row['runs']} against {row['baseline_runs']}"
    return _of(row["pairs"], row["planned"])


def _of(pairs: int, planned: int) -> object:
    return pairs if pairs >= planned else f"{pairs} of {planned}"


def _change(value: float | None, scale: str) -> str | None:
    """A difference with its sign; on the log and logit scales in per cent."""
    if value is None:
        return None
    if scale == "linear":
        return f"{value:+.3g}"
    return format_percent(100 * math.expm1(min(value, 700.0)))


def format_percent(value: float | None) -> str | None:
    """`-12.3`, `+1,234`, or `+0.003`."""
    if value is not None and _LEAST_PERCENT < abs(value) < 0.05:
        return f"{Decimal(f'{value:.1g}'):+f}"
    return None if value is None else f"{value:+,.0f}" if abs(value) >= 100 else f"{value:+.1f}"


def format_number(value: float | None) -> str | None:
    """Four significant digits, trailing zeros kept so that columns align: `1.230`; whole numbers as `28,704`."""
    if value is None:
        return None
    if 1e4 <= abs(value) < _MOST_WHOLE and math.isclose(value, round(value), rel_tol=1e-12):
        return f"{round(value):,}"
    return f"{value:#.4g}".removesuffix(".") if 1e-4 <= abs(value) < 1e4 else f"{value:.3e}" if value else "0"


def format_p(value: float | None) -> str | None:
    """`0.031`, or `<0.001`."""
    return None if value is None else "<0.001" if value < 0.001 else f"{value:.2g}"


def _remarks(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Why cells have no verdict, and cautions."""
    for row in rows:
        _, caution, after = str(row["reason"]).partition("caution: ")
        if row["verdict"] == "no verdict":
            yield f"no verdict: {row['reason']}"
        elif caution:
            yield f"{caution}{after}"


def write_remarks(remarks: Iterable[str]) -> None:
    """Write each remark once, with the number of cells that have it; the most frequent first."""
    counted = Counter(remarks)
    for remark, cells in counted.most_common(_MOST_REMARKS):
        write_prose(f"{format_count(cells, 'cell')}: {remark}")
    if len(counted) > _MOST_REMARKS:
        write(f"and {format_count(len(counted) - _MOST_REMARKS, 'more remark')}; --json has all")
