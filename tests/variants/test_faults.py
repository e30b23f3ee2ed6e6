"""Faults that a formula may have, planted one by one: the battery finds each, by the law that `faults.toml` says."""

import ast
import functools
import inspect
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pytest

from ablate.variants import stages
from ablate.variants.laws.battery import LAWS, find
from ablate.variants.laws.examples import examples
from ablate.variants.operator import Operator


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
    function = find_function(fault.where)
    before = function.__code__
    function.__code__ = changed(function, fault.old, fault.new).__code__
    try:
        yield
    finally:
        function.__code__ = before


def find_function(where: str) -> FunctionType:
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


TABLE = tomllib.loads(Path(__file__).with_name("faults.toml").read_text(encoding="utf-8"))
FAULTS = [Fault(words, where, *rest) for where, faults in TABLE.items() for words, rest in faults.items()]
BY_LABEL = {operator.label.removesuffix(f" {operator.signals.label}"): operator for operator in examples()}
BY_NAME = {law.name: law for law in LAWS}
RAISE = {"a row that sees nothing is projected"}
"""Faults that the library itself answers with an error: any other error is a fault badly planted."""


@functools.cache
def is_kept(operator: str, law: str) -> bool:
    """Return True if the law is proved without a fault."""
    return find(BY_LABEL[operator], BY_NAME[law]).proved


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.words.replace(" ", "-") for fault in FAULTS])
def test_a_fault_is_found_by_its_law(fault: Fault) -> None:
    assert is_kept(fault.operator, fault.law), "the law is broken without the fault"
    with planted(fault):
        finding = find(BY_LABEL[fault.operator], BY_NAME[fault.law])
        assert not finding.proved, f"{fault.law!r} does not find it; these do: {find_laws(BY_LABEL[fault.operator])}"
    assert not finding.raised or fault.words in RAISE, f"a crash proves nothing: {finding.words}"


def find_laws(operator: Operator) -> list[str]:
    """List the laws that a planted fault breaks."""
    return [law.name for law in LAWS if not find(operator, law).proved]


def test_every_law_and_every_stage_has_a_fault_that_is_planted() -> None:
    assert {fault.law for fault in FAULTS} == set(BY_NAME)
    folders = {path.name for path in Path(stages.__path__[0]).iterdir() if path.is_dir() and path.name[0] != "_"}
    assert folders - {"positions"} <= {fault.where.split(".")[3] for fault in FAULTS if ".stages." in fault.where}
