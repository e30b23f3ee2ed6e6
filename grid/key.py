"""Canonical JSON and the 128-bit content key: the identity of a spec for ever.

    canonical   UTF-8 JSON, object keys sorted, no spaces, shortest float form, -0.0 written 0.0, no NaN or infinity
    key         blake2b-128 of  {"schema": SPEC_SCHEMA, "spec": canonical}  as 32 hexadecimal digits
"""

import json
import math
from collections.abc import Mapping
from hashlib import blake2b

from grid.errors import SpecError

SPEC_SCHEMA = 1
"""Raised only when the meaning of stored specs changes; every key changes with it."""


def canonical_json(data: object) -> str:
    """The one way to write `data` (mappings, sequences, strings, numbers, booleans, None) as JSON."""
    if data is None or isinstance(data, bool | str | int):
        return json.dumps(data, ensure_ascii=False)
    if isinstance(data, float):
        return canonical_float(data)
    if isinstance(data, Mapping):
        parts = (f"{json.dumps(name, ensure_ascii=False)}:{canonical_json(data[name])}" for name in sorted(data))
        return "{" + ",".join(parts) + "}"
    if isinstance(data, list | tuple):
        return "[" + ",".join(map(canonical_json, data)) + "]"
    raise SpecError(f"a spec holds plain data only; {type(data).__name__} has no canonical JSON")


def canonical_float(value: float) -> str:
    """Shortest text that reads back as `value`; -0.0 is 0.0."""
    if not math.isfinite(value):
        raise SpecError(f"a spec holds finite numbers only; got {value}")
    return repr(value + 0.0)


def content_key(canonical: str) -> str:
    """128-bit key of a canonical JSON text, as 32 hexadecimal digits."""
    text = f'{{"schema":{SPEC_SCHEMA},"spec":{canonical}}}'
    return blake2b(text.encode(), digest_size=16).hexdigest()
