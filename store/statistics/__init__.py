"""Statistics of seeds: paired comparisons with a verdict in words, failure rates, power; what the axes of a grid do;
learning curves at equal cost, Pareto sets.

numpy, scipy and polars; imported on demand. `docs/statistics.md` says what each number means and what is promised.
"""

from store.statistics.arms import Baseline
from store.statistics.compare import checks, compare
from store.statistics.curves import CurveRule, compare_curves
from store.statistics.error_bars import ItemBars, balanced_means, item_bars
from store.statistics.factorial import Factorial, factorial
from store.statistics.failures import failures, fisher_p, wilson_interval
from store.statistics.paired_differences import (
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
    welch,
)
from store.statistics.pareto import STANDINGS, Objective, pareto
from store.statistics.power import detectable, power, seeds_needed
from store.statistics.scales import Scale
from store.statistics.seed_contrasts import SeedContrasts, seed_contrasts
from store.statistics.selection import expected_optimism, select_then_report
from store.statistics.verdict import MIN_PAIRS, VERDICTS, Better, Judgement, holm, judge

__all__ = ["MIN_PAIRS", "STANDINGS", "VERDICTS", "Baseline", "Better", "CurveRule", "Factorial", "ItemBars"]
__all__ += ["Judgement", "Objective", "Paired", "Scale", "SeedContrasts", "balanced_means", "checks", "compare"]
__all__ += ["compare_curves", "detectable", "expected_optimism", "factorial", "failures", "fisher_p", "hedges_g"]
__all__ += ["holm", "item_bars", "judge", "p_beyond", "p_within", "p_zero", "pairing_correlation", "pareto", "power"]
__all__ += ["seed_contrasts", "seeds_needed", "select_then_report", "sign_flip_p", "summarise", "superiority"]
__all__ += ["t_interval", "welch", "wilson_interval"]
