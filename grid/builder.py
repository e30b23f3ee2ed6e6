"""Builder of trials: put axis values into a base trial, rebuild the specs on the path and share the others.

Axes may set both `operator` and `operator.gate.width`; the longer path changes the value of the shorter one. All
changes of one spec are made at once, so its validators see the final combination only. A spec below the trial depends
on few axes and is built once per combination of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, final, get_origin

from pydantic import TypeAdapter, ValidationError

from ablate.grid.axis import Axis
from ablate.grid.errors import SpecError
from ablate.grid.experiment import Experiment
from ablate.grid.frozen import FrozenDict
from ablate.grid.path import field_of, require_spec, steps
from ablate.grid.spec import S, Spec, rebuilt
from ablate.grid.validation import spec_error

NOT_APPLICABLE: Final = -1
"""Stands for the index of a value if the axis does not apply."""

MEMO = 8192
"""Number of rebuilt sub-specs kept per path."""

ABSENT: Final = object()

Make = Callable[[Spec, dict[str, object], str], Spec]
"""Changes some fields of a spec; the text is the spec's path, for errors."""


@final
@dataclass(eq=False)
class Node:
    """A field that axes set, itself or inside. `slots` are the axes of the field, `below` those inside it."""

    name: str
    path: str
    slots: list[int] = field(default_factory=list)
    inner: dict[str, "Node"] = field(default_factory=dict)
    below: list[int] = field(default_factory=list)
    memo: dict[Any, object] = field(default_factory=dict)
    depends: Callable[[Sequence[int]], Any] = len
    """Selects the picks that decide this field's value."""


@final
class Builder:
    """Builds trials from `base`, given the index of a value or NOT_APPLICABLE for each axis."""

    def __init__(self, base: Experiment, axes: Sequence[Axis]) -> None:
        self._base = base
        self._values = [axis.values for axis in axes]
        self._root = _tree([axis.path for axis in axes])

    def trial(self, picks: Sequence[int], seed: int) -> Experiment:
        """Build a valid trial; raise `SpecError` with the dotted path of an invalid field."""
        fields = self._inside(self._root, self._base, picks, validate_changes)
        return validate_changes(self._base, {**fields, "seed": seed}, "")

    def draft(self, picks: Sequence[int], seed: int) -> Experiment:
        """Build a trial for rules to inspect; invalid parts stay unchecked."""
        fields = self._inside(self._root, self._base, picks, build_draft)
        return build_draft(self._base, {**fields, "seed": seed}, "")

    def _memoised_value(self, node: Node, owner: object, picks: Sequence[int]) -> object:
        """Compute a field's value once per combination of the axes that decide it."""
        key = node.depends(picks)
        if key not in node.memo:
            value = self._value(node, owner, picks, validate_changes)
            if len(node.memo) >= MEMO:
                node.memo.clear()
            node.memo[key] = value
        return node.memo[key]

    def _value(self, node: Node, owner: object, picks: Sequence[int], make: Make) -> object:
        values = [self._values[slot][picks[slot]] for slot in node.slots if picks[slot] != NOT_APPLICABLE]
        if len(values) > 1:
            raise SpecError(f"{len(values)} axes set the field {node.path!r} in one cell; narrow their when=")
        if values:
            field_of(owner, node.name, node.path)
        if all(picks[slot] == NOT_APPLICABLE for slot in node.below):
            return values[0] if values else ABSENT
        value = values[0] if values else _as_given(owner, node)
        if not isinstance(value, Spec):
            value = _from_plain(value, owner, node)
        fields = self._inside(node, value, picks, make)
        if isinstance(value, FrozenDict):
            return FrozenDict({**value, **fields})
        return make(require_spec(value, next(iter(node.inner)), node.path), fields, node.path)

    def _inside(self, node: Node, spec: object, picks: Sequence[int], make: Make) -> dict[str, object]:
        known, arguments = make is validate_changes, dict[str, object]()
        for name, child in node.inner.items():
            value = self._memoised_value(child, spec, picks) if known else self._value(child, spec, picks, make)
            if value is not ABSENT:
                arguments[name] = value
        return arguments


def _as_given(owner: object, node: Node) -> object:
    if isinstance(owner, FrozenDict):
        return field_of(owner, node.name, node.path)
    return require_spec(owner, node.name, node.path).as_given(node.name)


def _from_plain(value: object, owner: object, node: Node) -> object:
    """Make plain data the mapping or the spec that the owner has there."""
    if isinstance(owner, FrozenDict):
        return FrozenDict(value) if isinstance(value, Mapping) else value
    annotation: Any = type(require_spec(owner, node.name, node.path)).model_fields[node.name].annotation
    try:
        made = TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise spec_error(error, "", under=node.path) from error
    return FrozenDict(made) if get_origin(annotation) in (dict, Mapping) else made


def validate_changes(spec: S, changes: dict[str, object], path: str) -> S:
    """Return `spec` with `changes`; raise `SpecError` with a path that starts with `path`."""
    try:
        return rebuilt(spec, changes).relabel(spec)
    except ValidationError as error:
        raise spec_error(error, "", under=path) from error


def build_draft(spec: S, changes: dict[str, object], path: str) -> S:
    """Return `spec` with `changes`, without validation if that fails."""
    try:
        return validate_changes(spec, changes, path)
    except Exception:  # noqa: BLE001  # a validator may raise anything on an unchecked part
        fields = {name: getattr(spec, name) for name in type(spec).model_fields}
        drafted: S = type(spec).model_construct(**{**fields, **changes})  # type: ignore[assignment]
        return drafted


def _tree(paths: Sequence[str]) -> Node:
    root = Node("", "")
    for slot, path in enumerate(paths):
        node = root
        for at, name in enumerate(steps(path)):
            node.below.append(slot)
            node = node.inner.setdefault(name, Node(name, ".".join(steps(path)[: at + 1])))
        node.slots.append(slot)
    _set_dependencies(root, [])
    return root


def _set_dependencies(node: Node, above: list[int]) -> None:
    for child in node.inner.values():
        deciding = [*above, *child.slots, *child.below]
        child.depends = itemgetter(*deciding)
        _set_dependencies(child, [*above, *child.slots])
