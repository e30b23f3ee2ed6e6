"""Unions of grids: the cells of all parts, each once."""

import pytest
from standin_grid import BASE, OPERATORS

from grid import Grid, Measure, SpecError, forbid, over


def cells(made: Grid) -> set[str]:
    return {planned.cell for planned in made.cells()}


def both() -> tuple[Grid, Grid]:
    return (
        Grid("shallow", BASE, [OPERATORS, over("model.layers", [1, 2])], seeds=range(2)),
        Grid("deep", BASE, [OPERATORS, over("model.layers", [2, 3])], seeds=range(2)),
    )


def test_a_union_has_the_cells_of_both_once() -> None:
    shallow, deep = both()
    union = shallow | deep
    assert cells(union) == cells(shallow) | cells(deep)
    assert union.header()["cells"] == 9
    assert union.header()["axes"][1]["labels"] == ["1", "2", "3"]
    assert len({planned.key for planned in union.trials()}) == len(list(union.trials())) == 18
    assert cells(shallow | shallow) == cells(shallow)
    assert (union.name, union.named("all").name) == ("shallow-deep", "all")


def test_rules_of_a_union_count_in_their_own_part() -> None:
    shallow, deep = both()
    rules = [forbid(lambda trial: trial.model.layers == 2, reason="two")]
    union = Grid("ruled", BASE, shallow.axes, rules, range(2)) | deep
    assert union.header()["rules"] == [{"reason": "two", "count": 3}]
    assert union.header()["cells"] == 3 + 6


def test_an_axis_of_one_part_is_null_in_the_other() -> None:
    first = Grid("a", BASE, [OPERATORS], seeds=[0])
    second = Grid("b", BASE, [over("training.steps", [10, 20])], seeds=[0])
    found = [(planned.axes["operator"], planned.axes["steps"]) for planned in (first | second).cells()]
    assert found == [("softmax", None), ("SSA", None), ("Principled", None), (None, 10), (None, 20)]


def test_a_union_needs_one_set_of_seeds_one_measure_and_one_baseline() -> None:
    plain = Grid("a", BASE, [OPERATORS])
    with pytest.raises(SpecError, match="one seeds; 'a' has"):
        plain | Grid("b", BASE, seeds=[1])
    with pytest.raises(SpecError, match="one measure; 'a' has None"):
        plain | Grid("b", BASE, measure=Measure(name="mse"))
    with pytest.raises(SpecError, match="one baseline"):
        Grid("a", BASE, [OPERATORS], baseline={"operator": "SSA"}) | Grid(
            "b", BASE, [OPERATORS], baseline={"operator": "softmax"}
        )


def test_two_different_cells_with_one_label_are_refused() -> None:
    other = Grid("b", BASE.changed(model=BASE.model.changed(layers=9)), [OPERATORS])
    with pytest.raises(SpecError, match="two different cells called 'softmax'"):
        (Grid("a", BASE, [OPERATORS]) | other).header()
