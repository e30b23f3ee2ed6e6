"""A choice is a family of specs told apart by kind, open to anybody's members."""

import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from pydantic import ValidationError
from standin import SSA, Exponential, Number, Operator, Score, Trial

from ablate.grid import Choice, Grid, Spec, SpecError, over

MINE = """
from typing import Literal
from standin import Number, Score

class Mine(Score):
    kind: Literal["mine"] = "mine"
    k: Number = Number(init=3.0)
"""


@pytest.fixture(autouse=True)
def _score_forgets() -> object:
    before = dict(Score._members)
    yield
    Score._members.clear()
    Score._members.update(before)


def test_a_members_class_in_a_users_file_is_enough(load: Callable[[str, str], ModuleType]) -> None:
    mine = load("users_file", MINE).Mine
    trial = Trial(operator=Operator(score=mine(k=Number(init=4.0))))
    assert trial.data()["operator"]["score"] == {"kind": "mine", "k": Number(init=4.0).data()}
    assert Trial.model_validate(trial.data()).key == trial.key
    grid = Grid("mine", trial, [over("operator.score", [Exponential(), mine()])], seeds=[0])
    assert {planned.axes["score"] for planned in grid.trials()} == {"exponential", "mine"}
    deeper = Grid("deep", trial, [over("operator.score.k.per", ["layer", "head"])], seeds=[0])
    assert {planned.trial.operator.score.k.per for planned in deeper.trials()} == {("layer",), ("layer", "head")}


def test_a_file_may_be_loaded_twice(load: Callable[[str, str], ModuleType]) -> None:
    first = load("users_file", MINE).Mine
    second = load("users_file", MINE).Mine
    assert first is not second
    assert Score.members()["mine"] is second
    assert Operator(score=first()).key == Operator(score=second()).key


def test_two_classes_of_one_kind_are_refused(load: Callable[[str, str], ModuleType]) -> None:
    load("users_file", MINE)
    with pytest.raises(SpecError, match=r"kind 'mine' is already users_file\.Mine; give other_file\.Mine another kind"):
        load("other_file", MINE)
    assert Score.members()["mine"].__module__ == "users_file"


def test_a_family_knows_its_members_and_makes_them_of_plain_data() -> None:
    class Animal(Choice):
        pass

    class Ssa(Animal):
        kind: Literal["ssa"] = "ssa"

    assert Animal.members() == {"ssa": Ssa}
    assert Score.members() == {"exponential": Exponential, "ssa": SSA}
    operator = Operator.model_validate({"score": {"kind": "ssa", "n": {"init": 2}}})
    assert operator.score == SSA(n=Number(init=2.0))
    assert operator.key != Operator(score=SSA()).key
    with pytest.raises(ValidationError, match="has no kind"):
        Score()
    with pytest.raises(SpecError, match=r"kind 'ssa' is already standin\.SSA"):

        class Again(SSA):
            pass


def test_a_narrower_family_belongs_to_the_wider_one() -> None:
    class Power(Score):
        pass

    class Square(Power):
        kind: Literal["square"] = "square"

    class Holder(Spec):
        power: Power = Square()

    assert Power.members() == {"square": Square}
    assert Operator.model_validate({"score": {"kind": "square"}}).score == Square()
    with pytest.raises(ValidationError, match="Power has no kind 'ssa'; it has square"):
        Holder.model_validate({"power": {"kind": "ssa"}})
    with pytest.raises(ValidationError, match="expected a Power spec"):
        Holder.model_validate({"power": SSA()})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "exponentail"}, "'exponentail'; it has exponential, ssa; did you mean 'exponential'?"),
        ({}, "Score has no kind None; it has exponential, ssa"),
        ("ssa", "expected a Score spec (kinds: exponential, ssa), got 'ssa'"),
    ],
)
def test_what_is_no_member_is_told_what_there_is(given: object, told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Operator.model_validate({"score": given})
    assert told in str(caught.value)


Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Writes `text` to a file and loads it as the module `name`, as a spec file is loaded."""
    loaded: list[str] = []

    def load_text(name: str, text: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[name] = module
        loaded.append(name)
        spec.loader.exec_module(module)
        return module

    yield load_text
    for name in loaded:
        sys.modules.pop(name, None)
