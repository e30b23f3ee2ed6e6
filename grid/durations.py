"""Durations and hours of machines as text: one format everywhere."""

import math


def format_duration(seconds: float | None) -> str:
    """`1 h 05 min`, `3 min 20 s`, `45 s`, or `?` for None."""
    if seconds is None:
        return "?"
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def format_hours(hours: float, unit: str | None = None) -> str:
    """`0.012 GPU-h`, `2.5 GPU-h`, `1,200 GPU-h`: two digits, and all digits of the whole part."""
    digits = max(0, 1 - math.floor(math.log10(hours))) if 0 < hours < 10 else 0
    return f"{hours:,.{min(digits, 6)}f}" + (f" {unit}" if unit else "")
