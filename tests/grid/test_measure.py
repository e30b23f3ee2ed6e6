"""The measure of a grid."""

import pytest
from pydantic import ValidationError

from grid import Measure


def test_a_point_is_numbers_that_cannot_be_changed() -> None:
    measure = Measure(name="mse", point={"sigma_f": 5, "sigma_x": 1})
    assert measure.key == Measure(name="mse", point={"sigma_x": 1.0, "sigma_f": 5.0}).key
    assert Measure(name="loss", unit="nats per byte").key == Measure(name="loss").key
    with pytest.raises(TypeError, match="cannot be changed"):
        measure.point["sigma_f"] = 1


WRONG: list[dict[str, object]] = [
    {"rope": 0},
    {"rope": -1},
    {"alpha": 0},
    {"alpha": 1},
    {"scale": "cube"},
    {"better": "more"},
    {"name": ""},
    {"point": {"x": float("nan")}},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_measure_without_meaning_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Measure.model_validate({"name": "mse"} | wrong)
