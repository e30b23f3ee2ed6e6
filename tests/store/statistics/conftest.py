"""Frames of runs as the statistics take them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
import pytest

Frame = Callable[..., pl.DataFrame]


@pytest.fixture
def frame() -> Frame:
    """`frame({"softmax": [...], "SSA": [...]})`: one run per seed; the cell key of a label is "key of <label>"."""

    def build(
        arms: Mapping[str, Sequence[float | None]],
        state: Mapping[tuple[str, int], str] | None = None,
        **columns: Mapping[tuple[str, int], Any],
    ) -> pl.DataFrame:
        rows = [
            {
                "cell": f"key of {label}",
                "label": label,
                "operator": label,
                "seed": seed,
                "value": value,
                "state": (state or {}).get((label, seed), "done"),
                **{name: special.get((label, seed), "usual") for name, special in columns.items()},
            }
            for label, values in arms.items()
            for seed, value in enumerate(values)
        ]
        return pl.DataFrame(rows, schema_overrides={"value": pl.Float64}, strict=False)

    return build
