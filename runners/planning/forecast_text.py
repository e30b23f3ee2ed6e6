"""How long it takes and what seeds can tell apart, in a line each."""

import math

from runners.output import counted, duration
from runners.planning.estimate import Estimate, Interval
from runners.planning.resolution import Resolution


def time_line(found: Estimate) -> str:
    """Hours, wall time on the workers, and what they were taken from."""
    if found.hours is None or found.wall_s is None:
        return f"time {found.basis}"
    if not found.hours.median:
        return found.basis
    figures = _figures(found.hours)
    hours = f"{figures[0]} {found.unit} (80 %: {figures[1]} to {figures[2]})"
    many = f"{counted(found.workers, 'worker')}"
    if found.at_once != found.workers:
        many += f" with {counted(found.at_once, 'trial')} at once"
    wall = f"{duration(found.wall_s.median)} (80 %: {duration(found.wall_s.low)} to {duration(found.wall_s.high)})"
    return f"{hours}, {wall} on {many}, {found.basis}"


def _figures(hours: Interval) -> list[str]:
    """Hours with the digits that the smallest of them needs."""
    digits = max(0, 1 - math.floor(math.log10(hours.low))) if 0 < hours.low < 10 else 0
    return [f"{each:,.{min(digits, 6)}f}" for each in hours]


def resolution_line(found: Resolution) -> str:
    """What the seeds of a grid can tell apart, in one line."""
    said = f"{found.seeds} seed{'s' * (found.seeds > 1)} of {found.measure}"
    more = ", ".join(f"{seeds} seeds {_size(found, size)}" for seeds, size in found.by_seeds if seeds != found.seeds)
    if found.in_sd is None:
        return f"{said} tell nothing apart, a verdict needs 3; {more}"
    basis = f"power 80 %, {found.comparisons} comparison{'s' * (found.comparisons > 1)}, {_spread(found)}"
    return f"{said} tell differences above {_size(found, found.in_sd)} apart ({basis}); {more}"


def _size(found: Resolution, size: float) -> str:
    if not found.sd:
        return f"{size:.2g} SD"
    return _percent(size * found.sd) if found.scale == "log" else f"{size * found.sd:.2g}"


def _percent(log_ratio: float) -> str:
    percent = 100 * math.expm1(log_ratio)
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


def _spread(found: Resolution) -> str:
    if found.sd == 0:
        return f"SD of a pair 0: the {found.pairs} pairs differ alike in every seed, as if seeds changed nothing"
    if found.sd is not None:
        return f"SD of a pair {found.sd:.2g} from {found.pairs} pairs"
    if found.remark:
        return f"SD of a pair unknown: {found.remark}"
    if found.scale == "log" and found.in_sd is not None:
        return f"SD of a pair unknown: were it 10 %, above {_percent(0.1 * found.in_sd)}"
    return "SD of a pair unknown"
