"""How commands print: tables for people, JSON and CSV for programs; results on stdout, everything else on stderr."""

import json
import os
import re
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from textwrap import wrap
from threading import Timer
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ablate.grid.durations import format_duration
from ablate.grid.names import shorten
from ablate.runners.result_stream import results
from ablate.store.export.plain import escape_control, plain

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

SCHEMA = 1
LONG_LABEL = 36
"""If a label of a cell has more characters, each axis has a column of its own."""
LINE_EVERY_S = 10.0
"""Between lines about progress where no display can redraw itself."""
SLOW_AFTER_S = 2.0
"""Seconds after which a part of a command is named."""
_WORD = 12
"""Longer words are broken before columns are left out."""
_LONG_WORD = 40
"""The same where columns move into a block below."""
_READABLE = 20
_READABLE_LEVEL = 12
"""Columns are left out before a label becomes shorter than this, or labels in several columns."""
_SHORTEST = 8
"""Least characters of a shortened label."""
_SHORTEST_TEXT = 6
"""The same where each row is a line."""
_MOST_ROWS = 50
"""Rows of a frame that fit a terminal."""
_NUMBER = re.compile(r"(?=.*[-+.<]|\d{1,3}(,\d{3})+$)<?[-+]?\d[\d.,]*(e[-+]\d+)?( to [-+]?\d[\d.,]*)?( %| times)?$")
"""A formatted number such as 28,704, or an interval."""
_EXACT = 1e15
"""Below this a float holds every whole number, so its digits mean something."""


def say(text: str) -> None:
    """A line for the person at the terminal, on stderr."""
    sys.stderr.write(f"{escape_control(text)}\n")


def tell(*texts: str) -> None:
    """A line of `ablate` itself for each of `texts`, on stderr."""
    for text in texts:
        say(f"ablate: {text}")


def write(text: str) -> None:
    """A line of the result, on stdout."""
    results().write(f"{escape_control(text)}\n")


@contextmanager
def slow_notice(text: str) -> Iterator[None]:
    """Write `text` on stderr once if the block takes long, so that nobody waits in silence."""
    timer = Timer(SLOW_AFTER_S, say, [f"{text} ..."])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count: `1 trial`, `2 trials`, `2 classes`."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def age(since: float) -> str:
    """How long ago `since` (seconds since the epoch) was, in words; a time to come is `0 s`."""
    return format_duration(max(0.0, time.time() - since))


def write_json(command: str, data: object, warnings: Sequence[str] = ()) -> None:
    """`{"schema": "ablate/<command>/1", "data": ..., "warnings": [...]}`; NaN and infinity become null."""
    envelope = {"schema": f"ablate/{command}/{SCHEMA}", "data": plain(data), "warnings": list(warnings)}
    write(json.dumps(envelope, ensure_ascii=False, allow_nan=False))


def write_frame(
    command: str, frame: "pl.DataFrame", *, as_json: bool, as_csv: bool = False, warnings: Sequence[str] = ()
) -> None:
    """A frame as JSON rows with `warnings`, as CSV, or as a table."""
    if as_json:
        write_json(command, frame.rows(named=True), warnings)
    elif as_csv:
        from ablate.store.export.csv_file import csv_text

        results().write(csv_text(frame))
    else:
        write_table(frame.columns, frame.rows(), labels=int(frame.columns[:1] == ["label"]))


def write_rows(frame: "pl.DataFrame") -> None:
    """A frame as a table with a line per row, on a terminal of the first rows alone; one row may take several lines."""
    shown = frame.head(_MOST_ROWS) if results().isatty() else frame
    if shown.height < 2:
        write_table(shown.columns, shown.rows())
        return
    rows = [[" ".join(each.split()) if isinstance(each, str) else each for each in row] for row in shown.iter_rows()]
    write_table(shown.columns, rows, overflow="lines")
    if shown.height < frame.height:
        write(f"and {format_count(frame.height - shown.height, 'more row')}; --csv has all")


