"""Conditions of axes and rules of grids: which cells there are."""

import pytest
from standin_grid import HEADS, LAYERS, OPERATORS, grid, labels

from ablate.grid import SpecError, forbid, has, over


def test_an_axis_with_a_condition_is_null_where_it_does_not_hold() -> None:
    strength = over("operator.gate.strength.per", ["layer", "head"], when=has("operator.gate.strength"))
    made = grid(strength, OPERATORS)
    assert {(p.axes["operator"], p.axes["strength_per"]) for p in made.cells()} == {
        ("softmax", None), ("SSA", None), ("Principled", "layer"), ("Principled", "head")
    }  # fmt: skip
    assert sorted(labels(made)) == ["SSA", "head · Principled", "layer · Principled", "softmax"]


def test_conditions_see_the_axes_before_them() -> None:
    ssa = has("operator.score.n")
    when_ssa = over("operator.score.n.init", [2.0, 3.0], when=ssa)
    when_large = over("operator.score.b.init", [4.0, 5.0], when=lambda t: ssa(t) and t.operator.score.n.init > 2)
    assert grid(OPERATORS, when_ssa, when_large).header()["cells"] == 2 + 1 + 2


def test_a_condition_that_never_holds_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"condition of 'operator\.gate\.strength\.per' in grid 'g' never held"):
        list(grid(over("operator.gate.strength.per", ["head"], when=has("operator.gat"))).cells())


def test_a_condition_that_raises_is_named_with_its_cell() -> None:
    strength = over("operator.gate.strength.per", ["head"], when=lambda trial: trial.operator.gate.strength.init > 0)
    with pytest.raises(SpecError, match=r"'operator\.gate\.strength\.per' .*'operator=softmax': .*Attribute"):
        list(grid(OPERATORS, strength).cells())


def test_rules_leave_cells_out_and_are_counted() -> None:
    rules = [
        forbid(lambda trial: trial.model.layers == 3, reason="too deep"),
        forbid(lambda trial: trial.model.heads == 4, reason="too wide"),
        forbid(lambda trial: trial.model.layers > 9, reason="not met"),
    ]
    header = grid(LAYERS, HEADS, rules=rules).header()
    assert header["cells"] == 2
    assert header["rules"] == [
        {"reason": "too deep", "count": 2}, {"reason": "too wide", "count": 2}, {"reason": "not met", "count": 0}
    ]  # fmt: skip


def test_rules_that_leave_nothing_are_an_error_with_their_counts() -> None:
    with pytest.raises(SpecError, match="grid 'g' has none: 'all' forbids 3; loosen a rule"):
        grid(LAYERS, rules=[forbid(lambda trial: trial.seed == 0, reason="all")]).header()


@pytest.mark.parametrize(
    "predicate", [lambda trial: trial.training.evaluate_every, lambda trial: trial.modle, lambda: True]
)
def test_a_rule_that_cannot_say_is_named_with_its_cell(predicate: object) -> None:
    with pytest.raises(SpecError, match=r"'layers=1' .*'g': rule 'why' .*\(test_rule.py:\d+\)"):
        grid(LAYERS, rules=[forbid(predicate, reason="why")]).header()  # type: ignore[arg-type]


def test_a_rule_may_forbid_what_cannot_be_built() -> None:
    rule = forbid(lambda trial: trial.model.width % trial.model.heads != 0, reason="heads divide the width")
    header = grid(over("model.heads", [2, 3, 4]), rules=[rule]).header()
    assert (header["cells"], header["rules"][0]["count"]) == (2, 1)


def test_axes_whose_conditions_exclude_each_other_may_share_a_path() -> None:
    softmax = lambda trial: trial.operator.label == "softmax"  # noqa: E731
    made = grid(
        OPERATORS,
        over("training.optimizer.lr", [0.1, 0.2], name="lr_softmax", when=softmax),
        over("training.optimizer.lr", [0.3], name="lr_others", when=lambda trial: not softmax(trial)),
    )
    assert sorted((p.axes["operator"], p.axes["lr_softmax"], p.axes["lr_others"]) for p in made.cells() if p) == [
        ("Principled", None, 0.3), ("SSA", None, 0.3), ("softmax", 0.1, None), ("softmax", 0.2, None)
    ]  # fmt: skip
