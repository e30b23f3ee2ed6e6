"""Facts of a trial's spec that papers use to tell setups apart, in the words of the papers' tables."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

_PATHS: Final[Mapping[str, str]] = {
    "heads": "model.heads",
    "weight decay": "training.optimiser.weight_decay",
    "learning rate": "training.optimiser.lr",
    "positions": "model.positions.kind",
    "feedforward": "model.feedforward",
    "backbone": "model.name",
}
_POSITIONS: Final[Mapping[str, str]] = {
    "none": "nope",
    "sinusoidal": "absolute",
    "learned": "learnable",
    "t5": "relative_t5",
}
"""Kinds of positions that paper 004 calls otherwise."""


def facts(spec: Mapping[str, Any]) -> dict[str, str]:
    """By fact what a spec says of it; a fact that it does not speak of is left out."""
    return dict(_facts(spec))


def _facts(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for fact, path in _PATHS.items():
        value = _at(spec, path)
        if value is not None:
            yield fact, _POSITIONS.get(str(value), str(value)) if fact == "positions" else str(value)
    if _at(spec, "model.head_outputs") == "added":
        yield "heads", "addition"
    intervention = _at(spec, "task.intervention")
    if isinstance(intervention, Mapping) and intervention.get("kind") == "fixed_token":
        yield "fixed token", str(intervention["position"])
    layers, heads = _at(spec, "model.layers"), _at(spec, "model.heads")
    if layers is not None and heads is not None:
        yield "model", f"{_count(layers, 'layer')}, {_count(heads, 'head')}"


def _at(spec: Mapping[str, Any], path: str) -> Any:
    found: Any = spec
    for part in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
