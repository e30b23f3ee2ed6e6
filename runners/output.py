"""How commands print: tables for people, JSON and CSV for programs; results on stdout, everything else on stderr."""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from shutil import get_terminal_size
from textwrap import wrap
from threading import Timer
from typing import TYPE_CHECKING, Any

from ablate.grid.durations import format_duration
from ablate.grid.names import shorten
from ablate.runners.result_stream import results
from ablate.store.export.plain import escape_control, plain

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.table import Table

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
_WIDE = 200
"""Columns where there is no terminal, and COLUMNS does not say."""
_READABLE = 20
_READABLE_LEVEL = 12
"""Columns are left out before a label becomes shorter than this, or labels in several columns."""
_SHORTEST = 8
"""Least characters of a shortened label."""
_SHORTEST_TEXT = 6
"""The same where a row is a line."""
_MOST_ROWS = 50
"""Rows of a frame that fit a terminal."""
_NUMBER = re.compile(r"(?=.*[-+.<]|\d{1,3}(,\d{3})+$)<?[-+]?\d[\d.,]*(e[-+]\d+)?( to [-+]?\d[\d.,]*)?$")
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
        from ablate.store.export.formats import csv_text

        results().write(csv_text(frame))
    else:
        write_table(frame.columns, frame.rows(), labels=int(frame.columns[:1] == ["label"]))


def write_rows(frame: "pl.DataFrame") -> None:
    """A frame as a table; where lines have a width, each of several rows is a line, whose texts lose their middle.

    On a terminal it has the first rows alone. No number is broken, and columns are left out last.
    """
    if frame.height < 2 or not _is_narrow():
        write_table(frame.columns, frame.rows())
        return
    shown = frame.head(_MOST_ROWS) if results().isatty() else frame
    room = (console := _open_console()).width
    columns = [[escape_control(" ".join(_cell(each).split())) for each in (column.name, *column)] for column in shown]
    numeric = [_is_numeric([*column], labelled=False) for column in shown]
    ranges = {at: _range(texts, _WORD, whole=True) for at, texts in enumerate(columns)}
    ranges |= {at: (min(_SHORTEST_TEXT, most), most) for at, (_, most) in ranges.items() if not numeric[at]}
    blanks = 2 if _measure([""] * len(columns), [most for _, most in ranges.values()], [*ranges], 2) <= room else 1
    chosen = _choose_widths(ranges, room, blanks, (1, 0))
    for at, width in chosen.items():
        if not numeric[at]:
            short = shorten(columns[at], width)  # or whole, if they became equal
            columns[at] = [text if len(text) <= width else f"{text[: width - 1]}…" for text in short]
    titles, *cells = zip(*columns, strict=True)
    _print_rows(console, _open_table(titles, chosen, numeric, blanks), [[row[at] for at in chosen] for row in cells])
    if left_out := [titles[at] for at in ranges if at not in chosen]:
        write_prose(f"left out at {room} columns: {', '.join(left_out)}")
    if shown.height < frame.height:
        write(f"and {format_count(frame.height - shown.height, 'more row')}; --csv has all")


def write_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    spare: Sequence[int] = (),
    labels: int = 0,
    *,
    blocks: bool = False,
    brief: bool = False,
) -> int:
    """Columns as wide as they need to be; numbers to the right. No number is broken. Return the number of lines.

    If the table is wider than the terminal, headings of numbers take several lines, and columns move together. The
    first `labels` columns lose the middle of their texts, and the columns `spare` are left out, the first one first.
    If that is not enough, texts are broken, then columns are left out from the right, but for the answer, the last one
    beside labels. With `blocks` they follow below, and words stay whole. With `brief` the last column, a text, ends
    where the line does.
    """
    room = (console := _open_console()).width
    cells, titles = [[escape_control(_cell(each)) for each in row] for row in rows], [*map(escape_control, headings)]
    numeric = [_is_numeric([row[at] for row in rows], labelled=0 < labels <= at) for at in range(len(headings))]
    widths = [max((_width(row[at]) for row in cells), default=0) for at in range(len(headings))]
    shown, blanks = [*range(len(headings))], 2
    if _measure(titles, widths, shown, blanks) > room:
        blanks = 1
        titles = [_fold(titles[at], widths[at]) if numeric[at] else titles[at] for at in shown]
        longest = [max(_width(title), width) for title, width in zip(titles, widths[:labels], strict=False)]
        shown, most = _fit([""] * labels + titles[labels:], longest + widths[labels:], labels, spare, room)
        titles[:labels] = shorten(titles[:labels], most)
        _shorten_columns(cells, labels, most)
    columns = {at: [titles[at], *(row[at] for row in cells)] for at in shown}
    word = _LONG_WORD if blocks else _WORD
    whole = {at: numeric[at] or ((blocks or brief) and at == 0) for at in shown}
    ranges = {at: _range(texts, word, whole=whole[at]) for at, texts in columns.items()}
    chosen = _choose_widths(ranges, room, blanks, (1 + blocks, 0 if blocks else labels and 1))
    console.width = max(room, sum(chosen.values()) + blanks * len(chosen))
    table = _open_table(titles, chosen, numeric, blanks)
    if brief and len(headings) - 1 in chosen:
        table.columns[-1].no_wrap, table.columns[-1].overflow = True, "ellipsis"
    lines = _print_rows(console, table, [[row[at] for at in chosen] for row in cells])
    if blocks and (later := [at for at in shown if at not in chosen]):
        first, *rest = [[line[at] for at in (0, *later)] for line in (headings, *rows)]
        return lines + write_table([str(heading) for heading in first], rest, blocks=True)
    if left_out := [heading for at, heading in enumerate(headings) if at not in chosen]:
        write_prose(f"left out at {room} columns: {', '.join(dict.fromkeys(left_out))}")
    return lines


