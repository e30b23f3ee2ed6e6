"""Grids and submissions as files: one JSON line per trial, written before any work starts.

The index beside a manifest holds the byte offset of each line, so a worker reads its row and nothing else.
"""

import filecmp
import json
import mmap
import os
import re
import secrets
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.grid.experiment import reference_of
from ablate.store.files.atomic import (
    add_seal,
    environment_problem,
    make_directory,
    parse_object,
    read_json,
    retry_io,
    sync_directory,
    temporary_name,
    write_atomic,
    write_json,
)
from ablate.store.files.layout import Layout
from ablate.store.files.plans import require_version
from ablate.store.files.trial_state import trial_state
from ablate.store.state import ENDED

if TYPE_CHECKING:
    from ablate.grid import Grid

_KEY = re.compile(rb'\{"trial":"([0-9a-f]{32})"')


def submission_id() -> str:
    """Return a new name of a submission: the time (UTC) and six random hexadecimal digits."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def trial_lines(grid: "Grid") -> Iterator[dict[str, Any]]:
    """Yield the trials of `grid` in execution order, as they are written to files."""
    for planned in grid.trials():
        yield {
            "trial": planned.key,
            "cell": planned.cell,
            "seed": planned.seed,
            "grid": grid.name,
            "label": planned.label,
            "operator": planned.operator,
            "axes": dict(planned.axes),
            **({"control": planned.control} if planned.control else {}),
            **({"longer": planned.longer} if planned.longer else {}),
            **({"experiment": reference} if (reference := reference_of(type(planned.trial))) else {}),
            "spec": planned.trial.data(),
        }


def write_grid(layout: Layout, grid: "Grid", lines: Iterable[Mapping[str, Any] | bytes]) -> None:
    """Write the grid's trials, then its header; files with equal content stay.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
        StoreError: another version of this program has written a grid of that name.
    """
    require_version(layout, grid.name)
    _write_lines(layout.grid_trials(grid.name), lines)
    header, path = grid.header(), layout.grid_header(grid.name)
    with suppress(NotFoundError, StoreError):  # no header, or a torn one
        before = read_json(path)
        header |= _earlier_variances(layout, before, header)
        if before == json.loads(json.dumps(header)):
            return
    write_json(path, header)


def _earlier_variances(layout: Layout, before: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what a grid was compared with before, if that changed after a trial had ended: then results may decide."""
    earlier, was = before.get("earlier_variances", []), before.get("variance", "own")
    if was != header.get("variance", "own") and _any_ended(layout, layout.grid_trials(header["grid"])):
        earlier = [*earlier, was]
    return {"earlier_variances": earlier} if earlier else {}


def _any_ended(layout: Layout, trials: Path) -> bool:
    with trials.open("rb") as lines:
        return any(_has_ended(layout, trial_of(line, f"a line of {trials}")) for line in lines)


def _has_ended(layout: Layout, key: str) -> bool:
    with suppress(EnvironmentProblem):
        return trial_state(layout, key).state in ENDED
    return True  # it may have, if nobody can read it


def read_lines(path: Path, numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield lines `numbers` (ascending, counted from 0) of the file `path`. Raises StoreError if it has fewer lines."""
    at = 0
    with path.open("rb") as file:
        for number in numbers:
            line = next(islice(file, number - at, None), None)
            if line is None:
                raise StoreError(f"{path} ends before line {number + 1}; run the same command again")
            yield line
            at = number + 1


def trial_of(line: bytes, where: str) -> str:
    """Return the key of the trial of a line. Lines begin with it, so that only a damaged one is parsed.

    Raises StoreError if the line is not whole; `where` names its place.
    """
    match = _KEY.match(line)
    return match[1].decode() if match and line.endswith(b"}\n") else str(parse_object(line, where)["trial"])


def write_submission(layout: Layout, submission: str, lines: Iterable[Mapping[str, Any] | bytes]) -> None:
    """Write the manifest of a submission and its index; they appear complete. Lines that are bytes are copied.

    Raises EnvironmentProblem if the campaign cannot be written.
    """
    place = layout.submission(submission)
    draft = place.with_name(temporary_name(place.name))
    make_directory(draft)
    try:
        offsets = _write_lines(draft / "manifest.jsonl", lines)
        write_atomic(draft / "manifest.idx", struct.pack(f"<{len(offsets)}Q", *offsets))
        draft.rename(place)
        sync_directory(place.parent)
    except OSError as error:
        raise environment_problem("write", place, error) from error


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any] | bytes]) -> list[int]:
    """Write `lines` to `path` atomically, unless it has the same bytes; return each line's offset."""
    make_directory(path.parent)
    draft = path.with_name(temporary_name(path.name))
    offsets: list[int] = []
    try:
        with draft.open("xb") as file:
            for line in lines:
                offsets.append(file.tell())
                file.write(line if isinstance(line, bytes) else encode_line(line))
            file.flush()
            os.fsync(file.fileno())
        if not path.exists() or not filecmp.cmp(draft, path, shallow=False):
            draft.rename(path)
            sync_directory(path.parent)
    except OSError as error:
        raise environment_problem("write", path, error) from error
    finally:
        draft.unlink(missing_ok=True)
    return offsets


def encode_line(line: Mapping[str, Any]) -> bytes:
    """Return a line as it is written to a file."""
    return add_seal(json.dumps(line, allow_nan=False, separators=(",", ":")).encode("ascii")) + b"\n"


def _map(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@final
class Manifest:
    """The rows of one submission, read one at a time.

    Raises StoreError if manifest and index do not fit together: one of them was torn or altered.
    """

    def __init__(self, layout: Layout, submission: str) -> None:
        self._path = layout.manifest(submission)
        try:
            index = retry_io(layout.manifest_index(submission).read_bytes)
            self._lines = retry_io(lambda: _map(self._path))
        except (OSError, ValueError) as error:
            raise StoreError(f"{self._path} cannot be read ({error}); run the same command again") from error
        if len(index) % 8 or not index:
            raise StoreError(f"the index of {self._path} was torn or altered; run the same command again")
        self._offsets = (*struct.unpack(f"<{len(index) // 8}Q", index), len(self._lines))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def line(self, row: int) -> dict[str, Any]:
        """Return row `row`, counted from 0. Raises StoreError if it is not whole."""
        return parse_object(self._bytes(row), f"{self._path}, row {row}")

    def trial(self, row: int) -> str:
        """Return the key of the trial in row `row`; much cheaper than the whole line.

        Raises StoreError if the row is not whole.
        """
        return trial_of(self._bytes(row), f"{self._path}, row {row}")

    def _bytes(self, row: int) -> bytes:
        return self._lines[self._offsets[row] : self._offsets[row + 1]]
