"""Checkpoints: the state of a trial at a step, as a file whose name carries its own hash.

    <attempt>/checkpoint/step-000000400.<blake2b>.pt

One rename publishes state and hash together. A damaged file is found before it is parsed, and the one before it is
used instead. The state is tensors and plain data; loading never runs code from the file.
"""

import contextlib
import io
import math
import re
import shutil
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, final

from grid.errors import EnvironmentProblem, StoreError
from store.files.atomic import environment_problem, is_temporary, read_bytes, retried, write_atomic
from store.files.layout import Layout
from store.files.trial_status import TrialState

CHECKPOINT_SCHEMA = 1
"""Version of the checkpoint files; a reader refuses others."""

KEEP = 2
"""Checkpoints kept of a trial and its code: the newest, and the one to fall back to."""

_LOOKS = 5
"""Times that checkpoints are looked for anew, because one of them was forgotten in between."""

_NAME = re.compile(r"step-(?P<step>[0-9]+)\.(?P<blake2b>[0-9a-f]{32})\.pt")
_PLAIN = (type(None), bool, int, float, str, bytes)


class CheckpointError(StoreError):
    """A checkpoint that must not be used: altered, torn, of another version, or of another trial."""


@final
class _Gone(CheckpointError):
    """It was there, and its owner has a newer one."""


class Checkpoint(NamedTuple):
    """A state read back: where it came from, and what it holds."""

    attempt: int
    step: int
    state: dict[str, Any]


def save_checkpoint(directory: Path, trial: str, step: int, state: Mapping[str, Any]) -> Path:
    """Publish the state of `trial` at `step` and forget all but the newest `KEEP` checkpoints of the directory.

    Raises:
        TypeError: the state holds something other than tensors and plain data; the text says where.
        EnvironmentProblem: the disk is full or not writable; the checkpoints that are there stay.
    """
    import torch  # here: a process that only reads campaigns does not pay for torch

    _require_plain(state, "state")
    sink = io.BytesIO()
    torch.save({"schema": CHECKPOINT_SCHEMA, "trial": trial, "step": step, "state": dict(state)}, sink)
    data = sink.getvalue()
    path = write_atomic(directory / f"step-{step:09d}.{_hash(data)}.pt", data)
    try:
        retried(lambda: _forget(directory))
    except OSError as error:
        raise environment_problem("clear", directory, error) from error
    return path


def _forget(directory: Path) -> None:
    for old in _files(directory)[:-KEEP]:
        old.unlink(missing_ok=True)


def forget_older(
    layout: Layout, trial: str, attempt: int, resumed: Mapping[str, int] | None, same_code: Callable[[int], bool]
) -> None:
    """Delete what earlier attempts saved and nobody needs beside the checkpoints of `attempt`, which wrote its own.

    `KEEP` are left in all. Checkpoints beyond the step that the attempt was `resumed` from are damaged and are deleted
    first. Checkpoints of other code stay. All stay if a later attempt has begun, because it may not have saved yet.
    """
    if max(layout.attempts(trial), default=0) > attempt:
        return
    furthest = resumed["step"] if resumed else math.inf
    older = [(step <= furthest, step, at, path) for step, at, path in _candidates(layout, trial) if at < attempt]
    older = sorted(found for found in older if same_code(found[2]))
    room = max(0, KEEP - len(_files(layout.checkpoint(trial, attempt))))
    for *_, path in older[: max(0, len(older) - room)]:
        with contextlib.suppress(OSError):  # a file that cannot be deleted only costs space
            path.unlink()


class Saved(NamedTuple):
    """Contents of a checkpoint or of a file of kept weights."""

    trial: str
    step: int
    state: dict[str, Any]


def load_checkpoint(path: Path, trial: str) -> tuple[int, dict[str, Any]]:
    """The (step, state) in `path`, which must be a sound checkpoint of `trial`.

    Raises:
        CheckpointError: it is not.
    """
    found = read_checkpoint(path)
    if found.trial != trial:
        raise CheckpointError(f"{path} belongs to trial {found.trial}, not to {trial}; it is not used")
    return found.step, found.state


def read_checkpoint(path: Path) -> Saved:
    """Read `path`, which must be a sound checkpoint or file of kept weights of any trial.

    Raises:
        CheckpointError: it is not.
    """
    import torch

    data = _verified_bytes(path)
    try:
        found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # the bytes are as written, so whatever the unpickler dislikes was put there by a writer
        raise CheckpointError(f"{path} holds more than tensors and plain data ({error}); it is not used") from error
    if not isinstance(found, dict) or found.get("schema") != CHECKPOINT_SCHEMA:
        raise CheckpointError(f"{path} is not a checkpoint of version {CHECKPOINT_SCHEMA}; it is not used")
    return Saved(found["trial"], int(found["step"]), dict(found["state"]))


