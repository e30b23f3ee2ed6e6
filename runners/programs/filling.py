"""Texts with {names} that the values of a trial fill: arguments, environment variables, a file of fields."""

import json
from collections.abc import Iterable, Mapping
from string import Formatter

RESERVED = ("seed", "directory", "config")
"""Names that every program has."""


def names_in(text: str) -> set[str]:
    """Return the names in braces; raise ValueError if a brace is no name. `{{` and `}}` are braces themselves."""
    advice = "write {{ and }} for braces of the program's own"
    try:
        parts = [each for each in Formatter().parse(text) if each[1] is not None]
    except ValueError as error:
        raise ValueError(f"{text!r} has a brace that belongs to no name ({error}); {advice}") from error
    for _, name, form, conversion in parts:
        if not str(name).isidentifier() or conversion or "{" in (form or ""):
            raise ValueError(f"{text!r} has {{{name}}}, which is no name; {advice}")
    return {str(name) for _, name, _, _ in parts}


def fill(text: str, values: Mapping[str, object]) -> str:
    """Put values in place of their names: `{lr}`, or with a format, `{lr:.4f}`."""
    plain = {name: each if isinstance(each, str | int | float) else _json(each) for name, each in values.items()}
    try:
        return text.format_map({name: str(each) if isinstance(each, bool) else each for name, each in plain.items()})
    except ValueError as error:
        raise ValueError(f"the format in {text!r} does not fit its value ({error}); write one that does") from error


def fill_all(texts: Iterable[str], values: Mapping[str, object]) -> list[str]:
    """Fill arguments; one that is empty once filled is left out, as of a flag that is off."""
    return [filled for text in texts if (filled := fill(text, values)) or not text]


def file_of(fields: Mapping[str, object], values: Mapping[str, object]) -> str:
    """Return a file of fields, which is JSON and YAML; "{seed}" and "{directory}" stand for the values themselves."""
    texts = {f"{{{name}}}": values[name] for name in RESERVED}
    return _json({name: texts.get(each, each) if isinstance(each, str) else each for name, each in fields.items()})


def _json(value: object) -> str:
    """Write JSON that YAML reads alike: without a point, 1e-05 is a text in YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_json(name)}: {_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)
