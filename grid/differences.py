"""Differences of two specs as text: dotted path, old -> new."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from grid.names import label_of
from grid.spec import Choice, Spec, field_names, is_outside_key


@final
@dataclass(frozen=True)
class SpecDifference:
    """One field that differs between two specs."""

    path: str
    old: str
    new: str
    identity: bool = True
    """False for a field outside the key, which does not change the trial."""

    def __str__(self) -> str:
        note = "" if self.identity else "  (outside the key)"
        return f"{self.path or 'all'}: {self.old} -> {self.new}{note}"


def diff(a: Spec, b: Spec) -> tuple[SpecDifference, ...]:
    """List the changes from `a` to `b`, labels included, in order of declaration.

    If the class changes, for example the kind of a choice, both are written whole, without defaults.
    """
    return tuple(_between(a, b, "", identity=True))


def words(value: object) -> str:
    """Write a value without its defaults: `ssa(n=Number(init=2.0))`."""
    if isinstance(value, Spec):
        defaults = type(value).model_fields
        said = [
            f"{name}={words(getattr(value, name))}"
            for name in field_names(type(value))
            if name != "kind" and getattr(value, name) != defaults[name].default
        ]
        name = str(getattr(value, "kind", "")) if isinstance(value, Choice) else type(value).__name__
        return f"{name}({', '.join(said)})" if said else name
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {words(value[name])}" for name in value) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(words, value)) + ")"
    return repr(value) if isinstance(value, str) else label_of(value)


def _between(a: object, b: object, path: str, *, identity: bool) -> Iterator[SpecDifference]:
    if isinstance(a, Spec) and type(a) is type(b):
        for name in field_names(type(a)):
            inside = identity and not is_outside_key(type(a), name)
            yield from _between(getattr(a, name), getattr(b, name), _join_path(path, name), identity=inside)
    elif isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        for name in a:
            yield from _between(a[name], b[name], _join_path(path, str(name)), identity=identity)
    elif a != b:
        yield SpecDifference(path, words(a), words(b), identity)


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
