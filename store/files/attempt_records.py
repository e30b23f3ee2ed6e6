"""Records of attempts, read from `trials/`: one row of the table `attempt` for each attempt that has begun."""

import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, final

from grid.errors import NotFoundError, StoreError
from store.files.atomic import read_json
from store.files.layout import Layout
from store.files.plans import file_signature, json_text
from store.files.record_fields import Field, check_record, check_schema, clean_text
from store.files.shards import is_shard_name
from store.files.trial_status import is_alive

_TEXT, _TEXT_OR_NULL = Field("text"), Field("text", optional=True)
_INT, _FLOAT = Field("int64", optional=True), Field("float", optional=True)
_START = {
    "trial": Field("key"),
    "attempt": Field("int32"),
    "submission": _TEXT,
    "worker": Field("int64"),
    "host": _TEXT,
    "pid": Field("int64"),
    "pid_started": _FLOAT,
    "started": Field("float"),
    "resumed_from": Field("object", optional=True),
    "path": _TEXT_OR_NULL,
    "device": _TEXT_OR_NULL,
    "threads": Field("int32", optional=True),
    "code": _TEXT_OR_NULL,
    "versions": Field("object", optional=True),
    "data": Field("object", optional=True),
    "sources": Field("object", optional=True),
}
_RESUMED = {"attempt": Field("int32"), "step": Field("int64")}
_END = {
    "trial": Field("key"),
    "attempt": Field("int32"),
    "status": _TEXT,
    "reason": _TEXT_OR_NULL,
    "message": _TEXT_OR_NULL,
    "traceback": _TEXT_OR_NULL,
    "fingerprint": _TEXT_OR_NULL,
    "step": _INT,
    "wall_s": _FLOAT,
    "train_s": _FLOAT,
    "evaluate_s": _FLOAT,
    "probe_s": _FLOAT,
    "ended": Field("float"),
    "parameters": _INT,
    "operator_parameters": _INT,
    "memory_bytes": _INT,
    "cost": Field("object", optional=True),
    "wrote": Field("object", optional=True),
    "files": Field("list", optional=True),
}
_WROTE = {"rows": Field("int64"), "step": Field("int64"), "shards": Field("list")}
_STATUSES = ("ok", "failed", "stopped")


@final
class AttemptRecord(NamedTuple):
    """A row of the table `attempt`, in the order of its columns."""

    trial: str
    attempt: int
    submission: str | None
    worker: int | None
    host: str | None
    pid: int | None
    started: float | None
    resumed_attempt: int | None
    resumed_step: int | None
    path: str | None
    device: str | None
    threads: int | None
    code: str | None
    versions: str | None
    data: str | None
    sources: str | None
    alive: bool
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    traceback: str | None = None
    fingerprint: str | None = None
    step: int | None = None
    wall_s: float | None = None
    train_s: float | None = None
    evaluate_s: float | None = None
    probe_s: float | None = None
    ended: float | None = None
    parameters: int | None = None
    operator_parameters: int | None = None
    memory_bytes: int | None = None
    cost: str | None = None
    shards: list[str] | None = None
    signature: str = ""


Problem = tuple[str, str]
"""A file, relative to the campaign, and what is wrong with it."""


def attempt_signature(directory: Path | str) -> str:
    """Changes when `start.json` or `end.json` of the attempt in `directory` does."""
    return f"{file_signature(f'{directory}/start.json')} {file_signature(f'{directory}/end.json')}"


