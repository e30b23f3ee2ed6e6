"""The registry of a paper's tables and figures."""

from typing import Literal

import pytest

from ablate.grid import Experiment, Grid, NotFoundError, PaperGrids, PaperItem, PaperScale, SpecError


class Toy(Experiment):
    """A trial of a toy."""

    kind: Literal["tests_paper"] = "tests_paper"
    size: int = 1


def table(scale: PaperScale) -> Grid:
    """Toys by size."""
    return Grid(name="any", base=Toy(size={"paper": 100, "gpu": 10, "cpu": 1}[scale]), seeds=[0])


TOY = PaperGrids(
    "007",
    [
        PaperItem("table1", table, scales=("paper", "cpu")),
        PaperItem("figure1", of="table1"),
        PaperItem("figure2", reason="a schematic"),
    ],
)


def test_every_grid_is_named_by_its_item_and_scale() -> None:
    assert {name: grid.base for name, grid in TOY.grids.items()} == {"table1-paper": Toy(size=100), "table1-cpu": Toy()}
    assert all(grid.name == name for name, grid in TOY.grids.items())


def test_a_view_has_the_grid_of_its_item() -> None:
    assert TOY.grid_name("figure1", "cpu") == "table1-cpu"
    assert TOY.item("table1").title == "Toys by size"


@pytest.mark.parametrize(
    ("item", "scale", "words"),
    [
        ("table2", "cpu", "table1, figure1, figure2; did you mean 'table1'"),
        ("figure2", "cpu", "is no grid: a schematic"),
        ("figure1", "gpu", "no scale 'gpu'; it has paper, cpu"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(item: str, scale: PaperScale, words: str) -> None:
    with pytest.raises(NotFoundError) as error:
        TOY.grid_name(item, scale)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "items",
    [
        [PaperItem("table1", table), PaperItem("table1", table)],
        [PaperItem("table1")],
        [PaperItem("table1", table, reason="both")],
        [PaperItem("figure1", of="table1")],
        [PaperItem("figure1", of="figure2"), PaperItem("figure2", reason="no grid to be a view of")],
    ],
)
def test_an_item_is_one_of_grid_view_and_reason(items: list[PaperItem]) -> None:
    with pytest.raises(SpecError):
        PaperGrids("007", items)
