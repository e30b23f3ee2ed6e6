"""Hours keep two digits, and all digits of the whole part."""

import pytest

from grid.durations import format_hours


@pytest.mark.parametrize("hours", [0.0001234, 0.02, 0.5, 0.98, 1.04, 9.94, 12.3, 250.0, 12345.6])
def test_hours_are_right_to_two_digits(hours: float) -> None:
    shown = format_hours(hours, "GPU-h")
    assert shown.endswith(" GPU-h")
    assert float(shown.removesuffix(" GPU-h").replace(",", "")) == pytest.approx(hours, rel=0.05)
    assert "." in shown or hours >= 9.95


def test_none_is_none() -> None:
    assert format_hours(0) == "0"