def read_attempt(layout: Layout, key: str, attempt: int) -> tuple[AttemptRecord | None, list[Problem]]:
    """The row of one attempt; None while it has no readable `start.json`. A damaged `end.json` counts as none."""
    problems: list[Problem] = []
    paths = layout.start(key, attempt), layout.end(key, attempt)
    signature = attempt_signature(
        layout.attempt(key, attempt)
    )  # before the files, which may change while they are read
    start = _read(layout, paths[0], _START, (key, attempt), problems)
    if start is None:
        if not paths[0].exists() and paths[1].exists():
            problems.append((_relative(layout, paths[0]), "it is missing, and end.json is there; restore it"))
        empty = paths[0].is_file() and not paths[0].stat().st_size and not paths[1].exists()  # its machine crashed
        return None, [] if empty else problems
    end = _read(layout, paths[1], _END, (key, attempt), problems)
    alive = end is None and is_alive(layout, key, attempt, start)
    if end is None and not alive and not problems and _has_lost_end(layout, key, attempt):
        problems.append((_relative(layout, paths[1]), "it is missing, and the attempt has ended; restore it"))
    resumed = start.get("resumed_from") or {}
    row = AttemptRecord(
        trial=key,
        attempt=attempt,
        resumed_attempt=resumed.get("attempt"),
        resumed_step=resumed.get("step"),
        versions=json_text(start.get("versions")),
        data=json_text(start.get("data")),
        sources=json_text(start.get("sources")),
        alive=alive,
        signature=signature,
        **{name: _plain(start.get(name)) for name in _COPIED_FROM_START},
    )
    if end is not None:
        row = row._replace(
            **{name: _plain(end.get(name)) for name in _COPIED_FROM_END},
            cost=json_text(end.get("cost")),
            shards=_promised_shards(end),
        )
        if not row.fingerprint:
            row = row._replace(fingerprint=fingerprint(row))
    return row, problems


def _has_lost_end(layout: Layout, key: str, attempt: int) -> bool:
    """True if the heartbeat is gone, as `end.json` was written, and no later attempt has made up for it."""
    if layout.heartbeat(key, attempt).exists() or max(layout.attempts(key), default=0) > attempt:
        return False
    return not layout.end(key, attempt).exists()  # it may have been written meanwhile


def _relative(layout: Layout, path: Path) -> str:
    return path.relative_to(layout.root).as_posix()


_COPIED_FROM_START = ("submission", "worker", "host", "pid", "started", "path", "device", "threads", "code")
_COPIED_FROM_END = tuple(name for name in _END if name not in ("trial", "attempt", "cost", "wrote", "files"))


def _promised_shards(end: Mapping[str, Any]) -> list[str] | None:
    """The shards that `end.json` names; None if an earlier release wrote it."""
    wrote = end.get("wrote")
    return None if wrote is None else [name for table in wrote.values() for name in table["shards"]]


def _plain(value: Any) -> Any:
    return clean_text(value) if isinstance(value, str) else value


def _read(
    layout: Layout, path: Path, fields: Mapping[str, Field], place: tuple[str, int], problems: list[Problem]
) -> dict[str, Any] | None:
    """`start.json` or `end.json` of the attempt `place`; None if it is not there, or is a problem."""
    try:
        record = read_json(path)
        check_schema(record)
        check_record(record, fields)
        _check_place(record, *place)
    except NotFoundError:
        return None
    except StoreError as error:
        problems.append((_relative(layout, path), str(error)))
        return None
    return record


def _check_place(record: Mapping[str, Any], key: str, attempt: int) -> None:
    if (record["trial"], record["attempt"]) != (key, attempt):
        raise StoreError(f"it speaks of attempt {record['attempt']} of {record['trial']}, and lies elsewhere")
    if "status" in record and record["status"] not in _STATUSES:
        raise StoreError(f"field 'status' must be one of {_STATUSES}, got {record['status']!r}")
    for table in (record.get("wrote") or {}).values():
        check_record({"wrote": table}, {"wrote": Field("object")})
        check_record(table, _WROTE)
        if not all(isinstance(name, str) and is_shard_name(name) for name in table["shards"]):
            raise StoreError(f"field 'wrote' must have names of shards, got {table['shards']!r}")
    if record.get("resumed_from"):
        check_record(record["resumed_from"], _RESUMED)


_CHANGING = re.compile(r"0x[0-9a-f]+|[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|\bnan\b|\binf\b|'[^']*'|\"[^\"]*\"")


def fingerprint(row: AttemptRecord) -> str | None:
    """Equal for failures of the same kind: the reason, the message without its numbers, names and addresses."""
    if row.status != "failed":
        return None
    last = (row.traceback or row.message or "").strip().rsplit("\n", 1)[-1]
    text = f"{row.reason}\n{_CHANGING.sub('#', last)}"
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
