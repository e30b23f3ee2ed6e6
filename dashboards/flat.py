"""Nested JSON as one level: dotted path -> value."""

from collections.abc import Iterator, Mapping
from typing import Any


def flat(value: Any) -> dict[str, Any]:
    """Every scalar, and every empty object or list, by its dotted path: {"operator.gate.kind": "sigmoid", "a.0": 1}."""
    return dict(_leaves(value, ""))


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    parts = list(inner)
    if not parts:
        yield path, value
    for name, part in parts:
        yield from _leaves(part, f"{path}.{name}" if path else str(name))
