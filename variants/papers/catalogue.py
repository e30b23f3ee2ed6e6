"""The catalogue of named operators: functions that make one, with their limits and common mistakes."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs, CoreConfig, SchemaValidator

from ablate.grid.docstrings import docstring
from ablate.grid.errors import SpecError
from ablate.grid.suggestions import MAKERS, not_an_argument
from ablate.grid.validation import refuse_text, spec_error
from ablate.variants.operator import Operator

Paper = Literal["baseline", "000", "001", "002", "003", "004", "beyond"]

PAPERS: Mapping[Paper, str] = {
    "baseline": "Baseline",
    "000": "Affine-Scaled Attention (arXiv 2602.23057)",
    "001": "Principled Attention (R. Vermillion, draft)",
    "002": "Integral Transformer (arXiv 2508.18387)",
    "003": "Scaled Signed Averaging (arXiv 2508.14685)",
    "004": "When Attention Sink Emerges (arXiv 2410.10781)",
    "beyond": "beyond the five papers",
}


Where = Literal[
    "anywhere",
    "logits above 0",
    "logits below 0",
    "logits of 0",
    "small logits",
    "equal signals",
    "first signal",
    "unit",
]
"""Inputs of a limit.

"small logits": q and k times 1e-3. "equal signals": all slices are the same. "first signal": other signals are 0.
"unit": q and k have a root mean square of 1.
"""


class Limit(NamedTuple):
    """A limit that the laws check: with these numbers and fields, on such inputs, the operator is another one."""

    words: str
    """In the paper's symbols, e.g. "s -> -inf"."""
    numbers: Mapping[str, float]
    """Values by "stage.field"; other numbers keep their start."""
    to: Callable[[], Operator]
    """The operator it becomes."""
    within: float = 1e-12
    """The largest absolute difference of outputs for standard normal q, k, v in float64."""
    where: Where = "anywhere"
    """The queries and keys it holds for."""
    fields: Mapping[str, Mapping[str, object]] = {}
    """Fields other than numbers that the limit sets, by stage."""


class NamedOperator(NamedTuple):
    """A named operator with its limits and common mistakes."""

    name: str
    """The function's name, as in `ablate operators NAME`."""
    paper: Paper
    line: str
    """First line of the function's docstring."""
    make: Callable[[], Operator]
    """The operator with its default arguments."""
    limits: tuple[Limit, ...]
    pitfalls: tuple[str, ...]
    """Common mistakes about it, one sentence each."""


_CATALOGUE: dict[str, NamedOperator] = {}

F = TypeVar("F", bound=Callable[..., Operator])


def named_operator(paper: Paper, *, limits: tuple[Limit, ...] = (), pitfalls: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Add a function that makes an operator to the catalogue. All its arguments need defaults.

    The function raises SpecError for an argument that it lacks or that its annotation excludes.

    Raises SpecError if an argument has no default, the docstring is missing, or the name is taken.
    """
    if paper not in PAPERS:
        hint = "write @named_operator('beyond')" if callable(paper) else f"yours is 'beyond'; got {paper!r}"
        raise SpecError(f"the operator names none of the papers {', '.join(PAPERS)}; {hint}")

    def register(function: F) -> F:
        line = docstring(function).partition("\n")[0]
        _check(function, line)
        make = _check_arguments(function)
        _CATALOGUE[make.__name__] = NamedOperator(make.__name__, paper, line, make, limits, pitfalls)
        MAKERS[Operator.__name__] = [*_CATALOGUE]
        return make

    return register


def _check(make: Callable[..., Operator], line: str) -> None:
    name, home = make.__name__, make.__module__
    if not line:
        raise SpecError(f"{name} of {home} has no docstring; write in one line what the operator is")
    bare = [each.name for each in inspect.signature(make).parameters.values() if each.default is each.empty]
    if bare:
        raise SpecError(
            f"{name} of {home} gives no default to {bare}; a named operator has one for each argument, add them"
        )
    known = _CATALOGUE.get(name)
    if known is not None and known.make.__module__ != home:
        raise SpecError(f"{name!r} is already an operator of {known.make.__module__}; give that of {home} another name")


def _check_arguments(function: F) -> F:
    """Wrap a function so that it raises SpecError for an argument that it lacks or that its annotation excludes."""
    signature = inspect.signature(function)
    settings = CoreConfig(title=function.__name__, allow_inf_nan=False)
    checked = SchemaValidator(refuse_text(TypeAdapter(cast(Any, function)).core_schema), settings)

    @wraps(function)
    def make(*args: Any, **kwargs: Any) -> Operator:
        for name in kwargs.keys() - signature.parameters.keys():
            raise SpecError(not_an_argument(name, function))
        try:
            arguments = signature.bind(*args, **kwargs).arguments
            return cast(Operator, checked.validate_python(ArgsKwargs((), arguments)))
        except ValidationError as error:
            if error.title != function.__name__:  # a spec that the function builds
                raise
            raise spec_error(error, function.__name__) from error

    return cast(F, make)


def catalogue() -> dict[str, NamedOperator]:
    """Return every named operator by name: first the package's in the order of the papers, then the user's."""
    order = list(PAPERS)
    return dict(sorted(_CATALOGUE.items(), key=lambda item: order.index(item[1].paper)))


@named_operator("baseline")
def softmax() -> Operator:
    """Scaled dot-product attention."""
    return Operator(name="softmax")
