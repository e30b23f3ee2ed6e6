"""The SQL that was asked while something was made, so that it can stand beside what was made of it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from ablate.store.database import quoting

_ASKED: Final = ContextVar[list[str] | None]("asked", default=None)
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|\$(?P<name>\w+)")


@contextmanager
def logged_queries() -> Iterator[list[str]]:
    """The statements that stores answer inside, in this thread, with their values written in: each once, in order."""
    queries: list[str] = []
    token = _ASKED.set(queries)
    try:
        yield queries
    finally:
        _ASKED.reset(token)


def note(query: str, parameters: Sequence[Any] | Mapping[str, Any] | None) -> None:
    """A store is asked `query`."""
    queries = _ASKED.get()
    if queries is not None and (text := with_values(query, parameters)) not in queries:
        queries.append(text)


def with_values(query: str, parameters: Sequence[Any] | Mapping[str, Any] | None) -> str:
    """`query` with the literal of every `$name` (of a sequence `$1`, `$2`, ...) in its place."""
    values = dict(parameters) if isinstance(parameters, Mapping) else dict(enumerate(parameters or (), 1))
    named = {str(name): value for name, value in values.items()}

    def literal(match: re.Match[str]) -> str:
        name = match["name"]
        return match[0] if name is None or name not in named else quoting.literal(named[name])

    return _TOKEN.sub(literal, query).strip()