def _open_console() -> "Console":
    from rich.console import Console

    return Console(file=results().text, width=None if _is_narrow() else _WIDE, markup=False, highlight=False)


def _open_table(titles: Sequence[str], chosen: Mapping[int, int], numeric: Sequence[bool], blanks: int) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0) if blanks == 1 else (0, 1))
    for at, width in chosen.items():
        table.add_column(titles[at], justify="right" if numeric[at] else "left", width=width, overflow="fold")
    return table


def _print_rows(console: "Console", table: "Table", rows: Sequence[Sequence[str]]) -> int:
    """Print a table with these rows; return the number of its lines."""
    for row in rows:
        table.add_row(*row)
    with console.capture() as printed:
        console.print(table)
    results().write(printed.get())
    return printed.get().count("\n")


def fits(headings: Sequence[str], rows: Sequence[Sequence[object]], labels: int) -> bool:
    """Return True if `write_table` can show these columns whole, but for readable parts of the first `labels` ones."""
    columns = zip(headings, *rows, strict=True)
    widths = [max(_width(escape_control(_cell(each))) for each in column) for column in columns]
    widths[:labels] = [min(width, _least_label(labels)) for width in widths[:labels]]
    return sum(widths) + len(widths) - 1 <= line_width(_WIDE)


def _shorten_columns(cells: Sequence[list[str]], labels: int, most: int) -> None:
    """Shorten the texts of the first `labels` columns to `most` characters."""
    for at in range(labels):
        for row, text in zip(cells, shorten([row[at] for row in cells], most), strict=True):
            row[at] = text


def _range(texts: Sequence[str], word_width: int, *, whole: bool) -> tuple[int, int]:
    """Return the least and the wanted width of a column with the heading and the cells `texts`.

    The cells stay `whole`, or words up to `word_width` and numbers do.
    """
    words = [word for text in (texts[:1] if whole else texts) for word in text.split()]
    least = max((len(word) if _NUMBER.match(word) else min(len(word), word_width) for word in words), default=1)
    return max([least, *map(_width, texts[1:])] if whole else [least]), max(map(_width, texts))


def _choose_widths(
    ranges: dict[int, tuple[int, int]], room: int, blanks: int, fewest: tuple[int, int]
) -> dict[int, int]:
    """Choose columns and their widths, from the least to the wanted one; `fewest` are kept at the left and right."""
    shown, (left, right) = {**ranges}, fewest
    while len(shown) > left + right and sum(least + blanks for least, _ in shown.values()) - blanks > room:
        del shown[[*shown][-1 - right]]
    space = room - blanks * (len(shown) - 1)
    widths = {at: max(least, min(wanted, space)) for at, (least, wanted) in shown.items()}
    while sum(widths.values()) > space and (wide := [at for at in widths if widths[at] > shown[at][0]]):
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _fit(
    titles: Sequence[str], widths: Sequence[int], labels: int, spare: Sequence[int], room: int
) -> tuple[list[int], int]:
    """Choose the columns to show in `room` characters, and the most characters of a text of the first `labels` ones."""

    def fits(shown: Sequence[int], most: int) -> bool:
        return _measure(titles, [min(width, most) for width in widths[:labels]] + [*widths[labels:]], shown, 1) <= room

    shown, least = [*range(len(titles))], _least_label(labels)
    for at in spare:
        if not fits(shown, least):
            shown.remove(at)
    for at in reversed(spare):  # a narrow column may fit in the place of a wide one
        if at not in shown and fits(more := sorted([*shown, at]), least):
            shown = more
    levels = range(max(widths[:labels], default=0), _SHORTEST, -1)
    return shown, next((most for most in levels if fits(shown, most)), _SHORTEST)


def _least_label(labels: int) -> int:
    return _READABLE if labels == 1 else _READABLE_LEVEL


def _is_narrow() -> bool:
    """True if lines have the width of a terminal."""
    return results().isatty() or "COLUMNS" in os.environ


def line_width(otherwise: int) -> int:
    """Columns of the terminal; `otherwise` if lines may be longer."""
    return get_terminal_size().columns if _is_narrow() else otherwise


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


def _measure(titles: Sequence[str], widths: Sequence[int], shown: Sequence[int], blanks: int) -> int:
    """Characters of a line of a table."""
    return sum(max(widths[at], _width(titles[at])) + blanks for at in shown) - blanks


def _fold(title: str, width: int) -> str:
    """Write the title of a column in lines that are no wider than it, unless a word is."""
    return "\n".join(wrap(title, max(width, *map(len, title.split())), break_long_words=False))


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
    """How values of the measure are averaged, as a column's heading."""
    return {"log": "geometric mean", "logit": "mean of log odds"}.get(measure["scale"], "mean")
