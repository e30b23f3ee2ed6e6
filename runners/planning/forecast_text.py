"""Text of a plan: expected time, and the differences that its seeds resolve."""

import math
from collections.abc import Iterator

from grid.durations import format_duration, format_hours
from runners.output import format_count
from runners.planning.duration import Estimate
from runners.planning.power import Resolution


def time_line(estimate: Estimate) -> str:
    """Describe hours, wall time on the workers, and the source of both."""
    if estimate.hours is None or estimate.wall_s is None:
        return f"time {estimate.basis}"
    if not estimate.hours:
        return estimate.basis
    workers = format_count(estimate.workers, "worker")
    if estimate.at_once != estimate.workers:
        workers += f" with {format_count(estimate.at_once, 'trial')} at once"
    hours = format_hours(estimate.hours, estimate.unit)
    return f"{hours}, {format_duration(estimate.wall_s)} on {workers}, {estimate.basis}"


BASELINE_SEEDS = 5
"""Seeds of the baseline that a plan asks for where no noise is known."""


def resolution_lines(found: Resolution) -> Iterator[str]:
    """Describe the smallest difference that the seeds of a grid resolve, and the noise behind it."""
    said = f"{found.seeds} seed{'s' * (found.seeds > 1)} of {found.measure}"
    more = ", ".join(f"{seeds} seeds {_size(found, size)}" for seeds, size in found.by_seeds if seeds != found.seeds)
    if found.in_sd is None:
        yield f"{said} tell nothing apart, a verdict needs 3; {more}"
    else:
        basis = f"power 80 %, {found.comparisons} comparison{'s' * (found.comparisons > 1)}, {_spread(found)}"
        yield f"{said} tell differences above {_size(found, found.in_sd)} apart ({basis}); {more}"
    yield _noise_line(found)
    if found.sd:
        yield _rope_line(found)


def _noise_line(found: Resolution) -> str:
    noise = found.noise
    place = f" of {noise.source}" if noise.source else ""
    if noise.remark:
        return f"no noise known: {noise.remark}"
    if noise.sd is None:
        have = f"{format_count(noise.seeds, 'seed')} of the baseline finished{place}; " if noise.seeds else ""
        other = "`--noise-from CAMPAIGN` takes that of another campaign"
        return f"no noise known yet: {have}{BASELINE_SEEDS} baseline seeds will tell; {other}"
    if noise.seed_sd is None:
        return f"noise floor from {format_count(noise.pairs, 'pair')}{place}; too few seeds of the baseline alone"
    seeds = f"{format_count(noise.seeds, 'seed')} of the baseline{place}"
    line = f"noise floor: {found.measure} varies by {_amount(found, noise.seed_sd)} (SD) over {seeds}"
    if noise.basis != "pairs":
        return f"{line}; no pairs yet, so seeds count as having nothing in common"
    if not noise.seed_sd or not noise.sd:
        return line
    share = 100 * noise.sd / (math.sqrt(2) * noise.seed_sd)  # a pair of unrelated seeds has sqrt(2) times the noise
    return f"{line}; pairing leaves {share:.0f} % of the noise of unpaired runs"


def _rope_line(found: Resolution) -> str:
    size = _amount(found, found.rope)
    if found.seeds_for_rope is None:
        return f"a difference of {size}, which counts as equal, is beyond any affordable number of seeds"
    needed = f"80 % needs {found.seeds_for_rope:,} seeds"
    more = found.seeds_for_rope - found.seeds
    if more > 0:
        cost = "" if found.hours is None else f" ({format_hours(more * found.hours, found.unit)})"
        needed += f", {more:,} more{cost}"
    chance = "nothing tells" if found.power_at_rope is None else f"power {100 * found.power_at_rope:.0f} % for"
    return f"{chance} a true difference of {size}, the most that counts as equal; {needed}"


def _amount(found: Resolution, size: float) -> str:
    if found.scale == "linear":
        return f"{size:.2g}"
    percent = 100 * math.expm1(min(size, 700.0))
    text = f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"
    return text + (" in odds" if found.scale == "logit" else "")


def _size(found: Resolution, size: float) -> str:
    return _amount(found, size * found.sd) if found.sd else f"{size:.2g} SD"


def _spread(found: Resolution) -> str:
    noise = found.noise
    if noise.sd is None:
        return f"SD of a pair unknown{f': {noise.remark}' if noise.remark else ''}"
    source = f"{noise.pairs} pairs" if noise.basis == "pairs" else f"{noise.seeds} seeds of the baseline"
    if noise.sd == 0:
        return f"SD of a pair 0: the {source} are all equal, as if seeds changed nothing"
    return f"SD of a pair {noise.sd:.2g} from {source}"
