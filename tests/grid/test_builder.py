"""Changes of an axis in the base, and errors of values and paths that do not fit."""

from itertools import islice, product
from typing import Self

import pytest
from pydantic import model_validator
from standin import Suppress
from standin_grid import BASE, LAYERS, OPERATORS, grid, labels

from ablate.grid import Grid, Spec, SpecError, has, over


def test_only_specs_on_the_way_of_an_axis_are_rebuilt() -> None:
    first, second = islice(grid(over("operator.gate.strength.per", ["head", "layer"])).cells(), 2)
    assert first.trial.task is second.trial.task is BASE.task  # type: ignore[attr-defined]
    assert first.trial.operator.margin is BASE.operator.margin  # type: ignore[attr-defined]
    assert first.trial.operator.gate is not BASE.operator.gate  # type: ignore[attr-defined]


def test_a_longer_path_goes_into_the_value_of_a_shorter_one() -> None:
    gates = over("operator.gate", [Suppress(width=2), Suppress(width=4)], labels=["narrow", "wide"])
    strength = over("operator.gate.strength.per", ["layer", "head"])
    for axes in ((gates, strength), (strength, gates)):
        found = {(p.trial.operator.gate.width, p.trial.operator.gate.strength.per) for p in grid(*axes).cells()}  # type: ignore[attr-defined]
        assert found == set(product([2, 4], [("layer",), ("layer", "head")]))


def test_plain_data_is_a_value_too() -> None:
    gates = over("operator.gate", [{"kind": "suppress", "width": 2}, {"kind": "none"}], labels=["narrow", "none"])
    strength = over("operator.gate.strength.per", ["layer", "head"], when=has("operator.gate.strength"))
    assert labels(grid(gates, strength)) == ["narrow · layer", "narrow · head", "none"]


class Pace(Spec):
    every: int | None = None
    whole: str | None = None
    steps: int = 100

    @model_validator(mode="after")
    def _settles(self) -> Self:
        if self.every is not None and self.every >= self.steps:
            self.set_normal_form(every=None)  # as often as never
        self.set_normal_form(whole=self.whole or f"file of {self.steps}")
        return self


class Paced(Spec):
    pace: Pace = Pace()
    seed: int = 0


def test_an_axis_begins_with_what_was_written_and_not_with_what_it_came_to() -> None:
    """The base looks every 300 steps of 100, which is never; of 1000 steps it must not be never."""
    base = Paced(pace=Pace(every=300))
    made = Grid("paced", base, [over("pace.steps", [100, 1000])], seeds=[0])
    found = [planned.trial for planned in made.enumerate()]
    assert [trial.pace.every for trial in found] == [None, 300]  # type: ignore[attr-defined]
    assert [trial.pace.whole for trial in found] == ["file of 100", "file of 1000"]  # type: ignore[attr-defined]
    assert found[1] == Paced(pace=Pace(every=300, steps=1000))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("operator.gat.strength", "'gat' is not a field of Operator; it has gate, margin, .*did you mean 'gate'"),
        ("operator.gate.strength.init.x", "asks for 'x' of 0.5, which has no fields"),
    ],
)
def test_a_path_that_leads_nowhere_is_told_at_once(path: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        grid(over(path, [1]))


def test_a_path_that_leads_nowhere_in_one_cell_is_told_with_the_cell_and_the_remedy() -> None:
    with pytest.raises(SpecError, match=r"cell 'softmax' .*'strength' is not a field of NoGate.*when=has\("):
        list(grid(OPERATORS, over("operator.gate.strength.per", ["head"])).cells())


def test_a_value_of_the_wrong_type_is_told_with_path_and_cell() -> None:
    with pytest.raises(SpecError, match=r"cell 'layers=1\.5' .*: model\.layers should be a valid integer.* got 1\.5"):
        list(grid(over("model.layers", [1, 1.5])).cells())


def test_a_field_is_set_by_one_axis_at_a_time() -> None:
    twice = [over("model.layers", [1]), over("model.layers", [2], name="again")]
    with pytest.raises(SpecError, match=r"'model\.layers' by 2, narrow their when="):
        list(grid(*twice).cells())
    with pytest.raises(SpecError, match=r"'model\.layers' comes twice"):
        grid(LAYERS, LAYERS)
