"""Statistics of seeds: paired comparisons with a verdict in words, failure rates, power; what the axes of a grid do;
learning curves at equal cost, Pareto sets.

numpy, scipy and polars; imported on demand. `docs/statistics.md` says what each number means and what is promised.
"""

from ablate.store.statistics.arms import Baseline
from ablate.store.statistics.compare import basis, compare
from ablate.store.statistics.controls import beyond_controls
from ablate.store.statistics.curves import CurveRule, compare_curves
from ablate.store.statistics.error_bars import balanced_means, item_bars
from ablate.store.statistics.factorial import Factorial, factorial
from ablate.store.statistics.failures import failures
from ablate.store.statistics.paired_differences import Paired, p_zero, summarise, t_interval
from ablate.store.statistics.pareto import STANDINGS, Objective, pareto
from ablate.store.statistics.power import detectable
from ablate.store.statistics.scales import Scale
from ablate.store.statistics.seed_contrasts import SeedContrasts, seed_contrasts, variants_together
from ablate.store.statistics.selection import select_then_report
from ablate.store.statistics.verdict import MIN_PAIRS, Better, decide, holm

__all__ = ["MIN_PAIRS", "STANDINGS", "Baseline", "Better", "CurveRule", "Factorial", "Objective", "Paired", "Scale"]
__all__ += [
    "SeedContrasts",
    "balanced_means",
    "basis",
    "beyond_controls",
    "compare",
    "compare_curves",
    "detectable",
    "factorial",
]
__all__ += [
    "decide",
    "failures",
    "holm",
    "item_bars",
    "p_zero",
    "pareto",
    "seed_contrasts",
    "select_then_report",
    "variants_together",
]
__all__ += ["summarise", "t_interval"]
