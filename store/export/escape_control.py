"""Text that a terminal shows and does not obey."""

from typing import Final

_CONTROLS: Final = [*range(0x20), *range(0x7F, 0xA0)]
_TURNING: Final = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Characters that change the direction of what follows."""
_ESCAPES: Final = {code: rf"\u{code:04x}" for code in (*_CONTROLS, *_TURNING) if code not in map(ord, "\t\n")}


def escape_control(text: str) -> str:
    """`text` with control characters, and those that turn the direction of writing, as JSON escapes them: `\\u001b`.

    Lines and tabs stay. JSON stays JSON of the same meaning.
    """
    return text.translate(_ESCAPES)
