"""A budget is understood or refused in one sentence."""

import pytest

from grid.errors import SpecError
from runners.planning.budget import Budget, budget_hours


@pytest.mark.parametrize(
    ("text", "hours", "unit"),
    [
        ("200gpuh", 200.0, "GPU-h"),
        ("40 cpuh", 40.0, "CPU-h"),
        ("12CPU-h", 12.0, "CPU-h"),
        (" 0.5 GPUh ", 0.5, "GPU-h"),
        (".25gpu-h", 0.25, "GPU-h"),
    ],
)
def test_a_budget_is_hours_of_a_unit(text: str, hours: float, unit: str) -> None:
    assert budget_hours(text) == Budget(hours, unit)  # type: ignore[arg-type]
    assert budget_hours(str(budget_hours(text))) == budget_hours(text)


@pytest.mark.parametrize(
    "text", ["", "200", "gpuh", "90m", "200h", "-1gpuh", "0gpuh", "1e3gpuh", "nan gpuh", "1 2cpuh"]
)
def test_what_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(SpecError, match=r"such as 200gpuh or 40cpuh; got") as refused:
        budget_hours(text)
    assert repr(text) in str(refused.value)
