"""Statistics of seeds: paired comparisons with a verdict in words, failure rates, main effects, power.

numpy, scipy and polars; imported on demand. `docs/statistics.md` says what each number means and what is promised.
"""

from store.statistics.compare import compare
from store.statistics.effects import main_effects
from store.statistics.failures import failures, fisher_p, wilson_interval
from store.statistics.family import MIN_PAIRS, VERDICTS, Better, Judged, holm, judge
from store.statistics.paired import (
    Paired,
    hedges_g,
    p_beyond,
    p_within,
    p_zero,
    pairing_correlation,
    sign_flip_p,
    summarise,
    superiority,
    t_interval,
)
from store.statistics.power import detectable, power, seeds_needed
from store.statistics.scales import Scale
from store.statistics.welch import welch

__all__ = [
    "MIN_PAIRS",
    "VERDICTS",
    "Better",
    "Judged",
    "Paired",
    "Scale",
    "compare",
    "detectable",
    "failures",
    "fisher_p",
    "hedges_g",
    "holm",
    "judge",
    "main_effects",
    "p_beyond",
    "p_within",
    "p_zero",
    "pairing_correlation",
    "power",
    "seeds_needed",
    "sign_flip_p",
    "summarise",
    "superiority",
    "t_interval",
    "welch",
    "wilson_interval",
]
