"""Files that are either there and whole, or not there: temporary file, fsync, rename, fsync of the directory.

The last member of a sealed JSON record is `"seal"`: blake2b-64, in hexadecimal digits, of all bytes before the comma in
front of it. So a flipped bit that turns one number into another is found.
"""

import errno
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, final
from uuid import uuid4

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError

T = TypeVar("T")

PAUSES_S = (0.05, 0.2, 0.8, 2.0)
"""Waits before what a network file system refused for the moment is tried again; after `set_retry_timeout` more."""

_SEAL: Final = re.compile(rb'(?:, ?)?"seal": ?"([0-9a-f]{16})"\}\s*\Z')
_SEAL_LENGTH: Final = len(b', "seal": "0123456789abcdef"}\r\n')

_MOMENTARY = (errno.ESTALE, errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.ENOTCONN)
OF_THE_DISK: Final = (*_MOMENTARY, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing about the path at which they were met."""

_AWAY = "the network file system lost touch: see whether the campaign is mounted here and run the same command again"
_REMEDIES = {
    **dict.fromkeys(_MOMENTARY, _AWAY),
    errno.ENOSPC: "free some space and run the same command again; what has landed is kept",
    errno.EDQUOT: "your disk quota is used up: free some space and run the same command again; what has landed is kept",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "choose a directory you may write to, or change its permissions"),
    errno.EROFS: "the file system is read-only: choose another campaign directory",
    errno.ENOLCK: "the file system has no locks: mount it with locks or choose another campaign directory",
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST),
        "a file stands where a directory is needed: choose another campaign directory or move the file",
    ),
}


def environment_problem(action: str, path: Path, error: OSError) -> EnvironmentProblem:
    """One sentence for an `OSError` met while doing `action` ("write", "create", ...) to `path`."""
    why = error.strerror or str(error)
    remedy = _REMEDIES.get(error.errno or 0, "check the disk and the path")
    if action in ("read", "list") and error.errno in (errno.EACCES, errno.EPERM):
        remedy = "ask its owner for permission to read it"
    return EnvironmentProblem(f"cannot {action} {path}: {why}; {remedy}")


@contextmanager
def disk_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an `OSError` met inside, while doing `action` to `path`, into one sentence."""
    try:
        yield
    except OSError as error:
        raise environment_problem(action, path, error) from error


@final
@dataclass
class _Timeout:
    """How long this process retries while a file system is away, and what it calls then."""

    seconds: float = 0.0
    tell: Callable[[str], None] = lambda _: None
    over: Callable[[], bool] = lambda: False


_TIMEOUT = _Timeout()


def set_retry_timeout(seconds: float, tell: Callable[[str], None], over: Callable[[], bool] = lambda: False) -> None:
    """Have this process wait up to `seconds`, unless `over`, for a file system that is away; `tell` of long waits."""
    _TIMEOUT.seconds, _TIMEOUT.tell, _TIMEOUT.over = seconds, tell, over


def retry_io(action: Callable[[], T]) -> T:
    """Return the result of `action`; repeat it after transient errors of network file systems.

    The action must open its files itself, since a stale handle stays stale. Raises OSError: a permanent error at once;
    a transient one after five tries, or later after `set_retry_timeout`.
    """
    began, tries, told = time.monotonic(), 0, False
    while True:
        try:
            result = action()
        except OSError as error:
            patient = tries < len(PAUSES_S)
            late = not patient and (time.monotonic() - began >= _TIMEOUT.seconds or _TIMEOUT.over())
            if error.errno not in _MOMENTARY or late:
                raise
            if not patient and not told:
                told = True
                _TIMEOUT.tell(f"the file system is away ({error}); waiting for up to {_TIMEOUT.seconds:.0f} s")
        else:
            if told:
                _TIMEOUT.tell(f"the file system is back after {time.monotonic() - began:.0f} s")
            return result
        time.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
        tries += 1


def temporary_name(name: str) -> str:
    """A name for the unfinished form of `name` that no other process uses and that readers ignore."""
    return f"{name}.tmp.{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:8]}"


def is_temporary(path: Path) -> bool:
    """Whether `path` is an unfinished file, left by a writer that is at work or was killed."""
    return ".tmp." in path.name


Durable = Literal["file and name", "file", "nothing"]
"""This survives a crash of the machine: a file under its name; its bytes, and its name seconds later; or nothing."""


_ROOTS: Final[set[str]] = set()


def remember_root(root: Path) -> None:
    """From now on this process makes the directory `root` only by `make_directory(root)`.

    A campaign that was moved while this process uses it is not begun again where it was.
    """
    _ROOTS.add(os.path.abspath(root))  # noqa: PTH100  (asks no file system)


def make_directory(path: Path, *, durable: bool = True) -> Path:
    """Create `path` and its parents if they are missing; if `durable`, those that it made survive a crash.

    Raises EnvironmentProblem also if a parent was a campaign that is gone.
    """
    return _make_directory(path, durable=durable, allowed=path)


def _make_directory(path: Path, *, durable: bool, allowed: Path | None) -> Path:
    with disk_errors("create", path):
        missing = retry_io(lambda: list(takewhile(lambda each: not each.exists(), (path, *path.parents))))
        gone = [each for each in missing if each != allowed and os.path.abspath(each) in _ROOTS]  # noqa: PTH100
        if gone:
            raise EnvironmentProblem(
                f"{gone[0]} is gone: the campaign was moved or removed meanwhile; run the same command where it is now"
            )
        for made in reversed(missing or [path]):
            retry_io(lambda made=made: made.mkdir(exist_ok=True))  # type: ignore[misc]  # no parent that went since
            if durable and missing:
                retry_io(lambda made=made: sync_directory(made.parent))  # type: ignore[misc]
    return path


def write_atomic(path: Path, data: bytes, mode: int | None = None, durable: Durable = "file and name") -> Path:
    """Write `data` as the file `path`, which is whole as soon as it is visible; missing directories are created.

    It never has other permissions than `mode`, if given. A file that is not durable may be empty after a crash.
    """
    _make_directory(path.parent, durable=durable == "file and name", allowed=None)
    with disk_errors("write", path):
        retry_io(lambda: _publish(path, data, mode, durable))
    return path


def _publish(path: Path, data: bytes, mode: int | None, durable: Durable) -> None:
    temporary = path.with_name(temporary_name(path.name))
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            if durable != "nothing":
                file.flush()
                os.fsync(file.fileno())
        try:
            temporary.rename(path)
        except FileNotFoundError:
            # NFS: the answer to a rename was lost, and the rename that was sent again found nothing left to do
            if not path.is_file() or path.read_bytes() != data:
                raise
    finally:
        temporary.unlink(missing_ok=True)
    if durable == "file and name":
        sync_directory(path.parent)


def unshare(path: Path) -> None:
    """Give the file `path`, if another name has the same bytes, bytes of its own: a change in place would alter a copy.

    `cp -al` and some backups copy a campaign by such names. Raises OSError.
    """
    if path.stat().st_nlink == 1:
        return
    temporary = path.with_name(temporary_name(path.name))
    try:
        shutil.copy2(path, temporary)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make renames and new names in the directory `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, data: Mapping[str, Any], durable: Durable = "file and name") -> Path:
    """Write `encode_json(data)` atomically."""
    return write_atomic(path, encode_json(data), durable=durable)


def encode_json(data: Mapping[str, Any]) -> bytes:
    """`data` as one sealed JSON object in a line of its own; ValueError for a NaN or an infinity."""
    return add_seal(json.dumps(data, allow_nan=False).encode("ascii")) + b"\n"


def read_bytes(path: Path) -> bytes:
    """Return the bytes of the file `path`, or raise OSError after some tries."""
    return retry_io(path.read_bytes)


def read_file(path: Path) -> bytes:
    """Return the bytes of the file `path`. Raises NotFoundError: there is none; StoreError: it is no file."""
    try:
        return read_bytes(path)
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {path}") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise StoreError(f"{path} must be a file ({error.strerror}); move away what stands there") from error
    except OSError as error:
        raise environment_problem("read", path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file `path`. Raises as `read_file`, and StoreError: it is torn or altered."""
    return parse_object(read_file(path), str(path))


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that `data` holds, without its seal; `where` names its place in errors.

    Raises StoreError: it is not exactly one JSON object of finite numbers and valid text, or its seal is broken.
    """
    try:
        record = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where} is not whole JSON ({error}); it was torn or altered") from error
    if not isinstance(record, dict):
        raise StoreError(f"{where} must hold one JSON object, not {type(record).__name__}; it was torn or altered")
    if is_broken(data):
        raise StoreError(f'{where} does not have the hash that its last member "seal" says; it was torn or altered')
    record.pop("seal", None)
    return record


def add_seal(record: bytes) -> bytes:
    """Append the seal to the JSON object `record`, as its last member."""
    body = record.rstrip()[:-1]
    return body + (b"" if body == b"{" else b", ") + b'"seal": "' + _hash(body) + b'"}'


def is_broken(record: bytes) -> bool:
    """Return True if `record` has a seal that is not the hash of its bytes."""
    seal = _SEAL.search(record, max(0, len(record) - _SEAL_LENGTH))
    return seal is not None and _hash(record[: seal.start()]) != seal[1]


def _hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=8).hexdigest().encode()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
"""One for all: `json.loads` would make one per object, and a campaign has tens of thousands."""
