"""Controls of a page."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple


class Control(NamedTuple):
    """An input for one field of the address."""

    field: str
    """A field of the page's `Address`; "numbers:beta" is the entry "beta=..." of a field with entries name=value."""
    label: str
    kind: Literal["choice", "choices", "switch", "text", "number", "slider", "code", "hidden"]
    """`code` is text of several lines that a button runs; `hidden` is set by clicks on a figure."""
    options: Mapping[str, str] = MappingProxyType({})
    """Labels by value."""
    hint: str = ""
    usual: Any = None
    """The value if the address gives none."""
    span: tuple[float, float, float] | None = None
    """Least, greatest and step of a slider."""
    resets: Sequence[str] | None = None
    """Fields that go back to their defaults if this one changes. Unless None, the page is made anew then."""


def options(names: Iterable[str]) -> dict[str, str]:
    """Choices that are called as they are written."""
    return {name: name for name in names}
