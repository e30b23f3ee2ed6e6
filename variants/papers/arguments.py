"""Arguments of named operators: check values against their Literal annotation."""

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from grid.errors import SpecError
from grid.suggestions import suggest_name

F = TypeVar("F", bound=Callable[..., Any])


def check_literals(make: F) -> F:
    """Wrap a function so that it raises SpecError for a value outside an argument's `Literal`."""
    signature = inspect.signature(make)

    @wraps(make)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, given in signature.bind(*args, **kwargs).arguments.items():
            values = _values(make, name)
            if values and given not in values:
                known = ", ".join(map(repr, values))
                near = suggest_name(str(given), [each for each in values if isinstance(each, str)])
                raise SpecError(f"{name} of {make.__name__} is one of {known}; got {given!r}{near}")
        return make(*args, **kwargs)

    return cast(F, call)


@lru_cache(maxsize=512)
def _values(make: Callable[..., Any], name: str) -> tuple[object, ...]:
    """Return the values of an argument annotated as a Literal; () for any other."""
    return _literals(get_type_hints(make).get(name))


def _literals(hint: object) -> tuple[object, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    if hint is NoneType:
        return (None,)
    if get_origin(hint) in (Union, UnionType):
        parts = [_literals(each) for each in get_args(hint)]
        return tuple(value for part in parts for value in part) if all(parts) else ()
    return ()
