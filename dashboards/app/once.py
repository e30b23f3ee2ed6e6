"""What several slots of a page need is computed once for each moment of a campaign that is looked at."""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from store import Store

T = TypeVar("T")

_KEPT: Final[WeakKeyDictionary[Store, dict[Hashable, Any]]] = WeakKeyDictionary()


def once(store: Store, key: Hashable, make: Callable[[], T]) -> T:
    """What `make` returns, or what it returned under this `key` since `store` was opened. Errors are not kept."""
    kept = _KEPT.setdefault(store, {})
    if key not in kept:
        kept[key] = make()
    found: T = kept[key]
    return found
