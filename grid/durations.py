"""Durations and hours of machines as text: one format everywhere."""

import math
import re
from typing import Any, Final

_NUMBER: Final = r"(\d+(?:\.\d+)?)"
_DURATION: Final = re.compile(f"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")


def read_duration(value: Any) -> Any:
    """Convert `90s`, `30m`, `1h30m` or `2d` to seconds; return other values than texts. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.replace(" ", ""))
    if match is None or not any(match.groups()):
        raise ValueError(f"{value!r} is no duration; write 90s, 30m, 1h30m or 2d")
    return sum(float(count or 0) * unit for count, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))


def format_duration(seconds: float | None) -> str:
    """`67 d 6 h` from 48 h on, `1 h 05 min`, `3 min 20 s`, `45 s`, or `?` for None."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole >= 48 * 3600:
        return f"{whole // 86400} d {whole % 86400 // 3600} h"
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def format_short(seconds: float) -> str:
    """`8 ms`, `0.4 s`; from 10 s on as `format_duration`."""
    if seconds < 0.1:
        return f"{seconds * 1000:.2g} ms"
    return f"{seconds:.2g} s" if seconds < 10 else format_duration(seconds)


def format_hours(hours: float, unit: str | None = None) -> str:
    """`15 GPU-s`, `4.2 GPU-min`, `2.5 GPU-h`, `1,200 GPU-h`: two digits, and all digits of the whole part.

    Without the `unit`, which ends with h, these are hours.
    """
    if unit and 0 < hours < 1:
        short, hours = ("s", hours * 3600) if hours < 1 / 60 else ("min", hours * 60)
        unit = unit.removesuffix("h") + short
    digits = max(0, 1 - math.floor(math.log10(hours))) if 0 < hours < 10 else 0
    return f"{hours:,.{min(digits, 6)}f}" + (f" {unit}" if unit else "")
