"""Records of attempts and of their later evaluations, read and checked, as rows of `attempt` and `evaluated`.

The record of a later evaluation names its shards, and only these are served. So one rename publishes an evaluation or
replaces it, and the leftovers of a killed process do not count.
"""

import os
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.store.files import record_fields
from ablate.store.files.layout import Layout, Unlisted
from ablate.store.files.record_fields import (
    Problem,
    check_record,
    clean_text,
    fields,
    file_signature,
    json_text,
    relative,
)
from ablate.store.files.shards import is_shard_name
from ablate.store.files.trial_status import is_alive

DIVERGED_ADVICE: Final = (
    "it counts as an outcome of these cells and would diverge again; lower the learning rate to avoid it"
)
"""Advice on trials that failed for the reason diverged, of commands and dashboards."""

_START = fields(
    {"key": "trial", "int32": "attempt", "text": "submission host", "int64": "worker pid", "float": "started"},
    {
        "float": "pid_started",
        "object": "resumed_from versions data sources",
        "text": "path device code",
        "int32": "threads",
    },
)
_END = fields(
    {"key": "trial", "int32": "attempt", "text": "status", "float": "ended"},
    {
        "text": "reason message traceback fingerprint",
        "int64": "step parameters operator_parameters memory_bytes",
        "float": "wall_s train_s evaluate_s probe_s",
        "object": "cost wrote",
        "list": "files changes",
    },
)
_EVALUATION = fields(
    {
        "key": "trial evaluation",
        "int32": "attempt threads",
        "text": "kind host device",
        "object": "spec versions",
        "int64": "step",
        "list": "shards changed",
        "float": "ended wall_s",
    },
    {"object": "sources data"},
)
_RESUMED = fields({"int32": "attempt", "int64": "step"})
_WROTE = fields({"int64": "rows step", "list": "shards"})
_STATUSES = ("ok", "failed", "stopped")
_COPIED_FROM_START = ("submission", "worker", "host", "pid", "started", "path", "device", "threads", "code")
_COPIED_FROM_END = tuple(name for name in _END if name not in ("trial", "attempt", "cost", "wrote", "files", "changes"))

AttemptRow = dict[str, Any]  # a row of the table `attempt`, with a value for every column


def attempt_signature(directory: Path | str) -> str:
    """Changes when `start.json` or `end.json` of the attempt in `directory` does."""
    return f"{file_signature(f'{directory}/start.json')} {file_signature(f'{directory}/end.json')}"


def read_attempt(layout: Layout, key: str, attempt: int) -> tuple[AttemptRow | None, list[Problem]]:
    """The row of one attempt; None while it has no readable `start.json`. A damaged `end.json` counts as none."""
    problems: list[Problem] = []
    begun, ended = layout.start(key, attempt), layout.end(key, attempt)
    signature = attempt_signature(begun.parent)  # before the files, which may change while they are read
    start = _read(layout, begun, _START, (key, attempt), problems)
    if start is None:
        if not begun.exists() and ended.exists():
            problems.append((relative(layout, begun), "it is missing, and end.json is there; restore it"))
        empty = begun.is_file() and not begun.stat().st_size and not ended.exists()  # its machine crashed
        return None, [] if empty else problems
    end = _read(layout, ended, _END, (key, attempt), problems)
    alive = end is None and not os.path.lexists(ended) and is_alive(layout, key, attempt, start)
    if end is None and not alive and not problems and _has_lost_end(layout, key, attempt):
        problems.append((relative(layout, ended), "it is missing, and the attempt has ended; restore it"))
    resumed, end = start.get("resumed_from") or {}, end or {}
    row: AttemptRow = {"trial": key, "attempt": attempt, "alive": alive, "signature": signature}
    row |= {"resumed_attempt": resumed.get("attempt"), "resumed_step": resumed.get("step")}
    row |= {name: clean_text(start.get(name)) for name in _COPIED_FROM_START}
    row |= {name: clean_text(end.get(name)) for name in _COPIED_FROM_END}
    row |= {name: json_text(start.get(name)) for name in ("versions", "data", "sources")}
    wrote = end.get("wrote")
    row["shards"] = None if wrote is None else [name for table in wrote.values() for name in table["shards"]]
    changes = end.get("changes")
    row["changes"] = None if changes is None else [clean_text(str(name)) for name in changes]
    row["cost"], row["fingerprint"] = json_text(end.get("cost")), row["fingerprint"] or fingerprint(row)
    return row, problems


def _has_lost_end(layout: Layout, key: str, attempt: int) -> bool:
    """True if the heartbeat is gone, as `end.json` was written, and no later attempt has made up for it."""
    if layout.heartbeat(key, attempt).exists() or max(layout.attempts(key), default=0) > attempt:
        return False
    return not layout.end(key, attempt).exists()  # it may have been written meanwhile


def _read(
    layout: Layout, path: Path, known: record_fields.Fields, place: tuple[str, int], problems: list[Problem]
) -> dict[str, Any] | None:
    """`start.json` or `end.json` of the attempt `place`; None if it is not there, or is a problem."""
    try:
        record = record_fields.read_record(path, known)
        _check_place((record["trial"], record["attempt"]), place)
        _check_nested(record)
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


def _check_nested(record: Mapping[str, Any]) -> None:
    if "status" in record and record["status"] not in _STATUSES:
        raise StoreError(f"field 'status' must be one of {_STATUSES}, got {record['status']!r}")
    for table in (record.get("wrote") or {}).values():
        check_record({"wrote": table}, fields({"object": "wrote"}))
        check_record(table, _WROTE)
        _check_shards("wrote", table["shards"])
    if record.get("resumed_from"):
        check_record(record["resumed_from"], _RESUMED)


def _check_shards(field: str, names: list[Any]) -> None:
    if not all(isinstance(name, str) and is_shard_name(name) for name in names):
        raise StoreError(f"field {field!r} must have names of shards, got {names!r}")


_CHANGING = re.compile(r"0x[0-9a-f]+|[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|\bnan\b|\binf\b|'[^']*'|\"[^\"]*\"")


def fingerprint(row: Mapping[str, Any]) -> str | None:
    """Equal for failures of the same kind: the reason, the message without its numbers, names and addresses."""
    if row["status"] != "failed":
        return None
    last = (row["traceback"] or row["message"] or "").strip().rsplit("\n", 1)[-1]
    text = f"{row['reason']}\n{_CHANGING.sub('#', last)}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


Place = tuple[str, int, str]  # a trial, its attempt, and the key of an evaluation


def read_evaluation(layout: Layout, place: Place) -> dict[str, Any]:
    """The record of a later evaluation.

    Raises NotFoundError: there is none; StoreError: it is torn or altered, of another version, or of another place.
    """
    record = record_fields.read_record(layout.evaluation(*place), _EVALUATION)
    _check_place((record["trial"], record["attempt"], record["evaluation"]), place)
    _check_shards("shards", record["shards"])
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
    row = {name: clean_text(record.get(name)) for name in _EVALUATION}
    row |= {name: json_text(record.get(name)) for name in ("spec", "versions", "sources", "data")}
    return {**row, "changed": [clean_text(str(name)) for name in record["changed"]], "signature": signature}


def evaluation_shards(layout: Layout, record: Mapping[str, Any]) -> list[Path]:
    """The files that a record names."""
    directory = layout.evaluations(record["trial"], record["attempt"])
    return [directory / name for name in record["shards"]]
