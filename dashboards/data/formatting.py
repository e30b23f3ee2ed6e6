"""Numbers and names as a reader wants them: short, with a real minus sign, never more digits than they carry."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ablate.grid.durations import format_duration

BETWEEN: Final = " · "  # joins the parts of a cell's label
MOST_LISTED: Final = 6  # entries of a list in one cell of a table; files have all
_MINUS: Final = "\N{MINUS SIGN}"
SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NO_MARGIN: Final = "No margin counts as equal."  # caption if no difference is too small to count


def number(value: float | None, digits: int = 3, *, padded: bool = False) -> str:
    """A number with `digits` significant digits: '0.0123', '1.24 × 10⁻⁵', '–' for none; `padded` keeps '2.90'."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    value += 0.0  # -0.0 is 0.0
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        short = f"{value:#.{digits}g}" if padded else f"{value:.{digits}g}"
        large = "e" in short or abs(value) >= 1000 or abs(float(short)) >= 1000
        return _use_minus(f"{value:,.0f}" if large else short.removesuffix("."))
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return _use_minus(mantissa) + " × 10" + str(int(exponent)).translate(SUPERSCRIPT)


def numbers_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with three significant digits, or with four where only these tell them apart."""
    short = number(one), number(other)
    long = number(one, 4, padded=True), number(other, 4, padded=True)
    return long if short[0] == short[1] and long[0] != long[1] else short


_NEGATIVE: Final = re.compile(r"(?<![\w)])-(?=[\d.])|(?<=\de)-(?=\d)")


def write_minus(sentence: str) -> str:
    """A sentence of the analysis with a real minus sign before its negative numbers."""
    return _NEGATIVE.sub(_MINUS, sentence)


def _use_minus(text: str) -> str:
    return text.replace("-", _MINUS)


def change(difference: float | None, scale: str) -> str:
    """A difference from the baseline: on the log scale '−23 %', '+140 %' or '× 14', else '+0.013'."""
    if difference is None or math.isnan(difference):
        return "–"
    if scale == "linear":
        return ("+" if difference > 0 else "") + number(difference, 2, padded=difference != 0)
    if abs(difference) >= math.log(10) - 1e-9:
        factor = math.exp(min(abs(difference), 700.0))
        return ("× " if difference > 0 else "÷ ") + (f"{factor:.2g}" if factor < 100 else number(factor, 2))
    percent = math.expm1(difference) * 100
    shown = f"{percent:+.0f}" if abs(percent) >= 9.5 else f"{percent:+.1f}"
    if float(shown) == 0:
        shown = "0.0"
    return _use_minus(shown) + " %"


def in_odds(scale: str) -> str:
    """Write the unit behind a `change` on the logit scale, which is one of odds; '' on other scales."""
    return " in odds" if scale == "logit" else ""


def count(n: int, noun: str) -> str:
    """'1 seed', '2 seeds', '1,200 trials'."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


_SENTENCE_END: Final = re.compile(r"(?<=[.?!]) (?=[A-Z0-9])")
_TWO_LINES: Final = 210  # letters
NARROW_LINES: Final = 130  # letters of two lines where slots stand side by side


def split_caption(caption: str, most: int = _TWO_LINES) -> tuple[str, str]:
    """The first sentences of a caption, which fit into two lines of `most` letters together, and the others."""
    sentences = _SENTENCE_END.split(caption)
    kept = 1
    while kept < len(sentences) and len(" ".join(sentences[: kept + 1])) <= most:
        kept += 1
    return " ".join(sentences[:kept]), " ".join(sentences[kept:])


def runs_words(row: Mapping[str, Any]) -> str:
    """Count the runs of a row of `ablate.store.analysis.verdicts.verdicts`: '5 pairs'; 'unpaired: 5 runs against 4'."""
    if row["method"] == "Welch":
        return f"unpaired: {count(row['runs'], 'run')} against {row['baseline_runs']}"
    return count(row["pairs"], "pair")


def entry(value: object) -> str:
    """Any value of a table in words: the first of a list joined by '; ', 'yes' and 'no', '–' for none."""
    if isinstance(value, list):
        more = len(value) - MOST_LISTED
        return "; ".join(map(entry, value[:MOST_LISTED])) + (f" and {more:,} more" if more > 0 else "") or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "–" if value is None else number(value) if isinstance(value, float) else str(value)


def capitalise(text: str) -> str:
    """The text with a capital first letter; `str.capitalize` makes all others small."""
    return text[:1].upper() + text[1:]


def join_words(parts: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def duration(seconds: float) -> str:
    """'0.5 s', '12 s', '3 min 20 s', '5 h 02 min'."""
    return f"{seconds:.2g} s" if seconds < 9.5 else format_duration(seconds)


def p_value(p: float | None) -> str:
    """'0.031', '< 0.001'."""
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.2g}" if p < 0.995 else "1"


def point(coordinates: dict[str, float]) -> str:
    """'sigma_f 5, sigma_x 1'."""
    return ", ".join(f"{name} {number(float(value))}" for name, value in sorted(coordinates.items()))


def plain(label: str) -> str:
    """`label` as plotly shows it literally: plotly reads tags, entities and %{...} in the texts it draws."""
    return label.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "%&#123;")
