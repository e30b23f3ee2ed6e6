"""Names, labels, seeds and numbers of specs and plans, and errors: where, what is expected, what came."""

import re
import unicodedata
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from standin import Trial
from standin_grid import BASE, LAYERS, OPERATORS, grid

from ablate.grid import Grid, Measure, SpecError, over, spec_error
from ablate.grid.names import axis_names
from ablate.grid.overrides import override
from ablate.variants import softmax

UNFIT = ["", " ", "a ", "\ta", "a\nb", "a\0b", "\ud800", "a\u200bb", "a\u2028b", unicodedata.normalize("NFD", "café")]


@pytest.mark.parametrize("label", [*UNFIT, "x" * 1001, 1, None, b"a"])
def test_labels_that_look_alike_or_break_a_line_or_are_no_texts_are_refused(label: Any) -> None:
    """Also where they follow from a value, and where an operator has them."""
    with pytest.raises(SpecError, match="labels="):
        over("model.layers", [1, 2], labels=["a", label])
    if not isinstance(label, str):
        return
    with pytest.raises(SpecError, match="labels="):
        over("training.name", ["a", label])
    if label:  # an operator without a name has one by its parts
        with pytest.raises(SpecError):
            softmax().changed(name=label)
    with pytest.raises(SpecError):
        Measure(name="mse").changed(name=label)


@pytest.mark.parametrize("name", ["a" * 151, "a" * 300, "a\n", "A", 0, None])
def test_a_name_of_a_grid_fits_the_names_of_its_files(name: Any) -> None:
    with pytest.raises(SpecError):
        Grid(name, BASE)
    with pytest.raises(SpecError):
        Grid("a" * 100, BASE, [LAYERS]) | Grid("b" * 100, BASE, [OPERATORS])


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [2**63], [True], [1.0], [None], ["0"], [np.uint64(2**63)]])
def test_seeds_are_whole_numbers_from_0_below_2_to_the_63(seeds: Any) -> None:
    with pytest.raises(SpecError, match="seed"):
        grid(LAYERS, seeds=seeds)
    for text in ("-1", str(2**63), "true"):
        with pytest.raises(SpecError, match="seed"):
            override(grid(LAYERS), [f"seeds={text}"])
    assert [each.seed for each in grid(seeds=[2**63 - 1]).cells()] == [2**63 - 1]


@pytest.mark.parametrize("values", [np.array([16, 32]), torch.tensor([16, 32]), [np.int64(16), torch.tensor(32)]])
def test_numbers_of_numpy_and_torch_are_those_of_python(values: Any) -> None:
    made, plain = grid(over("training.steps", values), seeds=np.arange(2)), grid(over("training.steps", [16, 32]))
    assert [each[1:] for each in made.enumerate()] == [each[1:] for each in plain.enumerate() if each.seed < 2]
    assert {type(value) for each in made.cells() for value in each.axes.values()} == {int}


@pytest.mark.parametrize("steps", [2**63, 10**30, 1e300, pytest.param(10**5000, id="5,001 digits")])
def test_a_whole_number_of_a_spec_has_64_bits(steps: float) -> None:
    with pytest.raises(SpecError, match="steps"):
        BASE.training.changed(steps=steps)


def test_a_field_that_names_a_column_is_an_axis_by_more_of_its_path() -> None:
    for name in ("label", "State", "value", "step", "grid", "tag"):
        assert axis_names([(f"task.{name}", None)]) == [f"task_{name}"]
        with pytest.raises(SpecError, match=f"'{name}'"):
            axis_names([(name, None)])


ADAMW = {"kind": "adamw", "lr": "2e-3"}
WRONG = [
    ({"model": {"layers": "x"}}, "model.layers"),
    ({"training": {"optimizer": ADAMW}}, "training.optimizer.lr"),
    ({"operator": {"score": {"kind": "ssa", "n": {}}}}, "operator.score.n.init"),
    ({"operator": {"score": {"kind": "ssa", "n": {"init": 1, "pre": ()}}}}, "operator.score.n: 'pre'.*'per'"),
    ({"modle": {}}, "'modle' .*'model'"),
    ({"hidden_size": 2}, "'hidden_size' .*'model.width'"),  # another library's name of a field of a part
    ({"model": {"heads": 3}}, "model: .*3 and 128"),
    ({"operator": {"score": {"kind": "sas"}}}, "operator.score: .*'sas'.*'ssa'"),
    ({"seed": "a", "model": {"layers": "b", "width": "c"}}, "seed .*'a' .*2 more"),
    ({"model": "gpt2"}, "model .*'gpt2'"),
    ({"training": {"clip": "x" * 500}}, "training.clip .*'x{27}...x{28}'"),
]


@pytest.mark.parametrize(("data", "named"), WRONG)
def test_an_error_names_the_field_and_what_came(data: object, named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Trial.model_validate(data)
    assert re.fullmatch(f"file.json, line 3: {named}.*", str(spec_error(caught.value, "file.json, line 3")))


def test_a_path_can_begin_further_out() -> None:
    with pytest.raises(ValidationError) as caught:
        Trial.model_validate({"model": {"layers": None}})
    assert str(spec_error(caught.value, "", under="base")) == "base.model.layers should be a valid integer, got None"


def test_an_axis_with_what_is_no_number_is_named() -> None:
    with pytest.raises(SpecError, match=r"axis 'training.lr': nan is not finite"):
        over("training.lr", [1.0, float("nan")])
