"""Results that are computed once per open store, which does not change."""

from collections.abc import Callable, Hashable
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

from ablate.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

_RESULTS: Final[WeakKeyDictionary[Store, dict[Hashable, Any]]] = WeakKeyDictionary()


def remember(store: Store, key: Hashable, find: Callable[[], T]) -> T:
    """Return the result that is kept under `key` for an open store, else that of `find`. Errors are not kept.

    A kept result asks nothing of the store, so a log of queries does not have it. A frame is a copy.
    """
    results = _RESULTS.setdefault(store, {})
    if key not in results:
        results[key] = find()
    result: T = _copy(results[key])
    return result


def _copy(result: Any) -> Any:
    return result.clone() if isinstance(result, pl.DataFrame) else result


def once(find: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Remember the results of `find` by the text of its arguments, which has to tell them apart."""
    parameters = signature(find)

    @wraps(find)
    def look_up(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = parameters.bind(None, *args, **kwargs)
        asked.apply_defaults()
        return remember(store, (find, repr(asked)), lambda: find(store, *args, **kwargs))

    return look_up
