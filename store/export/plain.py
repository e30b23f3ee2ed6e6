"""Values as JSON has them, and text that a terminal shows and does not obey."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

_CONTROLS: Final = [*range(0x20), *range(0x7F, 0xA0)]
_TURNING: Final = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Characters that change the direction of what follows."""
_ESCAPES: Final = {code: rf"\u{code:04x}" for code in (*_CONTROLS, *_TURNING) if code not in map(ord, "\t\n")}


def plain(value: object) -> object:
    """`value` as JSON has it: null if not finite, a decimal as number, bytes in hexadecimal, others as text."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Decimal):  # the database sums integers to this type
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def escape_control(text: str) -> str:
    """`text` with control characters, and those that turn the direction of writing, as JSON escapes them: `\\u001b`.

    Lines and tabs stay. JSON stays JSON of the same meaning.
    """
    return text.translate(_ESCAPES)
