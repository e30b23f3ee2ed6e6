"""Specs: frozen, closed pydantic models that are pure data, with one canonical form and one key.

A `Spec` is a value. A `Choice` is a family of specs told apart by `kind`: a field typed with the abstract family
accepts every concrete member, and writes *all* of that member's fields. Nobody registers a member; defining the class
is enough, in this package or in a user's own spec file.
"""

import json
from difflib import get_close_matches
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from grid.errors import SpecError
from grid.key import canonical_float, canonical_json, content_key


class OutsideKey:
    """Marks a field that cannot change a measured number: `Annotated[int, OutsideKey()]` stays out of the key."""


Label = Annotated[str, OutsideKey()]
"""A name for tables and charts; two specs that differ only in labels are the same spec."""


class Spec(BaseModel):
    """Frozen, closed, plain data. Unknown fields are errors, equal meaning is an equal key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @cached_property
    def canonical(self) -> str:
        """Canonical JSON of every field that is part of the identity, defaults included."""
        parts = [f"{json.dumps(name)}:{_canonical(getattr(self, name))}" for name in _identity_fields(type(self))]
        return "{" + ",".join(parts) + "}"

    @cached_property
    def key(self) -> str:
        """The 128-bit content key, 32 hexadecimal digits."""
        return content_key(self.canonical)

    def changed(self, **fields: Any) -> Self:
        """A validated copy with `fields` replaced."""
        return type(self).model_validate({**{name: getattr(self, name) for name in type(self).model_fields}, **fields})

    def __eq__(self, other: object) -> bool:
        """Equal when the types and all fields, labels included, are equal."""
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).model_fields)

    def __hash__(self) -> int:
        return hash((type(self), self.canonical))


_FIELDS: dict[type[Spec], tuple[str, ...]] = {}


def _identity_fields(cls: type[Spec]) -> tuple[str, ...]:
    if cls not in _FIELDS:
        _FIELDS[cls] = tuple(
            sorted(
                name
                for name, field in cls.model_fields.items()
                if not any(isinstance(mark, OutsideKey) for mark in field.metadata)
            )
        )
    return _FIELDS[cls]


def _canonical(value: object) -> str:
    if isinstance(value, Spec):
        return value.canonical
    if isinstance(value, float):
        return canonical_float(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return canonical_json(value)


def _kind_of(cls: type[BaseModel]) -> str | None:
    field = cls.model_fields.get("kind")
    values = get_args(field.annotation) if field is not None else ()
    return str(values[0]) if len(values) == 1 else None


class Choice(Spec):
    """A family of specs told apart by `kind`.

    An abstract member of the family (no `kind` field) used as a field type stands for the union of all concrete
    members defined so far; an instance keeps its own class and writes all its fields.
    """

    _members: ClassVar[dict[str, type["Choice"]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        kind = _kind_of(cls)
        if kind is None:
            cls._members = {}
            return
        known = cls._members.get(kind)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise SpecError(
                f"kind {kind!r} is already {known.__module__}.{known.__qualname__}; "
                f"give {cls.__module__}.{cls.__qualname__} another kind"
            )
        cls._members[kind] = cls

    @classmethod
    def members(cls) -> dict[str, type[Self]]:
        """The concrete members of this family by `kind`, sorted."""
        return dict(sorted(cls._members.items()))  # type: ignore[arg-type]  # one dict per family, filled by it

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        if _kind_of(cls) is not None:
            return handler(source)
        return core_schema.no_info_plain_validator_function(cls._choose)

    @classmethod
    def _choose(cls, value: object) -> "Choice":
        if isinstance(value, cls):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError(
                "choice", "{family} expects one of its specs, got {got}", {"family": cls.__name__, "got": repr(value)}
            )
        kind = value.get("kind")
        member = cls._members.get(kind) if isinstance(kind, str) else None
        if member is None:
            raise PydanticCustomError(
                "choice",
                "{family} has no kind {kind}; it has {known}{hint}",
                {
                    "family": cls.__name__,
                    "kind": repr(kind),
                    "known": ", ".join(sorted(cls._members)),
                    "hint": did_you_mean(str(kind), list(cls._members)),
                },
            )
        return member.model_validate(value)


def did_you_mean(name: str, known: list[str]) -> str:
    """`"; did you mean 'x'?"` for the nearest of `known`, or nothing."""
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
