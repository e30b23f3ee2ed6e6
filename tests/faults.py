"""Planting a fault: a function of the project with a piece of its source exchanged, while a test runs."""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """A fault, and what finds it."""

    words: str
    where: str
    """The dotted name of a function or method."""
    old: str
    new: str
    operator: str
    """The label of the example it is tried on."""
    law: str
    """The law that finds it."""


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The function runs with `new` in place of `old`. AssertionError when `old` is not exactly once in its source."""
    function = found(fault.where)
    before = function.__code__
    function.__code__ = changed(function, fault.old, fault.new).__code__
    try:
        yield
    finally:
        function.__code__ = before


def found(where: str) -> FunctionType:
    """The plain function behind a dotted name, whatever decorates it."""
    parts = where.split(".")
    size = next(size for size in range(len(parts), 0, -1) if _is_module(".".join(parts[:size])))
    target: Any = import_module(".".join(parts[:size]))
    for part in parts[size:]:
        target = inspect.getattr_static(target, part)
    while not isinstance(target, FunctionType) or hasattr(target, "__wrapped__"):
        if isinstance(target, property):
            target = target.fget
        elif isinstance(target, functools.cached_property):
            target = target.func
        else:
            target = getattr(target, "__wrapped__", None) or target.__func__
    return target


def _is_module(name: str) -> bool:
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def changed(function: FunctionType, old: str, new: str) -> Callable[..., Any]:
    """The function compiled again from its source with one piece exchanged, without its decorators."""
    source = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(source).body
    body = "".join(source.splitlines(keepends=True)[node.lineno - 1 :])
    assert body.count(old) == 1, f"{function.__qualname__} has {body.count(old)} times {old!r}; mend the fault"
    names: dict[str, Any] = {}
    enclosed = [f"    {name} = None" for name in function.__code__.co_freevars]  # `__class__`, where there is super()
    lines = ["def enclosing():", *enclosed, textwrap.indent(body.replace(old, new), "    "), f"    return {node.name}"]
    exec(compile("\n".join(lines), f"<fault in {function.__qualname__}>", "exec"), function.__globals__, names)
    made = names["enclosing"]()
    assert made.__code__.co_freevars == function.__code__.co_freevars, f"{function.__qualname__} has a closure"
    return made
