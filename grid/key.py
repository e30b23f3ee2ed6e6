"""Canonical JSON and the 128-bit content key, the permanent identity of a spec.

canonical   UTF-8 JSON, object keys sorted, no spaces, shortest float form, -0.0 written 0.0, no NaN or infinity
key         blake2b-128 of  {"schema": SPEC_SCHEMA, "spec": canonical}  as 32 hexadecimal digits

Which fields are in the text is decided in `ablate.grid.spec`: all, but for `OutsideKey`, and `Added` at their default.
"""

import json
import math
from collections.abc import Mapping
from hashlib import blake2b

from ablate.grid.errors import SpecError
from ablate.grid.values import show

SPEC_SCHEMA = 1
"""Increased only if the meaning of stored specs changes; every key then changes."""

_encode = json.JSONEncoder(ensure_ascii=False).encode


def canonical_json(data: object) -> str:
    """Write `data` (mappings, sequences, strings, numbers, booleans, None) as canonical JSON.

    Raises `SpecError` for other data, numbers that are not finite, and keys that are not strings.
    """
    if data is None or isinstance(data, bool | str | int):
        return _encode(data)
    if isinstance(data, float):
        if not math.isfinite(data):
            raise SpecError(f"{data} is not finite; write a finite number")
        return repr(float(data) + 0.0)  # the shortest text that reads back as the number; -0.0 is 0.0
    if isinstance(data, Mapping):
        if strange := [name for name in data if not isinstance(name, str)]:
            raise SpecError(f"{strange[0]!r} names an entry of a mapping in a spec; name it by a string")
        return "{" + ",".join(f"{_encode(name)}:{canonical_json(data[name])}" for name in sorted(data)) + "}"
    if isinstance(data, list | tuple):
        return "[" + ",".join(map(canonical_json, data)) + "]"
    if callable(data):
        name = getattr(data, "__name__", type(data).__name__)
        what = "class" if isinstance(data, type) else "function"
        raise SpecError(f"the {what} {name} is no value of a spec; write {name}()")
    raise SpecError(
        f"{show(data)} is of class {type(data).__name__}, and no plain data; write it as a number, a string, a tuple "
        "or a spec of its own"
    )


def content_key(canonical: str) -> str:
    """Hash a canonical JSON text to a 128-bit key of 32 hexadecimal digits."""
    text = f'{{"schema":{SPEC_SCHEMA},"spec":{canonical}}}'
    try:
        return blake2b(text.encode(), digest_size=16).hexdigest()
    except UnicodeEncodeError as error:
        raise SpecError(f"{error.object[error.start]!r} is half a character; a spec holds Unicode text") from error