def write_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    spare: Sequence[int] = (),
    labels: int = 0,
    overflow: Literal["fold", "ellipsis", "blocks", "lines"] = "fold",
) -> int:
    """A table as wide as it needs to be; numbers to the right. Return the number of lines.

    Without a terminal each row is a line, with all columns. On one, no number is broken. Headings of numbers take
    several lines, and the first `labels` columns lose the middle of their texts. The columns `spare` are left out, the
    first one first. If that is not enough, texts are broken, then columns are left out from the right, but for the
    answer, the last one beside labels.
    With `ellipsis` the last column, a text, ends where the line does. With `blocks` columns follow below instead, and
    words stay whole. With `lines` each row is a line: every text loses its middle, or its end.
    """
    columns, last, blocks = [], len(headings) - 1, overflow == "blocks"
    for at, values in enumerate(zip(headings, *rows, strict=True)):
        numeric = _is_numeric(values[1:], labelled=0 < labels <= at)
        is_label = at < labels or (overflow == "lines" and not numeric)
        cut = "middle" if is_label else "end" if overflow == "ellipsis" and at == last else ""
        whole = numeric or (at == 0 and not is_label and overflow != "fold")
        texts = [escape_control(_cell(each)) for each in values]
        most = _SHORTEST if at < labels else _SHORTEST_TEXT if is_label else _LONG_WORD if blocks else _WORD
        least, wanted = _measure(texts, most, cut, whole=whole)
        columns.append(_TableColumn(texts, numeric, cut, least, least if numeric and not is_label else wanted))
    room, blanks = line_width(), 2
    chosen = {at: max(map(_width, column.texts)) for at, column in enumerate(columns)}
    if _length(chosen.values(), blanks) > room:
        blanks, chosen = 1, _choose_widths(columns, spare, room, (1 + blocks, labels and 1))
    printed = _print_columns(columns, chosen, blanks, one_line=overflow == "lines")
    left_out = [at for at in range(len(headings)) if at not in chosen]
    if left_out and blocks:
        first, *rest = [[line[at] for at in (0, *left_out)] for line in (headings, *rows)]
        return printed + write_table([str(heading) for heading in first], rest, overflow=overflow)
    if left_out:
        write_prose(f"left out at {room} columns: {', '.join(dict.fromkeys(headings[at] for at in left_out))}")
    return printed


class _TableColumn(NamedTuple):
    """A column of a table, whose first text is its heading."""

    texts: list[str]
    numeric: bool
    cut: str
    """The part that its texts lose before other texts are broken: "middle", "end" or ""."""
    least: int
    wanted: int


def _measure(texts: Sequence[str], most: int, cut: str, *, whole: bool) -> tuple[int, int]:
    """Return the least and the wanted width of a column.

    Its cells stay `whole`, or numbers and words up to `most` characters do, or `most` characters of a text without its
    middle.
    """
    heading, *cells = map(_width, texts)
    wanted = max([heading, *cells])
    words = [word for text in (texts[:1] if whole else texts) for word in text.split()]
    least = [len(word) if _NUMBER.match(word) else min(len(word), most) for word in words]
    least = [min(wanted, most)] if cut == "middle" else least
    return max([1, *least, *(cells if whole else ())]), wanted


def _choose_widths(
    columns: Sequence[_TableColumn], spare: Sequence[int], room: int, fewest: tuple[int, int]
) -> dict[int, int]:
    """Choose columns for a line of `room` characters, and their widths; `fewest` are kept at the left and right."""
    shown, label = [*range(len(columns))], _readable(sum(column.cut == "middle" for column in columns))
    readable = [
        max(column.least, min(column.wanted, label)) if column.cut == "middle" else column.wanted for column in columns
    ]
    for at in spare:
        if _length([readable[each] for each in shown], 1) > room:
            shown.remove(at)
    for at in reversed(spare):  # a narrow column may fit in the place of a wide one
        more = sorted({*shown, at})
        shown = more if _length([readable[each] for each in more], 1) <= room else shown
    while len(shown) > sum(fewest) and _length([columns[at].least for at in shown], 1) > room:
        del shown[-1 - fewest[1]]
    widths = {at: max(columns[at].least, min(columns[at].wanted, room)) for at in shown}
    while _length(widths.values(), 1) > room and (wide := [at for at in shown if widths[at] > columns[at].least]):
        widths[max(wide, key=lambda at: (columns[at].cut, widths[at]))] -= 1
    return widths


