"""Packages that import each of their names when it is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`, which has every name of `homes` from the module there."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {sorted(homes)}")
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted(homes)