def newest_checkpoint(
    layout: Layout, trial: str, same_code: Callable[[int], bool] = lambda _: True
) -> tuple[Checkpoint | None, list[str]]:
    """The sound checkpoint of `trial` that is furthest, of any attempt, and what to tell of those passed over.

    `same_code` says of an attempt whether the code that will run made its checkpoints; others are not used. One that
    goes in between has made room for a newer one of an owner that still saves, so that all are looked for anew.
    """
    for _ in range(_LOOKS):
        with contextlib.suppress(_Gone):
            return _newest(layout, trial, same_code, once_more=True)
    return _newest(layout, trial, same_code, once_more=False)


def _newest(
    layout: Layout, trial: str, same_code: Callable[[int], bool], *, once_more: bool
) -> tuple[Checkpoint | None, list[str]]:
    candidates = _candidates(layout, trial)
    strange = sorted({attempt for _, attempt, _ in candidates if not same_code(attempt)})
    remarks = [f"other code made the checkpoints of attempt {attempt}; they are not used" for attempt in strange]
    for step, attempt, path in sorted(candidates, reverse=True):
        if attempt in strange:
            continue
        try:
            _, state = load_checkpoint(path, trial)
        except CheckpointError as error:
            if once_more and isinstance(error, _Gone):
                raise
            remarks.append(str(error))
            continue
        return Checkpoint(attempt, step, state), remarks
    return None, [*remarks, "training starts from the beginning"] if remarks else []


def checkpointed_step(layout: Layout, trial: str, same_code: Callable[[int], bool] = lambda _: True) -> int:
    """The furthest step any checkpoint of `trial` by the same code claims, or 0; nothing is loaded."""
    return max((step for step, attempt, _ in _candidates(layout, trial) if same_code(attempt)), default=0)


def has_checkpoints(layout: Layout, trial: str, attempt: int) -> bool:
    """Whether the attempt has saved anything that is still there.

    Raises:
        EnvironmentProblem: the file system does not answer.
    """
    return bool(_files(layout.checkpoint(trial, attempt)))


def discard_checkpoints(layout: Layout, trial: str, last: int) -> None:
    """Delete the checkpoints of `trial` up to attempt `last`, which has ended well: they will not be resumed."""
    for attempt in layout.attempts(trial):
        if attempt <= last:
            _discard(layout.checkpoint(trial, attempt))


def discard_forgotten(layout: Layout, trial: str, state: TrialState) -> None:
    """The same for who finds `state`: a worker that was killed right after the end of its trial has not done it."""
    last = max((each.attempt for each in state.attempts if (each.end or {}).get("status") == "ok"), default=0)
    for each in state.attempts:
        if each.attempt <= last:
            _discard(layout.checkpoint(trial, each.attempt))


def _discard(directory: Path) -> None:
    with contextlib.suppress(OSError):  # a directory that cannot be deleted only costs space
        if directory.is_dir():
            shutil.rmtree(directory, ignore_errors=True)


def _candidates(layout: Layout, trial: str) -> list[tuple[int, int, Path]]:
    return [
        (_step(path), attempt, path)
        for attempt in layout.attempts(trial)
        for path in _files(layout.checkpoint(trial, attempt))
    ]


def _files(directory: Path) -> list[Path]:
    """Checkpoints in `directory`, by step."""
    try:
        listed = retried(lambda: list(directory.iterdir()))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise environment_problem("list", directory, error) from error
    found = [path for path in listed if not is_temporary(path) and _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (_step(path), path.name))


def _step(path: Path) -> int:
    named = _NAME.fullmatch(path.name)
    assert named is not None
    return int(named["step"])


def _verified_bytes(path: Path) -> bytes:
    named = _NAME.fullmatch(path.name)
    if named is None:
        raise CheckpointError(f"{path} is not named step-<step>.<blake2b>.pt; it is not used")
    try:
        data = read_bytes(path)
    except FileNotFoundError as error:
        raise _Gone(f"{path} has gone; the one before it is used") from error
    except OSError as error:
        problem: EnvironmentProblem = environment_problem("read", path, error)
        raise problem from error
    if _hash(data) != named["blake2b"]:
        raise CheckpointError(f"{path} does not have the hash in its name: it was torn or altered; it is not used")
    return data


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _require_plain(value: object, where: str) -> None:
    """A state that could not be read back is refused when it is written, not when it is needed."""
    import torch

    if isinstance(value, Mapping):
        for name, part in value.items():
            _require_plain(name, f"a key of {where}")
            _require_plain(part, f"{where}[{name!r}]")
    elif isinstance(value, list | tuple):
        for position, part in enumerate(value):
            _require_plain(part, f"{where}[{position}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in _PLAIN:
        raise TypeError(f"a checkpoint holds tensors and plain data only; {where} is a {type(value).__name__}")
