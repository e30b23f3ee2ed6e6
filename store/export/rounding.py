"""A number rounded to what is known of it: two significant digits of its spread."""

import math
from decimal import Decimal, localcontext
from typing import NamedTuple

_SINGLE_DIGITS = 4
"""Digits of a number without a spread."""

_PLACES = 700
"""Digits between the largest double and the smallest: as many as a value and its spread can need together."""


class Rounded(NamedTuple):
    """`value` and `spread` as digits, times ten to the `exponent` where that is not 0."""

    value: str
    spread: str | None
    exponent: int


def round_to_spread(value: float, spread: float | None) -> Rounded:
    """`value` with `spread`, both finite, to the second significant digit of the spread; four digits without one."""
    known = spread if spread else None
    size = max(abs(value), known or 0.0)
    exponent = math.floor(math.log10(size)) if size else 0
    exponent = exponent if size and not -4 < exponent < 6 else 0
    scaled = Decimal(repr(value)).scaleb(-exponent)
    if known is None:
        return Rounded(_digits(scaled, _last(scaled, _SINGLE_DIGITS)), None if spread is None else "0", exponent)
    width = Decimal(repr(known)).scaleb(-exponent)
    last = _last(width, 2)
    return Rounded(_digits(scaled, last), _digits(width, last), exponent)


def _last(number: Decimal, significant: int) -> int:
    """The power of ten of the last significant digit, after rounding to it: 0.0996 to two digits is 0.10."""
    if not number:
        return 0
    last = number.adjusted() - significant + 1
    return last + (len(str(abs(round(number.scaleb(-last))))) > significant)


def _digits(number: Decimal, last: int) -> str:
    with localcontext(prec=_PLACES):
        at = number.quantize(Decimal(1).scaleb(last)) if last <= 0 else Decimal(round(number.scaleb(-last)) * 10**last)
    found = f"{at:f}"
    return found.removeprefix("-") if not float(found) else found
