"""The table of cells as LaTeX and as Markdown, with a caption that says what every sign means."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from store.export import latex, markdown
from store.export.cells import CellTable, ExportColumn, ExportEntry
from store.export.rounding import round_to_spread

_MARKS: Final = {"failed": "×", "unfinished": "…", "unmeasured": "–"}
_MEANT: Final = {
    "failed": "every run of the cell that ended failed, or ended with what is no number",
    "unfinished": "not finished",
    "unmeasured": "not planned: finished runs do not measure it",
}
_ARROWS: Final = {"lower": "↓", "higher": "↑"}


class _Style(NamedTuple):
    """How a kind of page writes the parts of an entry."""

    escape: Callable[[str], str]
    bold: str
    plus_minus: str
    power: str
    few: str


_LATEX: Final = _Style(latex.escape, r"\textbf{{{}}}", r" $\pm$ ", r"$\,\cdot\,10^{{{}}}$", "$^{{{}/{}}}$")
_MARKDOWN: Final = _Style(markdown.escape, "**{}**", " ± ", r" · 10\^{}", " ({}/{})")


def latex_cells(table: CellTable, said: str = "") -> str:
    """One row per cell, one column per measurement; needs booktabs only. `said` is in place of the usual caption."""
    return latex.table(*_texts(table, _LATEX), latex.escape(said or caption(table)))


def markdown_cells(table: CellTable) -> str:
    """One row per cell, one column per measurement, and the caption below."""
    return f"{markdown.table(*_texts(table, _MARKDOWN))}\n{markdown.escape(caption(table))}\n"


def _texts(table: CellTable, style: _Style) -> tuple[list[str], list[list[str]], list[bool]]:
    """Headings, rows, and whether a column is to the right."""
    columns = [[_entry(entry, style) for entry in column.entries] for column in table.columns]
    rows = [[style.escape(label), *row] for label, *row in zip(table.labels, *columns, strict=True)]
    return ["cell", *map(style.escape, headings(table))], rows, [False, *[True] * len(columns)]


def _entry(entry: ExportEntry, style: _Style) -> str:
    if entry.mean is None:
        return style.escape(_MARKS[entry.missing or "unmeasured"])
    number = round_to_spread(entry.mean, entry.spread)
    value = style.escape(number.value.replace("-", "−"))
    text = style.bold.format(value) if entry.best else value
    if number.spread is not None:
        text += f"{style.plus_minus}{number.spread}"
    if number.exponent:  # the power is of both
        power = style.power.format(number.exponent)
        text = f"{text}{power}" if number.spread is None else f"({text}){power}"
    return text + (style.few.format(entry.seeds, entry.planned) if entry.seeds < entry.planned else "")


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
