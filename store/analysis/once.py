"""Results that are computed once per open store, which does not change."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import polars as pl

from ablate.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

_RESULTS: Final[WeakKeyDictionary[Store, dict[tuple[object, str], Any]]] = WeakKeyDictionary()


def once(find: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Keep the results of `find` by the text of its arguments, which has to tell them apart. Errors are not kept.

    A kept result asks nothing of the store, so a log of queries does not have it. A frame is a copy.
    """

    @wraps(find)
    def look_up(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        results = _RESULTS.setdefault(store, {})
        key = (find, repr((args, kwargs)))
        if key not in results:
            results[key] = find(store, *args, **kwargs)
        result: T = _copy(results[key])
        return result

    return look_up


def _copy(result: Any) -> Any:
    return result.clone() if isinstance(result, pl.DataFrame) else result
