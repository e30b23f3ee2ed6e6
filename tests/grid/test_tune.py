"""Nuisance axes: declared by `over(..., tune=True)`, in the header and in the cells of a grid, and never compared."""

import pytest
from standin import Training
from standin_grid import HEADS, LAYERS, OPERATORS, grid

from ablate.grid import Grid, one_at_a_time, over, zipped
from ablate.grid.errors import SpecError

STEPS = over("training.steps", [100, 200], tune=True)
RATE = over("training.optimizer.lr", [0.001, 0.01, 0.1], tune=True)
AGAINST = {"baseline": {"operator": "softmax"}}


def test_the_header_and_the_cells_name_the_nuisance_axes() -> None:
    tuned = grid(OPERATORS, RATE, **AGAINST)
    assert [axis.get("tune") for axis in tuned.header()["axes"]] == [None, True]
    assert {each.tune for each in tuned.cells()} == {("lr",)}
    assert {each.tune for each in tuned.trials()} == {("lr",)}
    assert all("tune" not in axis for axis in grid(OPERATORS, LAYERS).header()["axes"])


def test_tuning_changes_no_trial() -> None:
    plain = over("training.optimizer.lr", [0.001, 0.01, 0.1])
    assert [each.key for each in grid(OPERATORS, RATE).trials()] == [
        each.key for each in grid(OPERATORS, plain).trials()
    ]


def test_the_family_is_of_settings() -> None:
    assert grid(OPERATORS, RATE, **AGAINST).comparisons == 2
    assert grid(OPERATORS, LAYERS, RATE, **AGAINST).comparisons == 6
    assert grid(over("operator", OPERATORS.values[:1]), RATE, **AGAINST).comparisons == 0
    assert grid(OPERATORS, LAYERS, baseline={"operator": "softmax", "layers": 1}).comparisons == 8


def test_only_compared_axes_match_a_cell_with_its_baseline() -> None:
    assert grid(OPERATORS, RATE, **AGAINST).header()["matched"] == []
    assert grid(OPERATORS, LAYERS, RATE, **AGAINST).header()["matched"] == ["layers"]


def test_a_baseline_may_be_tuned_over_levels_of_its_own() -> None:
    """With tune, the setting is the baseline; without, a cell at a rate that no baseline has would have none."""

    def union(*, tune: bool) -> Grid:
        parts = [
            grid(over("operator", [operator]), over("training.optimizer.lr", rates, tune=tune))
            for operator, rates in zip(OPERATORS.values[:2], ([0.1, 0.2, 0.3], [0.3, 0.4, 0.5]), strict=True)
        ]
        return (parts[0] | parts[1]).named("g", **AGAINST)

    cells = {each.cell: each.axes for each in union(tune=True).cells()}
    found = union(tune=True).header()["baselines"]
    assert {cells[cell]["lr"] for cell in found} == {0.3, 0.4, 0.5}
    assert {cells[base]["operator"] for base in found.values()} == {"softmax"}
    assert {cells[base]["lr"] for cell, base in found.items() if cells[cell]["lr"] == 0.3} == {0.3}
    with pytest.raises(SpecError):
        union(tune=False).header()


def test_a_cell_without_the_axis_is_not_tuned() -> None:
    rates = over("training.optimizer.lr", [0.1, 0.2], when=lambda trial: trial.operator.label == "SSA", tune=True)
    tunes = {each.label: each.tune for each in grid(OPERATORS, rates).cells()}
    assert {label for label, tune in tunes.items() if tune} == {"SSA · lr=0.1", "SSA · lr=0.2"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: grid(OPERATORS, RATE, baseline={"operator": "softmax", "lr": 0.01}),
        lambda: grid(RATE),
        lambda: grid(zipped(RATE, over("training.schedule.warmup", [1, 2, 3], tune=True))),
        lambda: grid(zipped(HEADS, over("training.optimizer.lr", [0.1, 0.2], tune=True))),
        lambda: grid(OPERATORS, RATE) | grid(OPERATORS, over("training.optimizer.lr", [0.001])),
        lambda: over("training.optimizer.lr", [0.1], tune="lr"),
        lambda: grid(OPERATORS, over("training.optimizer.rate", [0.1], tune=True)),
        lambda: grid(OPERATORS, STEPS),
        lambda: grid(OPERATORS, zipped(STEPS, over("training.optimizer.lr", [0.1, 0.2], tune=True))),
        lambda: grid(OPERATORS, one_at_a_time(STEPS, over("training.optimizer.lr", [0.1, 0.2], tune=True))),
        lambda: grid(OPERATORS, over("training", [{"steps": 100}, {"steps": 200}], tune=True)),
        lambda: grid(
            OPERATORS, over("training", [Training(steps=n) for n in (100, 200)], labels=["s", "l"], tune=True)
        ),
    ],
    ids=[
        *("in the baseline", "alone", "two alone", "zipped with others", "in one part", "not a bool", "unknown"),
        *("budget", "budget zipped", "budget one at a time", "budget inside", "budget inside a spec"),
    ],
)
def test_bad_nuisance_axes_are_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SpecError):
        make().header()
