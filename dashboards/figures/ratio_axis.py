"""An axis of log ratios with ticks in words: '÷ 2', '−20 %', 'equal', '+25 %', '× 2'."""

import math
from typing import Any, Final

from dashboards.words import change

_RATIOS: Final = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 30, 100, 1e3, 1e4, 1e6)


def ratio_ticks(limit: float, each_side: int = 3) -> dict[str, Any]:
    """Ticks of an axis from -limit to limit, at most `each_side` on either side of zero, and not crowded."""
    chosen: list[float] = []
    apart = limit / each_side
    for ratio in reversed(_RATIOS):  # the outermost first
        value = math.log(ratio)
        if value <= 0.97 * limit and value >= apart and (not chosen or value <= chosen[-1] - apart):
            chosen.append(value)
    values = [*(-value for value in chosen), 0.0, *reversed(chosen)]
    return {"tickvals": values, "ticktext": ["equal" if value == 0 else change(value, "log") for value in values]}
