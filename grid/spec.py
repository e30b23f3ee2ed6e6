"""Specs: frozen pydantic models of pure data, with one canonical form and one key.

A `Spec` is a value. A `Choice` is a family of specs that `kind` distinguishes: a field typed with the abstract family
accepts every concrete member and writes *all* of its fields. Defining a class makes it a member, in this package or in
a user's spec file.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from ablate.grid.errors import SpecError
from ablate.grid.frozen import FROZEN
from ablate.grid.key import canonical_json, content_key
from ablate.grid.suggestions import SYNONYMS, suggest_name
from ablate.grid.validation import refuse_text, spec_error
from ablate.grid.values import MOST_LABEL, MOST_NAME, show, text_fault


class OutsideKey:
    """Marks a field that cannot change a measured number: `Annotated[int, OutsideKey()]` stays out of the key."""


class Added:
    """Marks a field that a later release added: at its default it stays out of the key, so that old keys remain."""


def _require_fit(text: str, most: int) -> str:
    if fault := text_fault(text, most):
        raise ValueError(f"{show(text)} {fault}; write it otherwise")
    return text


Name = Annotated[str, AfterValidator(partial(_require_fit, most=MOST_NAME))]
"""A name in tables, of a measurement or a coordinate."""

Label = Annotated[str, OutsideKey(), AfterValidator(lambda text: text and _require_fit(text, MOST_LABEL))]
"""A name for tables and charts, or ""; specs that differ only in labels have the same key."""


class Spec(BaseModel):
    """Frozen plain data. Unknown fields are errors; equal meaning is an equal key.

    A field typed with a concrete spec holds exactly that class; use a `Choice` for several classes. Invalid data raise
    pydantic's ValidationError; `spec_error` turns it into one sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    version: ClassVar[int] = 1
    """Version of the numbers that this class computes; raise it when an edit changes them. Results store it."""

    @classmethod
    def code_name(cls) -> str:
        """Return the name under which results store the version: the class, or family and kind of a choice."""
        return cls.__name__

    def other_versions(self) -> Mapping[str, str]:
        """Return versions of code beside its class that computes it, by the name under which results store them."""
        return {}

    @cached_property
    def canonical(self) -> str:
        """Canonical JSON of every field in the key, defaults included."""
        return _canonical_without(self, "")

    @cached_property
    def _everything(self) -> str:
        """All fields, labels included, as one text for fast comparison."""
        values = self.__dict__
        parts = [f"{name}:{_everything(values[name])}" for name in field_names(type(self))]
        return f"{type(self).__module__}.{type(self).__qualname__}({','.join(parts)})"

    @cached_property
    def key(self) -> str:
        """The 128-bit content key as 32 hexadecimal digits."""
        return content_key(self.canonical)

    @property
    def label(self) -> str:
        """Name for tables and charts: the kind of a choice, else the class name."""
        return str(getattr(self, "kind", type(self).__name__))

    def data(self) -> dict[str, Any]:
        """Return all fields, labels included, as JSON data; `model_validate` reads it back."""
        return self.model_dump(mode="json")

    def relabel(self, before: Self) -> Self:  # noqa: ARG002  (for specs with a name)
        """Correct the label of this spec, which a grid's axes made from `before`."""
        return self

    def changed(self, **fields: Any) -> Self:
        """Return a validated copy with `fields` replaced; raise `SpecError`."""
        try:
            return rebuilt(self, fields)
        except ValidationError as error:
            raise spec_error(error, type(self).__name__) from error

    def set_normal_form(self, **values: object) -> None:
        """Set fields to their normal form; for validators.

        The given values are kept: `changed` and axes of a grid start from them, since the normal form may depend on
        other fields. A share of layers, for example, depends on the number of layers.
        """
        now = self.__dict__
        for name, value in values.items():
            if now[name] != value:
                now.setdefault(_WRITTEN, {}).setdefault(name, now[name])
                now[name] = value

    def as_given(self, name: str) -> object:
        """Return the field `name` as it was given, before `set_normal_form`."""
        now = self.__dict__
        return now[_WRITTEN][name] if name in now.get(_WRITTEN, ()) else now[name]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy like `changed`; pydantic's own copy does not validate and would keep the old key."""
        del deep  # a frozen value shares its parts
        return self.changed(**update) if update else self

    def __eq__(self, other: object) -> bool:
        """Equal when the types and all fields, labels included, are equal."""
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return bool(self._everything == other._everything)

    def __hash__(self) -> int:
        return hash((type(self), self.canonical))

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.model_fields.items():
            _check_field(f"{cls.__name__}.{name}", field.annotation, field.metadata)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        if schema["type"] == "function-wrap" and schema["function"]["function"] == cls._admit:
            return schema  # the check is there already
        return core_schema.no_info_wrap_validator_function(cls._admit, refuse_text(schema))

    @classmethod
    def _admit(cls, value: object, validate: ValidatorFunctionWrapHandler) -> object:
        """Accept an instance; refuse a subclass and unknown fields."""
        if type(value) is cls:
            return value
        if isinstance(value, cls):  # pydantic would accept it and drop its own fields
            words = {"cls": cls.__name__, "got": type(value).__name__}
            raise PydanticCustomError(
                "field",
                "{got} is a subclass of {cls}, which the field does not hold; make {cls} a Choice family",
                words,
            )
        if isinstance(value, dict) and (unknown := [name for name in value if name not in cls.model_fields]):
            raise PydanticCustomError("field", "{told}", {"told": not_a_field(str(unknown[0]), cls)})
        return validate(value)


