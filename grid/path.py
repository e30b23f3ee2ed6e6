"""Dotted paths: "operator.gate.strength.per" names a field of a spec inside a spec, or an entry of its mapping."""

from collections.abc import Callable

from ablate.grid.errors import SpecError
from ablate.grid.frozen import FrozenDict
from ablate.grid.spec import Spec, field_names, not_a_field
from ablate.grid.suggestions import suggest_name

Predicate = Callable[..., bool]
"""A condition on a trial; its argument is the trial's own class."""


def steps(path: str) -> tuple[str, ...]:
    """Return the fields of a path; raise `SpecError` if it is not a dotted path."""
    parts = tuple(path.split(".")) if isinstance(path, str) else ()
    if not parts or not all(step.isidentifier() for step in parts):
        raise SpecError(f"path {path!r} is not field names joined by dots; write such as 'operator.score'")
    return parts


def require_spec(owner: object, name: str, path: str) -> Spec:
    """Return `owner` if it is a spec with a field `name`; else raise `SpecError`."""
    if not isinstance(owner, Spec):
        raise SpecError(
            f"path {path!r} asks for {name!r} of {owner!r}, which has no fields; shorten the path, or give the axis "
            f"a condition such as when=has({path!r})"
        )
    if name not in field_names(type(owner)):
        told = not_a_field(name, type(owner))
        hint = "" if "did you mean" in told else f"; if only some cells have it, give the axis when=has({path!r})"
        raise SpecError(f"path {path!r}: {told}{hint}")
    return owner


def field_of(owner: object, name: str, path: str) -> object:
    """Return a field of a spec, or an entry of a mapping in one; raise `SpecError` with those that exist."""
    if not isinstance(owner, FrozenDict):
        return getattr(require_spec(owner, name, path), name)
    if name not in owner:
        known = ", ".join(sorted(owner)) or "none"
        raise SpecError(f"path {path!r}: {name!r} is no entry here; there are {known}{suggest_name(name, [*owner])}")
    return owner[name]


def value_at(spec: Spec, path: str) -> object:
    """Return the value at `path` in `spec`; raise `SpecError` with the existing fields and the nearest name."""
    value: object = spec
    for name in steps(path):
        value = field_of(value, name, path)
    return value


def has(path: str) -> Predicate:
    """Make the condition that the field at `path` exists and is not None: `over(..., when=has("operator.gate"))`."""
    wanted = steps(path)

    def holds(trial: Spec) -> bool:
        value: object = trial
        for name in wanted:
            known = (
                value if isinstance(value, FrozenDict) else field_names(type(value)) if isinstance(value, Spec) else ()
            )
            if name not in known:
                return False
            value = field_of(value, name, path)
        return value is not None

    holds.__name__ = f"has({path!r})"
    return holds
