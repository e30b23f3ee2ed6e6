"""Values as JSON has them."""

from collections.abc import Mapping
from decimal import Decimal


def plain(value: object) -> object:
    """`value` as JSON has it: what is not finite is null, a decimal a number, bytes are hexadecimal digits.

    Anything unknown is its text.
    """
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