S = TypeVar("S", bound=Spec)

_WRITTEN = "_written"


@cache
def field_names(cls: type[Spec]) -> tuple[str, ...]:
    """Return the fields of a spec class, in order of declaration."""
    return tuple(cls.model_fields)


def rebuilt(spec: S, fields: Mapping[str, object]) -> S:
    """Validate a copy of `spec` as it was given, with `fields` replaced; the other fields are shared.

    Raises pydantic's ValidationError.
    """
    values = spec.__dict__
    before = {name: values[name] for name in field_names(type(spec))}
    return type(spec).model_validate({**before, **values.get(_WRITTEN, {}), **fields})


def cell_key(spec: Spec) -> str:
    """Return the key of a trial without its `seed`; trials that share it are replicates of one cell."""
    return content_key(_canonical_without(spec, "seed"))


def not_a_field(name: str, owner: type[Spec]) -> str:
    """Describe a field that does not exist, with the existing fields and the nearest name."""
    known = sorted(field_names(owner))
    near = suggest_name(name, known) or next((f"; did you mean {path!r}?" for path in _deeper(name, owner)), "")
    return f"{name!r} is not a field of {owner.__name__}; it has {', '.join(known)}{near}"


def _deeper(name: str, owner: type[Spec], depth: int = 3) -> Iterator[str]:
    """Yield the paths of fields of that name, or its synonym, in the specs that `owner` holds; nearer ones first."""
    below = [
        (field, each)
        for field, info in owner.model_fields.items()
        for cls in (info.annotation, *get_args(info.annotation))
        if isinstance(cls, type) and issubclass(cls, Spec) and cls is not owner
        for each in (cls, *cls.__subclasses__())
    ]
    wanted = {name, SYNONYMS.get(name.lower(), name)}
    yield from (f"{field}.{inner}" for field, cls in below for inner in field_names(cls) if inner in wanted)
    if depth > 1:
        yield from (f"{field}.{path}" for field, cls in below for path in _deeper(name, cls, depth - 1))


def is_outside_key(cls: type[Spec], name: str) -> bool:
    """Return True if a field is not part of the key."""
    return any(isinstance(mark, OutsideKey) for mark in cls.model_fields[name].metadata)


def _canonical_without(spec: Spec, skipped: str) -> str:
    values = spec.__dict__
    parts = [
        start + _canonical(values[name])
        for name, start, without in _identity(type(spec))
        if name != skipped and values[name] not in without
    ]
    return "{" + ",".join(parts) + "}"


@cache
def _identity(cls: type[Spec]) -> tuple[tuple[str, str, tuple[object, ...]], ...]:
    """Return the fields in the key, how each begins in JSON, and the value at which it stays out of the key."""
    names = sorted(name for name in field_names(cls) if not is_outside_key(cls, name))
    fields = cls.model_fields
    without = {name: any(isinstance(mark, Added) for mark in fields[name].metadata) for name in names}
    defaults = {name: (fields[name].get_default(call_default_factory=True),) for name in names if without[name]}
    return tuple((name, f"{canonical_json(name)}:", defaults.get(name, ())) for name in names)


def _canonical(value: object) -> str:
    if isinstance(value, Spec):
        return value.canonical
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_canonical, value)) + "]"
    return canonical_json(value)


def _everything(value: object) -> str:
    if isinstance(value, Spec):
        return value._everything
    return "(" + ",".join(map(_everything, value)) + ")" if isinstance(value, list | tuple) else _canonical(value)


def _check_field(where: str, annotation: Any, metadata: list[Any]) -> None:
    """Refuse a field type that could change in place."""
    origin = get_origin(annotation) or annotation
    if origin in (list, set, dict, Mapping) and FROZEN not in metadata:
        remedy = "Annotated[dict[...], FROZEN]" if origin in (dict, Mapping) else "tuple[..., ...]"
        raise SpecError(f"{where} is a {origin.__name__}, which can be changed in place; use {remedy}")
    for inner in () if origin is Literal else get_args(annotation):
        if isinstance(inner, OutsideKey):
            raise SpecError(
                f"{where} has OutsideKey inside its type; move it to the outside, where it marks the whole field"
            )
        _check_field(where, inner, metadata if origin is Annotated else [])


