"""The unit of a training loss, which is that of the task."""

from typing import Final

from dashboards.data.grid_context import GridContext

_PER_TOKEN: Final = frozenset({"text", "grammar", "distillation"})
"""Kinds of tasks whose loss is nats per token."""


def loss_unit(about: GridContext) -> str:
    """Return the unit of `loss`: that of the grid's measure, else that of its tasks, else empty."""
    if about.measure is not None and about.measure.name == "loss":
        return about.unit
    found = about.store.sql(
        "SELECT DISTINCT t.spec->>'$.task.kind' AS kind FROM grid_trial g JOIN trial t USING (trial) "
        "WHERE g.grid = $grid",
        {"grid": about.grid},
    )
    return "nats per token" if set(found["kind"]) <= _PER_TOKEN else ""


def in_unit(words: str, unit: str) -> str:
    """ "loss, nats per token"; without a unit the words alone."""
    return f"{words}, {unit}" if unit else words
