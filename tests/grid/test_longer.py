"""Cells that are trained longer: cells of a grid beside its variants, like controls."""

from typing import Any, Literal

import pytest
from standin import SOFTMAX, SSA_OPERATOR, Trial

from ablate.grid import Grid, Measure, over
from ablate.grid.errors import SpecError


class Lasting(Trial):
    """The stand-in trial, which can be trained longer."""

    kind: Literal["tests_lasting"] = "tests_lasting"  # type: ignore[assignment]

    def longer(self, factor: int) -> "Lasting":
        return self.changed(training=self.training.changed(steps=factor * self.training.steps))


RATES = over("training.optimizer.lr", [0.1, 0.2, 0.3], tune=True)
FIXED: dict[str, Any] = {"baseline": {"operator": "softmax"}, "measure": Measure(name="mse"), "seeds": range(3)}


def grid(**how: Any) -> Grid:
    axes = how.pop("axes", [over("operator", [SOFTMAX, SSA_OPERATOR])])
    return Grid("g", how.pop("base", Lasting()), axes, **{**FIXED, "longer": 2, **how})


def test_nothing_is_trained_longer_before_it_is_chosen() -> None:
    made = grid()
    assert made.header()["longer"] == {"factor": 2, "of": {}, "added": []}
    assert [each.key for each in made.trials()] == [each.key for each in grid(longer=None).trials()]
    assert "longer" not in grid(longer=None).header()


def test_chosen_cells_are_trained_longer_on_the_same_seeds() -> None:
    short = [*grid().cells()]
    made = grid(chosen=tuple(each.cell for each in short))
    added = [each for each in made.cells() if each.longer]
    assert [each.longer for each in added] == [each.cell for each in short]
    assert [each.trial.training.steps for each in added] == [2 * each.trial.training.steps for each in short]
    trials = [each for each in made.trials() if each.longer]
    assert sorted((each.longer, each.seed) for each in trials) == sorted(
        (each.cell, seed) for each in short for seed in range(3)
    )
    assert {each.key for each in made.enumerate()} == {each.key for each in made.trials()}
    header = made.header()
    assert (header["cells"], header["trials"], made.comparisons) == (4, 12, 1)
    assert header["longer"]["of"] == {each.longer: each.cell for each in added}
    assert header["longer"]["added"] == sorted(each.cell for each in added)
    assert {each.cell: each.axes["operator"] for each in added} == {
        header["longer"]["of"][each.cell]: each.axes["operator"] for each in short
    }


def test_a_cell_that_the_grid_has_anyway_stays_a_variant() -> None:
    steps = over("training.steps", [100, 200])
    made = grid(axes=[over("operator", [SOFTMAX, SSA_OPERATOR]), steps])
    cells = {(each.axes["operator"], each.axes["steps"]): each.cell for each in made.cells()}
    made = made.changed()
    chosen = (cells["softmax", 100], cells["SSA", 200])
    both = grid(axes=made.axes, chosen=chosen)
    longer = both.header()["longer"]
    assert longer["of"][chosen[0]] == cells["softmax", 200]
    assert longer["added"] == [longer["of"][chosen[1]]]
    (added,) = (each for each in both.cells() if each.longer)
    assert added.axes == {"operator": "SSA", "steps": None}  # the axis would call it by a level that it has not


def test_levels_of_nuisance_axes_stay() -> None:
    made = grid(axes=[over("operator", [SOFTMAX, SSA_OPERATOR]), RATES])
    chosen = tuple(each.cell for each in made.cells() if each.axes["lr"] == 0.2)
    added = [each for each in grid(axes=made.axes, chosen=chosen).cells() if each.longer]
    assert [each.axes["lr"] for each in added] == [0.2, 0.2]


@pytest.mark.parametrize(
    "how",
    [{"longer": 1}, {"longer": 1.5}, {"longer": True}, {"measure": None}, {"baseline": None}, {"base": Trial()}],
    ids=["once", "part", "a bool", "no measure", "no baseline", "a trial that cannot"],
)
def test_bad_input_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        grid(**how)
