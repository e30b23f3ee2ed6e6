"""Queries that a campaign keeps under a name: `queries/<name>.sql`, one statement each."""

import re
from pathlib import Path

from grid.errors import NotFoundError, SpecError
from grid.spec import did_you_mean
from store.files import environment_problem, is_temporary, read_bytes, write_atomic
from store.layout import Layout

_NAME = re.compile(r"[a-z0-9_-]+")


def is_name(text: str) -> bool:
    """Whether `text` could name a saved query; no reading SQL statement is such a word."""
    return _NAME.fullmatch(text) is not None


def saved_queries(layout: Layout) -> dict[str, str]:
    """The campaign's saved queries by name, in the order of names.

    Raises:
        EnvironmentProblem: one cannot be read.
    """
    found = sorted(path for path in _directory(layout).glob("*.sql") if is_name(path.stem) and not is_temporary(path))
    return {path.stem: _read(path) for path in found if path.is_file()}


def saved_query(layout: Layout, name: str) -> str:
    """The text of the saved query `name`.

    Raises:
        SpecError: `name` cannot be one.
        NotFoundError: there is none of that name; says which there are.
        EnvironmentProblem: it cannot be read.
    """
    path = _path(layout, name)
    if not path.is_file():
        known = list(saved_queries(layout))
        listed = f"there are {known}{did_you_mean(name, known)}" if known else "there is none yet"
        raise NotFoundError(f"the campaign has no saved query {name!r}; {listed}: `ablate sql --save {name} QUERY`")
    return _read(path)


def save_query(layout: Layout, name: str, query: str) -> bool:
    """Keep `query` as `name`; whether that replaced another.

    Raises:
        SpecError: `name` cannot be one.
        EnvironmentProblem: it cannot be written.
    """
    path = _path(layout, name)
    replaced = path.is_file() and _read(path).strip() != query.strip()
    write_atomic(path, f"{query.strip()}\n".encode())
    return replaced


def _path(layout: Layout, name: str) -> Path:
    if not is_name(name):
        raise SpecError(f"a saved query is named by lower-case letters, digits, _ and -; got {name!r}")
    return _directory(layout) / f"{name}.sql"


def _directory(layout: Layout) -> Path:
    return layout.root / "queries"


def _read(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except OSError as error:
        raise environment_problem("read", path, error) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path} is not UTF-8 text ({error.reason}); save the query again") from error
