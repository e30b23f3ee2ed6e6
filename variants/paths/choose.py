"""Choice of the execution path of an operator: the fastest that can compute a call, or the path given by name.

The law that all paths agree with the definition is in `ablate.variants.laws.paths`; Triton is
compared by `tests/variants/test_triton_path.py` through its interpreter, and on a GPU by `benchmarks/exactness.py`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from ablate.grid.errors import SpecError
from ablate.variants.attend import Heads, definition
from ablate.variants.axes import HeadOutput
from ablate.variants.operator import NumberValues, Operator
from ablate.variants.paths import cpu, linear, sdpa, triton
from ablate.variants.paths.case import Case

PathName = Literal["auto", "reference", "sdpa", "linear", "triton", "cpu"]


def never(*_: object) -> bool:
    """Return False; a function of the module, since models that are saved whole name it."""
    return False


class Path(NamedTuple):
    """A way to compute an operator. Reasons are None if there is nothing to say."""

    name: str
    cannot: Callable[[Operator], str | None]
    """Return why it cannot compute an operator."""
    cannot_call: Callable[[Case], str | None]
    """Return why it cannot compute a call, whatever the operator."""
    slower: Callable[[Operator, Case], str | None]
    """Return why a later path is as fast or faster on a call that it can compute."""
    run: Callable[[Operator, Heads, NumberValues], HeadOutput]
    needs_definition: Callable[[Operator, Heads], bool] = never
    """Return True if it computes the call by the definition, since only values of the mask tell that it cannot."""
    version: int = 1
    """Version of the numbers that the path computes; raise it when an edit changes a bit. Results store it."""

    def reason(self, operator: Operator, case: Case) -> str | None:
        """Return why it cannot compute a call of `operator`."""
        return self.cannot(operator) or self.cannot_call(case)


def _nothing(*_: object) -> None:
    return None


def _define(operator: Operator, heads: Heads, numbers: NumberValues) -> HeadOutput:
    return definition(operator, heads, numbers).output


_FEW = 256
"""Tokens up to which, with 64 channels, path "sdpa" is as fast in float32 as "triton" in half precision on an H200."""
_NARROW = 64


def _slower_than_triton(operator: Operator, case: Case) -> str | None:
    """Return why "triton" is faster than "sdpa", or None if it is not."""
    half = case.device == "cuda" and case.dtype in (torch.bfloat16, torch.float16)
    few = case.keys <= _FEW and case.channels <= _NARROW
    if not half or few or not sdpa.scales_logits(operator):
        return None
    if triton.cannot(operator) or triton.cannot_call(case) or triton.slower(operator, case):
        return None
    return "sdpa computes scaled logits in float32, without tensor cores"


PATHS = (
    Path("sdpa", sdpa.cannot, _nothing, _slower_than_triton, sdpa.run),
    Path("linear", linear.cannot, linear.cannot_call, linear.slower, linear.run, linear.needs_definition),
    Path("triton", triton.cannot, triton.cannot_call, triton.slower, triton.run, version=2),
    Path("cpu", cpu.cannot, cpu.cannot_call, cpu.slower, cpu.run, cpu.needs_definition),
    Path("reference", _nothing, _nothing, _nothing, _define),
)
"""Fastest first. The last is the definition in plain tensor operations, which runs every operator."""


def devices_of(name: PathName) -> tuple[str, ...]:
    """Return the types of devices on which the path computes."""
    own: dict[str, tuple[str, ...]] = {"triton": ("cuda",), "cpu": ("cpu",)}
    return own.get(name, ("cpu", "cuda"))


class PathChoice(NamedTuple):
    """The path of a call and why faster ones do not compute it."""

    path: Path
    reasons: dict[str, str]
    """By name of a faster path."""


@lru_cache(maxsize=4096)
def choose(operator: Operator, case: Case, name: PathName = "auto") -> PathChoice:
    """Choose the path for a call of `operator`; raise SpecError if the named path cannot run it or does not exist."""
    if name != "auto":
        return PathChoice(find_path(operator, name, case), {})
    reasons = dict[str, str]()
    for path in PATHS:
        reason = path.reason(operator, case) or path.slower(operator, case)
        if reason is None:
            return PathChoice(path, reasons)
        reasons[path.name] = reason
    raise AssertionError("the definition runs everything")


def find_path(operator: Operator, name: PathName, case: Case | None = None) -> Path:
    """Return the path with this name; raise SpecError if there is none or it cannot run `operator`, or `case` of it."""
    for path in PATHS:
        if path.name == name:
            reason = path.cannot(operator) if case is None else path.reason(operator, case)
            if reason is None:
                return path
            instead = "" if case is None else f", which runs path {choose(operator, case).path.name!r}"
            raise SpecError(f"path {name!r} cannot run {operator.label!r}: {reason}; use path='auto'{instead}")
    raise SpecError(f"there is no path {name!r}; there are auto, {', '.join(path.name for path in PATHS)}")
