"""Putting values into a base trial: every spec on the way is rebuilt once, everything beside the way is shared.

Values at `operator` and at `operator.gate.width` may both be set; the longer path goes into the shorter one's value.
All changes to one spec are made at once, so a check across its fields sees the final combination only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from pydantic import ValidationError

from grid.errors import SpecError
from grid.path import require_spec, step, steps
from grid.spec import Spec, rebuilt
from grid.validation import spec_error

ABSENT: Final = object()
"""In place of a value: the axis does not apply."""

MEMO = 8192
"""How many rebuilt sub-specs are kept; the inner axes of a product come back to few."""

Make = Callable[[Spec, dict[str, object], str], Spec]
"""A spec with some fields changed; the text is the spec's own path, for errors."""


@final
@dataclass(eq=False)
class Node:
    """A field that axes set, or that holds fields they set. `slots` are the axes that set it, `below` all inside."""

    name: str
    path: str
    slots: list[int] = field(default_factory=list)
    inner: dict[str, "Node"] = field(default_factory=dict)
    below: list[int] = field(default_factory=list)


@final
class Builder:
    """Trials from `base`: give it one value (or ABSENT) per path, in the order of `paths`."""

    def __init__(self, base: Spec, paths: Sequence[str]) -> None:
        self._base = base
        self._root = _tree(paths)
        self._memo: dict[tuple[object, ...], tuple[object, Spec]] = {}

    def trial(self, chosen: Sequence[object], seed: int) -> Spec:
        """The trial, validated; raises `SpecError` with the dotted path of what is wrong."""
        return self._made(chosen, seed, self._remembered, validated)

    def draft(self, chosen: Sequence[object], seed: int) -> Spec:
        """A trial to ask questions about, even where it could not be built: what is refused is left unchecked."""
        return self._made(chosen, seed, drafted, drafted)

    def _made(self, chosen: Sequence[object], seed: int, inner: Make, whole: Make) -> Spec:
        return whole(self._base, {**self._inside(self._root, self._base, chosen, inner), "seed": seed}, "")

    def _inside(self, node: Node, spec: object, chosen: Sequence[object], make: Make) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, child in node.inner.items():
            value = self._value(child, spec, chosen, make)
            if value is not ABSENT:
                require_spec(spec, name, child.path)
                found[name] = value
        return found

    def _value(self, node: Node, owner: object, chosen: Sequence[object], make: Make) -> object:
        given = [chosen[slot] for slot in node.slots if chosen[slot] is not ABSENT]
        if len(given) > 1:
            raise SpecError(f"a field is set by one axis at a time; {node.path!r} by {len(given)}, narrow their when=")
        if not any(chosen[slot] is not ABSENT for slot in node.below):
            return given[0] if given else ABSENT
        value = given[0] if given else step(owner, node.name, node.path)
        if not isinstance(value, Spec):  # plain data for a spec: the owner knows which
            value = getattr(make(_spec(owner), {node.name: value}, node.path.rpartition(".")[0]), node.name)
        inner = self._inside(node, value, chosen, make)  # refuses a value that has no fields
        return make(_spec(value), inner, node.path)

    def _remembered(self, spec: Spec, changes: dict[str, object], path: str) -> Spec:
        """`validated`, once per combination; identities stay true because every entry keeps its objects alive."""
        key = (id(spec), *changes, *map(id, changes.values()))
        if key not in self._memo:
            if len(self._memo) >= MEMO:
                self._memo.clear()
            self._memo[key] = ((spec, changes), validated(spec, changes, path))
        return self._memo[key][1]


def validated(spec: Spec, changes: dict[str, object], path: str) -> Spec:
    """`spec` with `changes`; raises `SpecError` whose path starts with `path`."""
    try:
        return rebuilt(spec, changes)
    except ValidationError as error:
        raise spec_error(error, "", under=path) from error


def drafted(spec: Spec, changes: dict[str, object], path: str) -> Spec:
    """`spec` with `changes`, unchecked where the check refuses."""
    try:
        return validated(spec, changes, path)
    except SpecError:
        fields = {name: getattr(spec, name) for name in type(spec).model_fields}
        return type(spec).model_construct(**{**fields, **changes})


def _tree(paths: Sequence[str]) -> Node:
    root = Node("", "")
    for slot, path in enumerate(paths):
        node = root
        for at, name in enumerate(steps(path)):
            node.below.append(slot)
            node = node.inner.setdefault(name, Node(name, ".".join(steps(path)[: at + 1])))
        node.slots.append(slot)
    return root


def _spec(value: object) -> Spec:
    assert isinstance(value, Spec), value
    return value
