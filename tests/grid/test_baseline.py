"""The baseline of a grid: exactly one cell."""

import pytest
from standin import PRINCIPLED, SOFTMAX, SSA_OPERATOR, Trial
from standin_grid import LAYERS, OPERATORS, grid

from grid import SpecError, cell_key, has, over


@pytest.mark.parametrize("operator", ["softmax", "SSA", SOFTMAX, SSA_OPERATOR], ids=str)
def test_the_baseline_is_selected_by_label_or_value(operator: object) -> None:
    made = grid(OPERATORS, LAYERS, baseline={"operator": operator, "layers": "2"})
    found = next(p for p in made.cells() if p.cell == made.header()["baseline"])
    assert found.axes == {"operator": getattr(operator, "label", operator), "layers": 2}


def test_the_baseline_may_be_where_an_axis_does_not_apply() -> None:
    strength = over("operator.gate.strength.per", ["layer", "head"], when=has("operator.gate.strength"))
    made = grid(over("operator", [SOFTMAX, PRINCIPLED]), strength, baseline={"strength_per": None})
    assert made.header()["baseline"] == cell_key(Trial())


@pytest.mark.parametrize(
    ("baseline", "told"),
    [
        ({"operatr": "SSA"}, "'g' has no axis 'operatr', it has operator, layers"),
        ({"operator": "SSA"}, "operator='SSA' selects 'SSA · layers=1', 'SSA · layers=2', 'SSA · layers=3', name more"),
        ({"operator": "SSA", "layers": 9}, "no cell has operator='SSA', layers=9, near: 'SSA · layers=1', "),
    ],
)
def test_a_baseline_is_exactly_one_cell(baseline: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        grid(OPERATORS, LAYERS, baseline=baseline).header()
    assert told in str(caught.value)
