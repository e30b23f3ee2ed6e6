"""Arguments of named operators: one that is annotated with the values it takes refuses any other."""

import inspect
from collections.abc import Callable
from functools import lru_cache, wraps
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from grid.errors import SpecError
from grid.suggestions import suggest_name

F = TypeVar("F", bound=Callable[..., Any])


def check_literals(make: F) -> F:
    """The function, which raises SpecError for a value that an argument's `Literal` has not."""
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
    """The values of an argument that takes a few; nothing for any other."""
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
