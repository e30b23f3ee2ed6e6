"""A plan refuses names, labels, seeds and numbers that the files or the tables of a campaign cannot hold."""

import unicodedata
from typing import Any

import numpy as np
import pytest
import torch
from standin_grid import BASE, LAYERS, OPERATORS, grid

from ablate.grid import Grid, Measure, SpecError, over
from ablate.grid.names import axis_names
from ablate.grid.overrides import override
from ablate.variants import softmax

UNFIT = ["", " ", "a ", "\ta", "a\nb", "a\0b", "\ud800", "a\u200bb", "a\u2028b", unicodedata.normalize("NFD", "café")]


@pytest.mark.parametrize("label", [*UNFIT, "x" * 1001])
def test_labels_that_look_alike_or_break_a_line_are_refused(label: str) -> None:
    """Also where they follow from a value, and where an operator has them."""
    with pytest.raises(SpecError, match="labels="):
        over("model.layers", [1, 2], labels=["a", label])
    with pytest.raises(SpecError, match="labels="):
        over("training.name", ["a", label])
    if label:  # an operator without a name has one by its parts
        with pytest.raises(SpecError):
            softmax().changed(name=label)
    with pytest.raises(SpecError):
        Measure(name="mse").changed(name=label)


@pytest.mark.parametrize("label", [1, None, b"a"])
def test_a_label_is_a_text(label: Any) -> None:
    with pytest.raises(SpecError, match="labels="):
        over("model.layers", [1, 2], labels=["a", label])


@pytest.mark.parametrize("name", ["a" * 151, "a" * 300, "a\n", "A", 0, None])
def test_a_name_of_a_grid_fits_the_names_of_its_files(name: Any) -> None:
    with pytest.raises(SpecError):
        Grid(name, BASE)
    with pytest.raises(SpecError):
        Grid("a" * 100, BASE, [LAYERS]) | Grid("b" * 100, BASE, [OPERATORS])


@pytest.mark.parametrize("seeds", [[-1], [2**63], [True], [1.0], [None], ["0"], [np.uint64(2**63)]])
def test_seeds_are_whole_numbers_from_0_below_2_to_the_63(seeds: Any) -> None:
    with pytest.raises(SpecError, match="seed"):
        grid(LAYERS, seeds=seeds)
    if isinstance(seeds[0], int):
        with pytest.raises(SpecError, match="seed"):
            override(grid(LAYERS), [f"seeds={seeds[0]:d}" if seeds[0] is not True else "seeds=true"])
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


@pytest.mark.parametrize("name", ["label", "Status", "value", "step", "grid", "tag"])
def test_an_axis_hides_no_column(name: str) -> None:
    with pytest.raises(SpecError, match=f"'{name}'"):
        over("model.layers", [1, 2], name=name)
    with pytest.raises(SpecError, match=f"'{name}'"):
        axis_names([(name, None)])
    assert axis_names([(f"task.{name}", None)]) in ([f"task_{name}"], ["task_value"])
