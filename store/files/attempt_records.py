"""Records of attempts and of their later evaluations, read and checked, as rows of `attempt` and `evaluated`.

The record of a later evaluation names its shards, and only these are served. So one rename publishes an evaluation or
replaces it, and the leftovers of a killed process do not count.
"""

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.store.files.layout import Layout, Unlisted
from ablate.store.files.record_fields import Problem, file_signature, relative
from ablate.store.files.trial_state import is_alive

if TYPE_CHECKING:
    from ablate.store.files.records import End, Evaluated, Start

DIVERGED_ADVICE: Final = (
    "it counts as an outcome of these cells and would diverge again; lower the learning rate to avoid it"
)
"""Advice on trials that failed for the reason diverged, of commands and dashboards."""

AnyRecord = TypeVar("AnyRecord", "Start", "End")
AttemptRow = dict[str, Any]  # a row of the table `attempt`, with a value for every column


def attempt_signature(directory: Path | str) -> str:
    """Changes when `start.json` or `end.json` of the attempt in `directory` does."""
    return f"{file_signature(f'{directory}/start.json')} {file_signature(f'{directory}/end.json')}"


def read_attempt(layout: Layout, key: str, attempt: int) -> tuple[AttemptRow | None, list[Problem]]:
    """The row of one attempt; None while it has no readable `start.json`. A damaged `end.json` counts as none."""
    from ablate.store.files.records import End, Start

    problems: list[Problem] = []
    begun, ended = layout.start(key, attempt), layout.end(key, attempt)
    signature = attempt_signature(begun.parent)  # before the files, which may change while they are read
    start = _read(layout, begun, Start, (key, attempt), problems)
    if start is None:
        if not begun.exists() and ended.exists():
            problems.append((relative(layout, begun), "it is missing, and end.json is there; restore it"))
        empty = begun.is_file() and not begun.stat().st_size and not ended.exists()  # its machine crashed
        return None, [] if empty else problems
    end = _read(layout, ended, End, (key, attempt), problems)
    alive = end is None and not os.path.lexists(ended) and is_alive(layout, key, attempt, vars(start))
    if end is None and not alive and not problems and _has_lost_end(layout, key, attempt):
        problems.append((relative(layout, ended), "it is missing, and the attempt has ended; restore it"))
    resumed, wrote = start.resumed_from, None if end is None else end.wrote
    row: AttemptRow = {"trial": key, "attempt": attempt, "alive": alive, "signature": signature}
    row |= Start.row(vars(start)) | End.row({} if end is None else vars(end))
    row |= {"resumed_attempt": resumed and resumed.attempt, "resumed_step": resumed and resumed.step}
    row["shards"] = None if wrote is None else [name for table in wrote.values() for name in table.shards]
    row["fingerprint"] = row["fingerprint"] or fingerprint(row)
    return row, problems


def _has_lost_end(layout: Layout, key: str, attempt: int) -> bool:
    """True if the heartbeat is gone, as `end.json` was written, and no later attempt has made up for it."""
    if layout.heartbeat(key, attempt).exists() or max(layout.attempts(key), default=0) > attempt:
        return False
    return not layout.end(key, attempt).exists()  # it may have been written meanwhile


def _read(
    layout: Layout, path: Path, kind: type[AnyRecord], place: tuple[str, int], problems: list[Problem]
) -> AnyRecord | None:
    """`start.json` or `end.json` of the attempt `place`; None if it is not there, or is a problem."""
    try:
        record = kind.read(path)
        _check_place((record.trial, record.attempt), place)
    except NotFoundError:
        return None
    except (StoreError, EnvironmentProblem) as error:
        problems.append((relative(layout, path), str(error)))
        return None
    return record


def _check_place(named: tuple[Any, ...], place: tuple[Any, ...]) -> None:
    if named != place:
        said, stored = (" ".join(map(str, each)) for each in (named, place))
        raise StoreError(f"the record names {said}, but is stored under {stored}; move it back or delete it")


_CHANGING = re.compile(r"0x[0-9a-f]+|[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|\bnan\b|\binf\b|'[^']*'|\"[^\"]*\"")


def fingerprint(row: Mapping[str, Any]) -> str | None:
    """Equal for failures of the same kind: the reason, the message without its numbers, names and addresses."""
    if row["status"] != "failed":
        return None
    last = (row["traceback"] or row["message"] or "").strip().rsplit("\n", 1)[-1]
    text = f"{row['reason']}\n{_CHANGING.sub('#', last)}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


Place = tuple[str, int, str]  # a trial, its attempt, and the key of an evaluation


def read_evaluation(layout: Layout, place: Place) -> "Evaluated":
    """The record of a later evaluation.

    Raises NotFoundError: there is none; StoreError: it is torn or altered, of another version, or of another place.
    """
    from ablate.store.files.records import Evaluated

    record = Evaluated.read(layout.evaluation(*place))
    _check_place((record.trial, record.attempt, record.evaluation), place)
    return record


def evaluated_on_disk(
    layout: Layout, attempts: Iterable[tuple[str, int]], unlisted: list[Unlisted]
) -> dict[Place, str]:
    """Every later evaluation of the `attempts`, with a signature that changes when its record does."""
    places = ((*attempt, key) for attempt in attempts for key in layout.evaluation_keys(*attempt, unlisted))
    return {place: file_signature(layout.evaluation(*place)) for place in places}


def evaluated_row(layout: Layout, place: Place, signature: str) -> dict[str, Any] | Problem | None:
    """Its row of the table `evaluated`; or the file and what is wrong with it; or None where it has gone meanwhile."""
    try:
        record = read_evaluation(layout, place)
    except NotFoundError:
        return None
    except (StoreError, EnvironmentProblem) as error:
        return relative(layout, layout.evaluation(*place)), str(error)
    return {**record.row(vars(record)), "signature": signature}


def evaluation_shards(layout: Layout, record: "Evaluated") -> list[Path]:
    """The files that a record names."""
    directory = layout.evaluations(record.trial, record.attempt)
    return [directory / name for name in record.shards]
