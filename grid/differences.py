"""The difference of two specs in words: dotted path, old -> new."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from grid.names import label_of
from grid.spec import Choice, Spec, field_names, is_outside_key


@final
@dataclass(frozen=True)
class SpecDifference:
    """One field that two specs do not share."""

    path: str
    old: str
    new: str
    identity: bool = True
    """False for fields outside the key: the two are the same trial as far as this field goes."""

    def __str__(self) -> str:
        note = "" if self.identity else "  (outside the key)"
        return f"{self.path or 'all'}: {self.old} -> {self.new}{note}"


def diff(a: Spec, b: Spec) -> tuple[SpecDifference, ...]:
    """What changes from `a` to `b`, in order of declaration; empty when they are equal, labels included.

    Where the class changes, for example the kind of a choice, the two are told whole, with what is not default.
    """
    return tuple(_between(a, b, "", identity=True))


def words(value: object) -> str:
    """A value as one writes it in a sentence: `ssa(n=Number(init=2.0))`, without what is default."""
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
            yield from _between(getattr(a, name), getattr(b, name), _joined(path, name), identity=inside)
    elif isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        for name in a:
            yield from _between(a[name], b[name], _joined(path, str(name)), identity=identity)
    elif a != b:
        yield SpecDifference(path, words(a), words(b), identity)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
