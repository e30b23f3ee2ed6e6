"""A stage of an operator: the declarations of every member, checked when its class is defined."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self, get_args

from pydantic import model_validator

from ablate.grid.errors import SpecError
from ablate.grid.spec import Choice
from ablate.variants.number import Matrix, Number, RunningMean, Vector
from ablate.variants.path_versions import path_versions


class Stage(Choice):
    """A stage of an operator. A member is a frozen spec; its docstring gives the formula and its symbols."""

    source: ClassVar[str]
    """Source of the formula, with the equation's number."""
    advice: ClassVar[str] = ""
    """Advice for a member's class that lacks a method."""
    pitfalls: ClassVar[tuple[str, ...]] = ()
    """Common mistakes about it, one sentence each."""
    _means: ClassVar[tuple[str, ...]] = ()

    def other_versions(self) -> Mapping[str, str]:
        """Return the versions of all paths."""
        return path_versions()

    @model_validator(mode="after")
    def _means_have_their_number(self) -> Self:
        for name in self._means:
            of = getattr(self, name).of
            other = RunningMean | Vector | Matrix
            scalars = [each for each, number in self.numbers().items() if not isinstance(number, other)]
            if of not in scalars:
                raise ValueError(f"{name}.of={of!r} is no scalar number of its stage; there are {scalars}")
        return self

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for fault in _find_faults(cls):  # a class that is refused takes no kind
            raise SpecError(fault)
        cls._means = tuple(name for name, field in cls.model_fields.items() if field.annotation is RunningMean)
        super().__pydantic_init_subclass__(**kwargs)

    @classmethod
    def example(cls) -> Self:
        """Make a member that fits heads of 8 channels, for the laws."""
        return cls()

    @property
    def breaks(self) -> Mapping[str, str]:
        """Laws that it breaks, each with the reason: "causality", "prefix", "heads" (see `ablate.variants.laws`)."""
        return {}

    @property
    def no_cache(self) -> str | None:
        """Why kept keys and values of earlier tokens do not suffice to compute the next; None if they do."""
        return self.breaks.get("prefix") or self.breaks.get("causality")

    @property
    def longest(self) -> int | None:
        """Longest sequence it is defined for; None for any."""
        return None

    def numbers(self) -> dict[str, Number]:
        values = self.__dict__
        return {name: values[name] for name in type(self).model_fields if isinstance(values[name], Number)}


del Stage._members  # not a family of its own: a margin and a gate may have the same kind


class Tends(NamedTuple):
    """An identity: with these numbers the score equals that of the member `to` within a relative error."""

    numbers: dict[str, float]
    to: str
    within: float


def _find_faults(cls: type[Stage]) -> Iterator[str]:
    name, missing = cls.__qualname__, sorted(getattr(cls, "__abstractmethods__", frozenset[str]()))
    source: str = getattr(cls, "source", "")
    if "kind" not in cls.model_fields:
        if not missing and source:
            word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
            yield f'{name} has no kind; add kind: Literal["{word}"] = "{word}"'
        return
    if missing:
        yield f"{name} does not define {', '.join(missing)}{f'; {cls.advice}' if cls.advice else ''}"
    if not source:
        yield f'{name} does not say where its formula is from; add source: ClassVar[str] = "..."'
    for field, info in cls.model_fields.items():
        if any(isinstance(part, type) and issubclass(part, Number) for part in get_args(info.annotation)):
            yield f"{name}.{field} holds a Number inside another type; give each its own field"
    for parent in cls.__mro__[1:]:
        for function, method in vars(parent).items():
            if inspect.isfunction(method) and getattr(method, "__isabstractmethod__", False) and _takes_any(method):
                yield from _find_other_numbers(cls, function)


def _takes_any(method: Callable[..., Any]) -> bool:
    """Return True if a method takes the numbers of any member, as those that a family declares do."""
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in inspect.signature(method).parameters.values())


def _find_other_numbers(cls: type[Stage], name: str) -> Iterator[str]:
    """Check the keywords of a method, so that a misspelt number fails at definition and not in training."""
    annotations = {field: info.annotation for field, info in cls.model_fields.items()}
    numbers = {field for field, kind in annotations.items() if isinstance(kind, type) and issubclass(kind, Number)}
    parameters = inspect.signature(getattr(cls, name)).parameters.values()
    taken = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    if taken != numbers and not _takes_any(getattr(cls, name)):
        fields = sorted((taken - numbers) & annotations.keys())
        advice = f"; declare {', '.join(fields)} as a Number, or read it from self" if fields else ""
        yield (
            f"{cls.__qualname__}.{name} takes the numbers of its spec by name, after *: {sorted(numbers)}; "
            f"it takes {sorted(taken)}{advice}"
        )
