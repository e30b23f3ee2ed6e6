"""Names and texts as they are written inside SQL."""


def identifier(name: str) -> str:
    """`name` as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """`value` as a text literal."""
    return "'" + value.replace("'", "''") + "'"
