"""A stage of an operator: the declarations of every member, checked when its class is defined."""

import inspect
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, get_origin

from pydantic import model_validator

from grid.errors import SpecError
from grid.spec import Choice
from variants.number import Matrix, Number, RunningMean, Vector


class Stage(Choice):
    """A stage of an operator. A member is a frozen spec; its module's docstring gives the formula and its symbols."""

    source: ClassVar[str]
    """Source of the formula, with the equation's number."""
    functions: ClassVar[tuple[str, ...]] = ("oracle",)
    """The methods that take the member's numbers as keywords by field name."""
    advice: ClassVar[str] = ""
    """Advice for a member's class that lacks a method."""
    traps: ClassVar[tuple[str, ...]] = ()
    """Common mistakes about it, one sentence each."""
    _means: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _means_have_their_number(self) -> Self:
        for name in self._means:
            of = getattr(self, name).of
            other = RunningMean | Vector | Matrix
            scalars = [each for each, number in self.numbers().items() if not isinstance(number, other)]
            if of not in scalars:
                raise ValueError(f"{name}.of names a scalar number of its stage, one of {scalars}; got {of!r}")
        return self

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        _require_kind(cls)
        if "kind" in cls.model_fields:  # a class that is refused takes no kind
            _require_whole(cls)
            _require_literals(cls)
            _require_source(cls)
            _require_plain_numbers(cls)
            cls._means = tuple(name for name, field in cls.model_fields.items() if field.annotation is RunningMean)
            for name in cls.functions:
                _require_numbers(cls, name)
        super().__pydantic_init_subclass__(**kwargs)

    @classmethod
    def example(cls) -> Self:
        """Make a member that fits heads of 8 channels, for the laws."""
        return cls()

    @property
    def breaks(self) -> Mapping[str, str]:
        """Laws that it breaks, each with the reason: "causality", "prefix", "heads" (see `variants.laws`)."""
        return {}

    @property
    def longest(self) -> int | None:
        """Longest sequence it is defined for; None for any."""
        return None

    def numbers(self) -> dict[str, Number]:
        """Return its numbers by field."""
        values = self.__dict__
        return {name: values[name] for name in type(self).model_fields if isinstance(values[name], Number)}


del Stage._members  # not a family of its own: a margin and a gate may have the same kind


class Tends(NamedTuple):
    """An identity: with these numbers the score equals that of the member `to` within a relative error."""

    numbers: dict[str, float]
    to: str
    within: float


def _missing(cls: type[Stage]) -> list[str]:
    return sorted(getattr(cls, "__abstractmethods__", frozenset[str]()))


def _require_kind(cls: type[Stage]) -> None:
    """Require a kind of a class that defines everything else."""
    whole = not _missing(cls) and bool(getattr(cls, "source", ""))
    if whole and "kind" not in cls.model_fields:
        word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()
        raise SpecError(f'{cls.__qualname__} has no kind; add kind: Literal["{word}"] = "{word}"')


def _require_literals(cls: type[Stage]) -> None:
    """Check class variables that are annotated with a Literal."""
    for parent in cls.__mro__:
        for name, annotation in inspect.get_annotations(parent).items():
            inner = get_args(annotation)[:1] if str(annotation).startswith("typing.ClassVar[") else ()
            if not inner or get_origin(inner[0]) is not Literal:
                continue
            words, given = get_args(inner[0]), getattr(cls, name, None)
            if given not in words and not isinstance(given, property):
                raise SpecError(f"{cls.__qualname__}.{name} is one of {', '.join(words)}; got {given!r}")


def _require_whole(cls: type[Stage]) -> None:
    missing = _missing(cls)
    if missing:
        hint = f"; {cls.advice}" if cls.advice else ""
        raise SpecError(f"{cls.__qualname__} does not define {', '.join(missing)}{hint}")


def _require_source(cls: type[Stage]) -> None:
    if not getattr(cls, "source", ""):
        raise SpecError(f'{cls.__qualname__} does not say where its formula is from; add source: ClassVar[str] = "..."')


def _require_plain_numbers(cls: type[Stage]) -> None:
    for name, field in cls.model_fields.items():
        if any(isinstance(part, type) and issubclass(part, Number) for part in get_args(field.annotation)):
            raise SpecError(f"{cls.__qualname__}.{name} holds a Number inside another type; give each its own field")


def _require_numbers(cls: type[Stage], name: str) -> None:
    """Check the keywords of a method, so that a misspelt number fails at definition and not in training."""
    numbers = {
        field
        for field, info in cls.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, Number)
    }
    parameters = inspect.signature(getattr(cls, name)).parameters.values()
    taken = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    if taken != numbers and not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        raise SpecError(
            f"{cls.__qualname__}.{name} takes the numbers of its spec by name, after *: {sorted(numbers)}; "
            f"it takes {sorted(taken)}{_advise_declaration(cls, taken - numbers)}"
        )


def _advise_declaration(cls: type[Stage], names: set[str]) -> str:
    fields = sorted(names & cls.model_fields.keys())
    return f"; declare {', '.join(fields)} as a Number, or read it from self" if fields else ""
