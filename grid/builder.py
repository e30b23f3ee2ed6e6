"""Putting values into a base trial: every spec on the way is rebuilt, everything beside the way is shared.

Values at `operator` and at `operator.gate.width` may both be set; the longer path goes into the shorter one's value.
All changes to one spec are made at once, so a check across its fields sees the final combination only. What a spec
below the trial becomes depends on few axes, so it is built once per combination of those.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, cast, final

from pydantic import TypeAdapter, ValidationError

from grid.axis import Axis
from grid.errors import SpecError
from grid.path import require_spec, steps
from grid.spec import Spec, rebuilt
from grid.validation import spec_error

NOT_APPLICABLE: Final = -1
"""In place of the index of a value: the axis does not apply."""

MEMO = 8192
"""How many rebuilt sub-specs are kept per path; the inner axes of a product come back to few."""

ABSENT: Final = object()

Make = Callable[[Spec, dict[str, object], str], Spec]
"""A spec with some fields changed; the text is the spec's own path, for errors."""


@final
@dataclass(eq=False)
class Node:
    """A field that axes set, or that holds fields they set. Slots are places of axes: of this field, and inside it."""

    name: str
    path: str
    slots: list[int] = field(default_factory=list)
    inner: dict[str, "Node"] = field(default_factory=dict)
    below: list[int] = field(default_factory=list)
    memo: dict[Any, object] = field(default_factory=dict)
    depends: Callable[[Sequence[int]], Any] = len
    """The part of the picks that decides what this field becomes."""


@final
class Builder:
    """Trials from `base`: give it, for each axis, the index of a value or NOT_APPLICABLE."""

    def __init__(self, base: Spec, axes: Sequence[Axis]) -> None:
        self._base = base
        self._values = [axis.values for axis in axes]
        self._root = _tree([axis.path for axis in axes])

    def trial(self, picks: Sequence[int], seed: int) -> Spec:
        """The trial, validated; raises `SpecError` with the dotted path of what is wrong."""
        fields: dict[str, object] = {}
        for name, node in self._root.inner.items():
            value = self._remembered(node, self._base, picks)
            if value is not ABSENT:
                fields[name] = value
        fields["seed"] = seed
        return validated(self._base, fields, "")

    def draft(self, picks: Sequence[int], seed: int) -> Spec:
        """A trial to ask questions about, even where it could not be built: what is refused is left unchecked."""
        fields = self._inside(self._root, self._base, picks, drafted)
        return drafted(self._base, {**fields, "seed": seed}, "")

    def _remembered(self, node: Node, owner: object, picks: Sequence[int]) -> object:
        """What a field becomes, once per combination of the axes that decide it."""
        key = node.depends(picks)
        try:
            return node.memo[key]
        except KeyError:
            value = self._value(node, owner, picks, validated)
        if len(node.memo) >= MEMO:
            node.memo.clear()
        node.memo[key] = value
        return value

    def _value(self, node: Node, owner: object, picks: Sequence[int], make: Make) -> object:
        given = [self._values[slot][picks[slot]] for slot in node.slots if picks[slot] != NOT_APPLICABLE]
        if len(given) > 1:
            raise SpecError(f"a field is set by one axis at a time; {node.path!r} by {len(given)}, narrow their when=")
        if given:
            require_spec(owner, node.name, node.path)
        if all(picks[slot] == NOT_APPLICABLE for slot in node.below):
            return given[0] if given else ABSENT
        value = given[0] if given else require_spec(owner, node.name, node.path).written(node.name)
        if not isinstance(value, Spec):  # plain data for a spec: the owner knows which
            value = _as_field(require_spec(owner, node.name, node.path), node.name, value, node.path)
        fields = self._inside(node, value, picks, make)
        return make(require_spec(value, next(iter(node.inner)), node.path), fields, node.path)

    def _inside(self, node: Node, spec: object, picks: Sequence[int], make: Make) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, child in node.inner.items():
            known = make is validated
            value = self._remembered(child, spec, picks) if known else self._value(child, spec, picks, make)
            if value is not ABSENT:
                found[name] = value
        return found


def _as_field(owner: Spec, name: str, value: object, path: str) -> object:
    """What plain data becomes as a field of `owner`, without a look at the fields beside it."""
    try:
        return TypeAdapter(cast(Any, type(owner).model_fields[name].annotation)).validate_python(value)
    except ValidationError as error:
        raise spec_error(error, "", under=path) from error


def validated(spec: Spec, changes: dict[str, object], path: str) -> Spec:
    """`spec` with `changes`; raises `SpecError` whose path starts with `path`."""
    try:
        return rebuilt(spec, changes).renamed(spec)
    except ValidationError as error:
        raise spec_error(error, "", under=path) from error


def drafted(spec: Spec, changes: dict[str, object], path: str) -> Spec:
    """`spec` with `changes`, unchecked where the check refuses."""
    try:
        return validated(spec, changes, path)
    except Exception:  # noqa: BLE001  # a check may stumble over a part that was left unchecked, in any way
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
    _settle(root, [])
    return root


def _settle(node: Node, above: list[int]) -> None:
    for child in node.inner.values():
        deciding = [*above, *child.slots, *child.below]
        child.depends = itemgetter(*deciding)
        _settle(child, [*above, *child.slots])
