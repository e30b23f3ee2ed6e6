"""Statistics of seeds: paired comparisons with a verdict in words, failure rates, power; what the axes of a grid do;
learning curves at equal cost, Pareto sets.

numpy, scipy and polars; imported on demand. `docs/statistics.md` says what each number means and what is promised.
"""

from store.statistics.arms import Baseline
from store.statistics.compare import checks, compare
from store.statistics.curves import CurveRule, compare_curves
from store.statistics.error_bars import balanced_means, item_bars
from store.statistics.factorial import Factorial, factorial
from store.statistics.failures import failures
from store.statistics.paired_differences import Paired, p_zero, summarise, t_interval
from store.statistics.pareto import STANDINGS, Objective, pareto
from store.statistics.power import detectable
from store.statistics.scales import Scale
from store.statistics.seed_contrasts import SeedContrasts, seed_contrasts, variants_together
from store.statistics.selection import select_then_report
from store.statistics.verdict import MIN_PAIRS, Better, holm, judge

__all__ = ["MIN_PAIRS", "STANDINGS", "Baseline", "Better", "CurveRule", "Factorial", "Objective", "Paired", "Scale"]
__all__ += ["SeedContrasts", "balanced_means", "checks", "compare", "compare_curves", "detectable", "factorial"]
__all__ += [
    "failures",
    "holm",
    "item_bars",
    "judge",
    "p_zero",
    "pareto",
    "seed_contrasts",
    "select_then_report",
    "variants_together",
]
__all__ += ["summarise", "t_interval"]
