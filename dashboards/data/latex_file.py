"""A frame as LaTeX for a paper: rounded numbers with real minus signs, and a caption."""

import re
from typing import Final

import polars as pl

from ablate.dashboards.data.formatting import entry, number
from ablate.store.export import latex
from ablate.store.export.formats import encode

DIGITS: Final = 4  # significant digits of a number
_ICON: Final = re.compile(r"^[▲▼△=?–] (?=[a-z])")
_POWER: Final = re.compile(r"(?:× )?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_PLAIN: Final = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def latex_file(frame: pl.DataFrame, caption: str) -> bytes:
    """The frame as a table without reasons, which are prose; more rows than a page holds are refused as by `encode`."""
    frame = frame.drop("reason", strict=False)
    if frame.height > _MOST:
        return encode(frame, "tex")
    rows = [[*map(_text, row)] for row in frame.iter_rows()]
    numeric = [kind.is_numeric() for kind in frame.dtypes]
    return latex.table([*map(latex.escape, frame.columns)], rows, numeric, latex.escape(caption)).encode()


_MOST: Final = 10_000


def _text(value: object) -> str:
    """A cell in LaTeX: signs of numbers are mathematical, powers of ten are powers, icons of verdicts are left out."""
    if isinstance(value, float):
        value = number(value, DIGITS, padded=value != 0)
    parts, last = list[str](), 0
    text = _ICON.sub("", value if isinstance(value, str) else entry(value))
    for power in _POWER.finditer(text):
        times = r"\times " if power.group().startswith("×") else ""
        parts += [latex.escape(text[last : power.start()]), f"${times}10^{{{power.group(1).translate(_PLAIN)}}}$"]
        last = power.end()
    return "".join([*parts, latex.escape(text[last:])])
