"""The table of cells as LaTeX and as Markdown, with a caption that says what every sign means."""

from collections.abc import Sequence
from typing import Final

from store.export import latex, markdown
from store.export.cells import CellTable, ExportColumn, ExportEntry
from store.export.rounding import Rounded, round_to_spread

_MARKS: Final = {"failed": "×", "unfinished": "…", "unmeasured": "–"}
_MEANT: Final = {
    "failed": "every run of the cell that ended failed, or ended with what is no number",
    "unfinished": "not finished",
    "unmeasured": "not planned: finished runs do not measure it",
}
_ARROWS: Final = {"lower": "↓", "higher": "↑"}


def latex_cells(table: CellTable, said: str = "") -> str:
    """One row per cell, one column per measurement; needs booktabs only. `said` is in place of the usual caption."""
    heads = ["cell", *(rf"\multicolumn{{2}}{{c}}{{{latex.escape(each)}}}" for each in headings(table))]
    columns = [_latex_column(column) for column in table.columns]
    body = [[latex.escape(label), *row] for label, *row in zip(table.labels, *columns, strict=True)]
    return latex.typeset(
        "l" + r"r@{$\,\pm\,$}l" * len(table.columns),
        [" & ".join(heads)],
        [" & ".join(row) for row in body],
        latex.escape(said or caption(table)),
    )


def markdown_cells(table: CellTable) -> str:
    """One row per cell, one column per measurement, and the caption below."""
    columns = [[_markdown(entry) for entry in column.entries] for column in table.columns]
    rows = [[markdown.escape(label), *row] for label, *row in zip(table.labels, *columns, strict=True)]
    heads = ["cell", *map(markdown.escape, headings(table))]
    return f"{markdown.align(heads, rows, [False, *[True] * len(columns)])}\n{markdown.escape(caption(table))}\n"


def headings(table: CellTable) -> list[str]:
    """Name, the coordinates that tell the columns apart, and which way is good."""
    shared = _shared_part(table.columns)
    found = []
    for column in table.columns:
        apart = [f"{axis}={value:g}" for axis, value in column.point.items() if (axis, value) not in shared]
        found.append(" ".join([column.name, *apart, *([_ARROWS[column.better]] if column.better else [])]))
    return found


def caption(table: CellTable) -> str:
    """Describe the table in sentences."""
    level = f"{100 * (1 - table.alpha):g} %"
    what = "the standard deviation" if table.spread == "sd" else f"half the {level} t interval of the mean"
    entries = [entry for column in table.columns for entry in column.entries]
    counts = sorted({entry.planned for entry in entries})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    seeds += " planned seed" if counts == [1] else " planned seeds"
    where = ", ".join(f"{axis}={value:g}" for axis, value in sorted(_shared_part(table.columns)))
    said = [
        f"{table.grid}{f' at {where}' if where else ''}: arithmetic mean over {seeds}; ± is {what}, and "
        "values without it are of one seed."
    ]
    if any(column.better for column in table.columns):
        said.append(_bold_words(table, level))
    if any(0 < entry.seeds < entry.planned for entry in entries):
        said.append("a/b: a of b planned seeds have a value; with a failed one the cell is not judged.")
    marks = [mark for mark in _MARKS if any(entry.missing == mark for entry in entries)]
    said += [f"{_MARKS[mark]}: {_MEANT[mark]}." for mark in marks]
    return " ".join(said)


def _bold_words(table: CellTable, level: str) -> str:
    if not any(entry.best for column in table.columns for entry in column.entries):
        return "Arrows say which way is better. Nothing is bold: no cell is shown to be worse than the best."
    return (
        "Arrows say which way is better. Bold: not shown to be worse than the best of the column, which itself may be "
        f"luck (paired t tests by seed, Holm over all pairs of its cells, {level} together); none is where nothing is "
        "told apart."
    )


def _shared_part(columns: Sequence[ExportColumn]) -> set[tuple[str, float]]:
    """Coordinates that all columns have."""
    return set.intersection(*(set(column.point.items()) for column in columns)) if columns else set()


def _latex_column(column: ExportColumn) -> list[str]:
    """Aligned at the point: what has fewer digits after it is filled up with room for the rest."""
    numbers = [None if entry.mean is None else round_to_spread(entry.mean, entry.spread) for entry in column.entries]
    places = max((number.after_point for number in numbers if number), default=0)
    return [_latex(entry, number, places) for entry, number in zip(column.entries, numbers, strict=True)]


def _latex(entry: ExportEntry, number: Rounded | None, places: int) -> str:
    if number is None:
        return rf"\multicolumn{{2}}{{c}}{{{latex.escape(_MARKS[entry.missing or 'unmeasured'])}}}"
    digits = number.value.replace("-", "$-$")
    value = rf"\textbf{{{digits}}}" if entry.best else digits
    lacking = places - number.after_point
    room = rf"\phantom{{{'.' if not number.after_point else ''}{'0' * lacking}}}" if lacking else ""
    power = rf"$\,\cdot\,10^{{{number.exponent}}}$" if number.exponent else ""
    few = f"$^{{{entry.seeds}/{entry.planned}}}$" if entry.seeds < entry.planned else ""
    if number.spread is None:
        return rf"\multicolumn{{2}}{{c}}{{{value}{power}{few}}}"
    begin, end = ("(", ")") if power else ("", "")  # the power is of both
    return f"{begin}{value}{room} & {number.spread}{end}{power}{few}"


def _markdown(entry: ExportEntry) -> str:
    if entry.mean is None:
        return _MARKS[entry.missing or "unmeasured"]
    number = round_to_spread(entry.mean, entry.spread)
    value = f"**{number.value}**" if entry.best else number.value
    both = value if number.spread is None else f"{value} ± {number.spread}"
    power = f" · 10^{number.exponent}".replace("^", r"\^") if number.exponent else ""
    whole = f"({both}){power}" if power and number.spread is not None else f"{both}{power}"
    return f"{whole} ({entry.seeds}/{entry.planned})" if entry.seeds < entry.planned else whole