def _print_columns(columns: Sequence[_TableColumn], chosen: Mapping[int, int], blanks: int, *, one_line: bool) -> int:
    """Print the columns `chosen`, which have their widths; return the number of lines."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, blanks, 0, 0))
    cells, labels = [], [column.texts[0] for column in columns if column.cut == "middle"]
    for at, width in chosen.items():
        (heading, *texts), numeric, cut, *_ = columns[at]
        if cut == "middle":
            heading, texts = shorten(labels, width)[labels.index(heading)], shorten(texts, width)
        table.add_column(heading, justify="right" if numeric else "left", width=width, overflow="fold")
        if cut == "end" or (one_line and cut):
            table.columns[-1].no_wrap, table.columns[-1].overflow = True, "ellipsis"
        cells.append(texts)
    for row in zip(*cells, strict=True):
        table.add_row(*row)
    console = open_console(_length(chosen.values(), blanks))
    with console.capture() as printed:
        console.print(table)
    results().write(printed.get())
    return printed.get().count("\n")


def fits(headings: Sequence[str], rows: Sequence[Sequence[object]], labels: int) -> bool:
    """Return True if `write_table` can show these columns whole, but for readable parts of the first `labels` ones."""
    columns = zip(headings, *rows, strict=True)
    widths = [max(_width(escape_control(_cell(each))) for each in column) for column in columns]
    readable = [*(min(width, _readable(labels)) for width in widths[:labels]), *widths[labels:]]
    return _length(readable, 1) <= line_width()


def _readable(labels: int) -> int:
    return _READABLE if labels == 1 else _READABLE_LEVEL


def _length(widths: Collection[int], blanks: int) -> int:
    """Length of a line of columns with these widths and `blanks` between them."""
    return sum(widths) + blanks * (len(widths) - 1)


def open_console(width: int | None = None) -> "Console":
    """Open a console for results; nothing but a terminal is written escape codes, whatever FORCE_COLOR says."""
    from rich.console import Console

    return Console(file=results().text, width=width, force_terminal=results().isatty(), markup=False, highlight=False)


def line_width(otherwise: int = 1 << 30) -> int:
    """Columns of the terminal, or those that COLUMNS says; `otherwise` if lines may be longer."""
    if results().width is None and not results().isatty() and "COLUMNS" not in os.environ:
        return otherwise
    return results().width or open_console().width


def write_prose(text: str, hanging: int = 2) -> None:
    """A sentence of the result, broken between words at the width of the terminal; later lines are moved right."""
    indent = " " * (len(text) - len(text.lstrip()) + hanging)
    width = line_width(max(len(text), 1))
    for line in wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]:
        write(line)


def _width(text: str) -> int:
    """Columns of a terminal that the longest line takes."""
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def round_value(value: object) -> object:
    """Round a float to three significant digits; return other values as they are."""
    return float(f"{value:.3g}") if isinstance(value, float) else value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) or (isinstance(value, str) and _NUMBER.match(value) is not None)


def _is_numeric(values: Sequence[object], *, labelled: bool) -> bool:
    """Tell columns of numbers, with texts such as `3 of 5`, from texts. Beside labels, digits alone are numbers."""
    if labelled and all(value is None or str(value).isdigit() for value in values):
        return True
    others = [value for value in values if value not in (None, "") and not _is_number(value)]
    return any(map(_is_number, values)) and all(str(value)[0].isdigit() for value in others)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.decode("ascii", "backslashreplace")
    if isinstance(value, dict | list):
        return json.dumps(plain(value), ensure_ascii=False)
    return str(value)


def _number(value: float) -> str:
    """Six significant digits, and in any case all digits of the whole part: counts, sizes and times stay readable."""
    digits_matter = abs(value) < _EXACT and (value == round(value) or abs(value) >= 1e5)
    return str(round(value)) if digits_matter else f"{value:.6g}"


def describe_measure(header: Mapping[str, Any]) -> str:
    """Grid, measure, point and unit of a grid's header: `quickstart: mse at sigma_x=1 in squared output units`."""
    measure = header["measure"]
    unit = f" in {measure['unit']}" if measure.get("unit") else ""
    return f"{header['grid']}: {name_measure(measure)}{unit}"


def name_measure(measure: Mapping[str, Any]) -> str:
    """Format a measure and its point: `mse at sigma_x=1`."""
    point = ", ".join(f"{axis}={value:g}" for axis, value in measure["point"].items())
    return f"{measure['name']}{f' at {point}' if point else ''}"


def average_of(measure: Mapping[str, Any]) -> str:
    """Head the column of averages; those by log odds are values of the measure, which their title explains."""
    return {"log": "geometric mean", "logit": str(measure["name"])}.get(measure["scale"], "mean")
