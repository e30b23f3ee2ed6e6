"""Levels of the cells of a union: blank on an axis that does not apply."""

from pathlib import Path

from known_campaign import Planted, plant

from ablate.store import Store
from ablate.store.database.queries import levels_of_cells


def test_an_axis_that_does_not_apply_is_blank_and_a_level_none_is_none(tmp_path: Path) -> None:
    factors = {"size": [None, 1], "window": [None, 2]}
    root = plant(tmp_path / "runs", ["softmax", "SSA"], range(1), Planted(lambda _: 1.0), factors=factors)
    with Store.open(root) as store:
        header = store.grid("grid")
        size, window = ({**axis} for axis in header["axes"][1:])
        size["labels"] = ["1", "2"]  # null means that the axis does not apply
        axes = [header["axes"][0], size, {**window, "labels": ["none", "2"]}]
        names, levels = levels_of_cells(store.sql, {**header, "axes": axes})
    assert names == ["operator", "size", "window"]
    assert {tuple(each[1:]) for each in levels.values()} == {("", "none"), ("", "2"), ("1", "none"), ("1", "2")}
