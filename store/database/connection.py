"""The live database: opened by one ingester, made if it is missing, made anew if an older version wrote it."""

import errno
import filecmp
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from ablate.grid.errors import AblateError, EnvironmentProblem, StoreError
from ablate.store.database import quoting
from ablate.store.database.schema_docs import ddl, describe
from ablate.store.files.atomic import (
    disk_errors,
    environment_problem,
    make_directory,
    sync_directory,
    unshare,
    write_atomic,
)
from ablate.store.files.layout import STORE_SCHEMA
from ablate.store.published.tables import fill

_LOG = logging.getLogger(__name__)

OFFLINE: Final = {
    # the engine would otherwise fetch an extension from the network when a query names one of its functions
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # keys to other people's data that lie in the home directory stay there
    "allow_persistent_secrets": False,
}
"""Settings of every connection."""


class DatabaseHeld(EnvironmentProblem):
    """Another program has the database open for writing."""


class DatabaseBroken(StoreError):
    """The database cannot be used, and `ablate check --rebuild` makes it again."""


@contextmanager
def open_live(path: Path, *, threads: int | None = None, empty: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A read-write connection to the database at `path`; the caller holds the ingest lock.

    One that an older version wrote is replaced by an empty one; with `empty`, also one of this version. Raises
    StoreError: a newer version wrote it, or it cannot be read; EnvironmentProblem: the disk is full or not writable, or
    another program has the database open.
    """
    make_directory(path.parent)
    with engine_errors(path), _engine_place(path) as place, ExitStack() as stack:
        if not place.exists():
            _create(place)
            empty = False
        for each in (place, _log(place)):
            with disk_errors("write", each), suppress(FileNotFoundError):
                unshare(each)
        connection = stack.enter_context(_connect(place, threads, path.parent.parent))
        older = stored_version(connection, path) < STORE_SCHEMA
        if older:
            _LOG.warning("ablate: %s was written by an older ablate; it is made again from the campaign's files", path)
        else:
            check_version(connection, path)
        if older or empty:
            stack.close()
            _create(place)
            connection = stack.enter_context(_connect(place, threads, path.parent.parent))
        yield connection


@contextmanager
def _engine_place(path: Path) -> Iterator[Path]:
    """Where the engine opens the database `path`: itself, or a temporary copy, which replaces it at the end.

    If the path has a question mark, the engine would write its log to another directory.
    """
    if "?" not in str(path):
        yield path
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "live.duckdb"
        if path.exists():
            shutil.copyfile(path, copy)
        yield copy
        if not path.exists() or not filecmp.cmp(copy, path, shallow=False):
            write_atomic(path, copy.read_bytes())


def _create(path: Path) -> None:
    """An empty store at `path`, whole or not there: a kill in the middle would leave no readable database."""
    remove_log(path)
    write_atomic(path, _empty())


def remove_log(path: Path) -> None:
    """Remove the log of the database at `path`, before another takes its place: replayed, it would damage it."""
    log = _log(path)
    with disk_errors("remove", log):
        log.unlink(missing_ok=True)
        sync_directory(path.parent)


def _log(path: Path) -> Path:
    return Path(f"{path}.wal")


@cache
def _empty() -> bytes:
    """The file of a store without rows: half a second to make, and the same for every campaign."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.duckdb"
        with _connect(path, 1, path.parent) as connection, transaction(connection):
            for statements in ddl():
                connection.execute(statements)
            connection.execute("INSERT INTO meta VALUES ('store_schema', $version)", {"version": str(STORE_SCHEMA)})
            describe(connection)
            fill(connection)
        return path.read_bytes()


@contextmanager
def _connect(path: Path, threads: int | None, root: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Connect to the database `path`, which may come from somebody else: it can read no file outside of `root`."""
    config: dict[str, str | bool | int | float | list[str]] = {
        **OFFLINE,
        "preserve_insertion_order": False,  # rows of a table have no order, and keeping one costs a third
        **({} if threads is None else {"threads": threads}),
    }
    connection = duckdb.connect(str(path), config=config)
    try:
        places = {name for place in (root, root.resolve()) for name in (str(place), quoting.pattern(str(place)))}
        connection.execute(f"SET allowed_directories = {quoting.literal(sorted(places))}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield connection
        connection.execute("CHECKPOINT")
    except BaseException:
        # the first error says more than the failure to close; an open connection would break the next one
        with suppress(duckdb.Error):
            connection.close()
        raise
    connection.close()


def stored_version(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    """The version of the schema of the store behind `connection`. Raises StoreError: it is not a store at all."""
    try:
        rows = connection.execute("SELECT value::INTEGER FROM meta WHERE name = 'store_schema'").fetchall()
    except (duckdb.CatalogException, duckdb.BinderException, duckdb.ConversionException) as error:
        raise DatabaseBroken(
            f"{path} is not a store of this program; move it away, then {_advise_rebuild(path)}"
        ) from error
    return int(rows[0][0]) if rows else 0


def check_version(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise StoreError for a database that another version of the schema wrote, or that is no store."""
    version = stored_version(connection, path)
    if version != STORE_SCHEMA:
        versions = f"store version {version}; this one reads {STORE_SCHEMA}"
        if version > STORE_SCHEMA:
            raise StoreError(f"{path} was written by a newer ablate ({versions}); upgrade ablate")
        raise DatabaseBroken(f"{path} was written by an older ablate ({versions}); {_advise_rebuild(path)}")


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """All statements inside become visible together, or none does."""
    connection.begin()
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error):  # a fatal error, such as a full disk, has already ended the transaction
            connection.rollback()
        raise
    connection.commit()


@contextmanager
def engine_errors(path: Path) -> Iterator[None]:
    """Turn what the engine raises about the file `path` into one sentence."""
    try:
        yield
    except AblateError:
        raise
    except duckdb.Error as error:
        raise translate_error(error, path) from error


def translate_error(error: duckdb.Error, path: Path) -> AblateError:
    """The engine's `error` about the database at `path`, as something the user can act on."""
    text = first_line(error)
    if "No space left on device" in str(error) or "Disk quota" in str(error):
        return EnvironmentProblem(f"cannot write {path}: the disk is full; free some space, nothing landed is lost")
    if isinstance(error, duckdb.OutOfMemoryException):
        return EnvironmentProblem(f"cannot open {path}: memory is used up ({text}); free some and try again")
    if "Permission denied" in str(error) or "Read-only file system" in str(error):
        return EnvironmentProblem(f"cannot open {path} ({text}); ask the owner of the campaign for access to store/")
    if "Could not set lock" in str(error) or "Unique file handle conflict" in str(error):
        return DatabaseHeld(
            f"{path} is open for writing in another program or notebook ({text}); close it there, and read results by "
            f"duckdb.connect({str(path.with_name('snapshot.duckdb'))!r}, read_only=True), which is in nobody's way"
        )
    if "database does not exist" in text:
        return environment_problem("open", path, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
    for code in errno.errorcode:
        if text.endswith(f": {os.strerror(code)}"):  # the operating system refused; the database may be whole
            return environment_problem("open", path, OSError(code, os.strerror(code)))
    return DatabaseBroken(f"{path} cannot be used ({text}); {_advise_rebuild(path)}")


def _advise_rebuild(path: Path) -> str:
    if os.access(path.parent, os.W_OK):
        return "make it again from the campaign's files with `ablate check --rebuild`"
    return "ask the owner of the campaign to run `ablate check --rebuild`: you may not write there"


def with_suggestion(error: BaseException) -> str:
    """The first line of an error's text, and what the engine suggests on the next, as one line."""
    first, *rest = str(error).strip().split("\n")
    hints = [line.strip() for line in rest if line.strip().startswith(("Did you mean", "Candidate bindings"))]
    return "; ".join([first.rstrip("!"), *hints[:1]])


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return str(error).strip().split("\n", 1)[0]
