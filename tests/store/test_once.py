"""Functions of a store keep their results while it is open."""

from collections.abc import Callable

import polars as pl
import pytest
from synthetic import Campaign

from ablate.store.analysis.once import once
from ablate.store.store import Store


def test_a_result_is_kept_for_its_store_and_arguments_and_an_error_is_not(
    campaign: Campaign, opened: Callable[..., Store]
) -> None:
    asked = list[object]()
    first, second = (opened(campaign.root) for _ in range(2))

    @once
    def find(store: Store, grid: str, *, most: int = 1) -> list[object]:
        asked.append((store, grid, most))
        if grid == "unknown":
            raise KeyError(grid)
        return [grid]

    assert find(first, "a") is find(first, "a")
    assert find(second, "a") is not find(first, "a")
    assert find(first, "a", most=2) is not find(first, "b")
    for _ in range(2):
        with pytest.raises(KeyError):
            find(first, "unknown")
    assert [each[1:] for each in asked] == [("a", 1), ("a", 1), ("a", 2), ("b", 1), ("unknown", 1), ("unknown", 1)]


def test_a_frame_that_somebody_changes_is_whole_for_the_next(campaign: Campaign, opened: Callable[..., Store]) -> None:
    store = opened(campaign.root)
    find = once(lambda _: pl.DataFrame({"value": [1.0]}))
    find(store).insert_column(0, pl.Series("other", [2.0]))
    assert find(store).columns == ["value"]
