"""Labels of cells: a level carries the name of its axis wherever another level of that axis does."""

from standin_grid import BASE

from ablate.grid import Grid, over


def test_all_levels_of_an_axis_have_its_name_or_none_has() -> None:
    gate = over("model.layers", [1, 2, 3], labels=["head", "layer", "constant"], name="gate")
    score = over("model.heads", [1, 2], labels=["head", "layer"], name="score")
    union = Grid("one", BASE, [gate]) | Grid("other", BASE, [score])
    assert [cell.label for cell in union.cells()] == [
        *("gate=head", "gate=layer", "gate=constant", "score=head", "score=layer")
    ]
    assert [cell.label for cell in Grid("one", BASE, [gate]).cells()] == ["head", "layer", "constant"]
