"""The rule of fields that hold a value for each point."""

from collections.abc import Sequence
from itertools import pairwise


def require_rising(name: str, values: Sequence[float]) -> None:
    """Raise ValueError where a point would come twice, or later than a greater one."""
    if any(low >= high for low, high in pairwise(values)):
        ordered = tuple(sorted(set(values)))
        raise ValueError(f"{name} rises from value to value; got {tuple(values)}; write {ordered}")