def _kind_of(cls: type[BaseModel]) -> str | None:
    field = cls.model_fields.get("kind")
    if field is None:
        return None
    if get_args(field.annotation) != (field.default,) or not isinstance(field.default, str):
        raise SpecError(f'{cls.__name__} has a kind that is not one fixed name; write kind: Literal["x"] = "x"')
    return field.default


def _refuse_second(known: "type[Choice] | None", cls: "type[Choice]", kind: str) -> None:
    """Refuse a second class of the same kind; loading one file twice is allowed."""
    if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise SpecError(f"kind {kind!r} is already {_home(known)}; give {_home(cls)} another kind")


def _home(cls: type) -> str:
    """Return where a class is defined: its module, or the file if it was not imported by name."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    own = file is not None and Path(file).stem == cls.__module__.rpartition(".")[2]
    return f"{cls.__module__}.{cls.__qualname__}" if own or file is None else f"{cls.__qualname__} of {Path(file).name}"


class Choice(Spec):
    """A family of specs that `kind: Literal["..."] = "..."` distinguishes.

    An abstract class of the family, without a `kind` field, as a field type accepts every concrete member. An instance
    keeps its class and writes all its fields. Defining a class with a kind that is taken raises `SpecError`.
    """

    replacements: ClassVar[Mapping[str, str]] = {}
    """Replacements of kinds of earlier releases, by kind."""
    _members: ClassVar[dict[str, type["Choice"]]] = {}

    @classmethod
    def code_name(cls) -> str:
        """Return family and kind, such as "Score ssa"."""
        kind, families = _kind_of(cls), cls._families()
        return super().code_name() if kind is None or not families else f"{families[-1].__name__} {kind}"

    @classmethod
    def _families(cls) -> list[type["Choice"]]:
        """List the families of this class, the widest last; `Choice` itself is none."""
        return [each for each in cls.__mro__ if issubclass(each, Choice) and "_members" in vars(each)][:-1]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        kind = _kind_of(cls)
        if kind is None:
            cls._members = {}
            return
        families = cls._families()
        for family in families:
            _refuse_second(family._members.get(kind), cls, kind)
        for family in families:
            family._members[kind] = cls

    @classmethod
    def members(cls) -> dict[str, type[Self]]:
        """Return the concrete members of this family by `kind`, sorted."""
        return dict(sorted(cls._members.items()))  # type: ignore[arg-type]  # one dict per family, filled by it

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        if _kind_of(cls) is not None:
            return super().__get_pydantic_core_schema__(source, handler)
        return core_schema.no_info_plain_validator_function(cls._choose)

    @classmethod
    def _choose(cls, value: object) -> "Choice":
        if isinstance(value, cls):
            return value
        kind = value.get("kind") if isinstance(value, dict) else value
        member = cls._members.get(kind) if isinstance(kind, str) and isinstance(value, dict) else None
        if member is not None:
            return member.model_validate(value)
        known = ", ".join(sorted(cls._members)) or "none yet"
        wanted = f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__} spec"
        if isinstance(value, type) and issubclass(value, cls):
            told = f"expected {wanted}, got the class {value.__name__}; call it: {value.__name__}()"
            raise PydanticCustomError("choice", "{told}", {"told": told})
        rest = cls.replacements.get(str(kind)) or f"it has {known}{suggest_name(str(kind), list(cls._members))}"
        told = (
            f"{cls.__name__} has no kind {kind!r}; {rest}"
            if isinstance(value, dict)
            else f"expected {wanted} (kinds: {known}), got {value!r}"
        )
        raise PydanticCustomError("choice", "{told}", {"told": told})


class OneOf:
    """Marks a field that holds a `plain` spec or a member of a `family`: `Annotated[Operator | Mixer, OneOf(...)]`.

    A mapping with a `kind` is of the family.
    """

    def __init__(self, plain: type[Spec], family: type[Choice]) -> None:
        self._plain, self._family = plain, family

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.no_info_plain_validator_function(self._choose)

    def _choose(self, value: object) -> Spec:
        cls = value if isinstance(value, type) else type(value)
        if issubclass(cls, self._family) or (isinstance(value, dict) and "kind" in value):
            return self._family._choose(value)
        if hasattr(cls, "forward") or getattr(value, "__name__", "") == "<lambda>":
            family, got = self._family.__name__, "module" if hasattr(cls, "forward") else "lambda"
            told = f"expected a spec of class {self._plain.__name__} or a {family}, got a {got}"
            told += f"; write class Mine({family}) whose build(...) returns the module"
            raise PydanticCustomError("choice", "{told}", {"told": told})
        return self._plain.model_validate(value)
