"""An overridden grid has the trials of the grid that somebody would have written so."""

from collections.abc import Sequence
from typing import Any

import pytest
from standin import SOFTMAX, Model, Trial
from standin_grid import BASE, HEADS, LAYERS, OPERATORS, grid

from ablate.grid import Grid, SpecError, has, over, zipped
from ablate.grid.names import require_slug
from ablate.grid.overrides import add_seeds, override


def trials(of: Grid) -> list[tuple[str, str, int]]:
    return [(planned.key, planned.label, planned.seed) for planned in of.trials()]


def made(of: Grid, texts: Sequence[str]) -> Grid:
    """Override `of`, which makes a grid of another name."""
    changed = override(of, texts)
    assert require_slug(changed.name) != of.name
    assert changed.of == of.name
    return changed


def written(axes: Sequence[Any], base: Trial, **rest: Any) -> Grid:
    return Grid("g", base, axes, **{"seeds": range(2)} | rest)


DEEP = Model(layers=7, dropout=0.5)
GATES = over("operator.gate.strength.init", [0.25, 0.75], when=has("operator.gate.strength"))


@pytest.mark.parametrize("axes", [[], [HEADS], [OPERATORS, GATES], [zipped(HEADS, over("task.batch", [8, 16]))]])
def test_all_cells_are_built_on_the_changed_base(axes: list[Any]) -> None:
    changed = made(grid(*axes), ["model.layers=7", "model.dropout=.5"])
    assert trials(changed) == trials(written(axes, BASE.changed(model=DEEP)))


def test_changes_of_one_spec_are_made_at_once() -> None:
    """Neither 6 heads of 128 channels nor 4 heads of 66 are a model."""
    changed = made(grid(LAYERS), ["model.heads=6", "model.width=66"])
    assert trials(changed) == trials(written([LAYERS], BASE.changed(model=Model(heads=6, width=66))))


@pytest.mark.parametrize("text", ["2e-3", "0.002", ".002", "+.2e-2", "0.00_2"])
def test_a_number_of_the_command_line_is_a_number_of_the_spec(text: str) -> None:
    changed = made(grid(HEADS), [f"training.optimizer.lr={text}"])
    assert changed.name == made(grid(HEADS), ["training.optimizer.lr=0.002"]).name
    training = BASE.training.changed(optimizer=BASE.training.optimizer.changed(lr=0.002))
    assert trials(changed) == trials(written([HEADS], BASE.changed(training=training)))


@pytest.mark.parametrize(
    ("text", "seeds", "every"),
    [
        ("0..3", (0, 1, 2, 3), "0..3"),
        ("5", (0, 1, 5), "0..1,5"),
        ("0,2,5", (0, 1, 2, 5), "0..2,5"),
        ("[1,2]", (0, 1, 2), "0..2"),
        ("8,0..1", (0, 1, 8), "0..1,8"),
        ("1", (0, 1), None),
    ],
)
def test_seeds_that_the_grid_does_not_have_are_added(text: str, seeds: tuple[int, ...], every: str | None) -> None:
    changed = override(grid(HEADS), [f"seeds={text}"])
    assert trials(changed) == trials(written([HEADS], BASE, seeds=seeds))
    assert (changed.name, changed.of) == ("g", None)
    assert changed.overrides == (() if every is None else (f"seeds={every}",))
    assert set(trials(override(grid(HEADS), changed.overrides))) == set(trials(changed))
    assert trials(add_seeds(changed, [0, 1])) == trials(changed)


def test_every_part_of_a_union_is_changed() -> None:
    first, second = grid(HEADS), Grid("h", Trial(operator=SOFTMAX), [over("task.batch", [8, 16])], seeds=range(2))
    changed, seeds = made(first | second, ["model.layers=7", "seeds=3..4"]), [0, 1, 3, 4]
    other = Grid("h", Trial(operator=SOFTMAX, model=Model(layers=7)), second.axes, seeds=seeds)
    assert trials(changed) == trials(written([HEADS], BASE.changed(model=Model(layers=7)), seeds=seeds) | other)


def test_the_header_has_them_and_that_of_other_grids_is_as_before() -> None:
    texts = ["model.layers=7", "seeds=0..2"]
    header = override(grid(HEADS), texts).header()
    plain = written([HEADS], BASE.changed(model=Model(layers=7)), seeds=range(3)).header()
    assert header == {**plain, "grid": header["grid"], "overrides": texts, "of": "g"}
    assert "overrides" not in plain
    assert override(grid(HEADS), []).header() == grid(HEADS).header()


def test_the_name_depends_on_the_changes_alone() -> None:
    texts = ["model.layers=7", "model.dropout=.5"]
    name = override(grid(HEADS), texts).name
    assert override(grid(HEADS), [*reversed(texts), "seeds=5"]).name == name
    assert override(grid(HEADS), ["model.layers=7", "model.dropout=0.50"]).name == name
    others = [["model.layers=7"], ["model.layers=6", "model.dropout=.5"], ["model.layers=7", "model.dropout=.05"]]
    assert len({override(grid(HEADS), other).name for other in [texts, *others]}) == 4
    long = grid(HEADS).named("a-very-long-name-of-a-grid" * 5)
    assert len(override(long, texts).name) < 100
    assert override(long, texts).name != override(long.named(f"{long.name}-b"), texts).name


@pytest.mark.parametrize(
    ("axes", "text", "said"),
    [
        ([], "model.layer=3", ["'layer'", "did you mean 'layers'"]),
        ([], "sedes=3", ["'sedes'", "did you mean 'seed"]),
        ([], "seed=3", ["seeds=0"]),
        ([], "seeds=3..1", ["seeds=3..1", "the first before the last"]),
        ([], "seeds=1,1", ["seeds=1,1", "repeat"]),
        ([], "model.layers", ["PATH=VALUE", "'model.layers'"]),
        ([], "model.layers=many", ["model.layers", "'many'"]),
        ([], "model.width=33", ["heads divide the width", "model"]),
        ([LAYERS], "model.layers=3", ["axis 'model.layers'", "1, 2, 3"]),
        ([OPERATORS], "operator.gate.width=3", ["axis 'operator'"]),
        ([GATES], "operator.gate.strength.init=3", ["axis 'operator.gate.strength.init'", "0.25, 0.75"]),
    ],
)
def test_what_cannot_be_overridden_is_refused_in_one_sentence(axes: list[Any], text: str, said: list[str]) -> None:
    with pytest.raises(SpecError) as refused:
        override(grid(*axes), [text])
    assert all(words in str(refused.value) for words in said), refused.value
    assert "\n" not in str(refused.value)
