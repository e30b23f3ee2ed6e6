"""What values are called in tables."""

from functools import singledispatch

from grid.key import canonical_json


@singledispatch
def label_of(value: object) -> str:
    """The name of a value in tables: a spec's label, a tuple's labels, a scalar as it is written in JSON."""
    return "none" if value is None else canonical_json(value)


@label_of.register
def _(value: str) -> str:
    return value


@label_of.register(list)
@label_of.register(tuple)
def _(value: list[object] | tuple[object, ...]) -> str:
    return ", ".join(map(label_of, value)) or "none"
