"""Checkpoints: the state of a trial at a step, in a file whose name contains its hash.

    <attempt>/checkpoint/step-000000400.<blake2b>.pt

One rename publishes state and hash together. A damaged file is detected before it is parsed, and the previous one is
used. The state is tensors and plain data; loading never runs code from the file.
"""

import contextlib
import io
import math
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from ablate.grid.errors import StoreError
from ablate.store.files.atomic import (
    OF_THE_DISK,
    disk_errors,
    environment_problem,
    is_temporary,
    read_bytes,
    retry_io,
    write_atomic,
)
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import TrialState

CHECKPOINT_SCHEMA = 1
"""Version of the checkpoint files; a reader refuses others."""

KEEP = 2
"""Checkpoints kept per trial and code: the newest and a fallback."""

_LOOKS = 5
"""Most attempts to list checkpoints while their owner deletes some."""

_NAME = re.compile(r"step-(?P<step>[0-9]+)\.(?P<blake2b>[0-9a-f]{32})\.pt")
_PLAIN = (type(None), bool, int, float, str, bytes)


class CheckpointError(StoreError):
    """A checkpoint that must not be used: gone, damaged, of another version, or of another trial."""


class Checkpoint(NamedTuple):
    """A loaded state, with its attempt and step."""

    attempt: int
    step: int
    state: dict[str, Any]


def save_checkpoint(directory: Path, trial: str, step: int, state: Mapping[str, Any], most: int = KEEP) -> Path:
    """Write the state of `trial` at `step` and keep the newest `most` checkpoints of the directory.

    Raises:
        TypeError: the state holds something other than tensors and plain data.
        EnvironmentProblem: the disk is full or not writable; existing checkpoints stay.
    """
    import torch  # here: processes that only read campaigns do not import torch

    require_plain(state, "state")
    sink = io.BytesIO()
    torch.save({"schema": CHECKPOINT_SCHEMA, "trial": trial, "step": step, "state": dict(state)}, sink)
    data = sink.getvalue()
    path = write_atomic(directory / f"step-{step:09d}.{_hash(data)}.pt", data)
    others = [each for each in _files(directory) if each != path]
    replaced = [each for each in others if _step(each) == step]  # an evaluation saves its step again
    older = [each for each in others if each not in replaced]
    old = [*replaced, *older[: max(0, len(older) + 1 - most)]]
    try:
        for each in old:
            retry_io(partial(each.unlink, missing_ok=True))
    except OSError as error:
        raise environment_problem("clear", directory, error) from error
    return path


def forget_older(
    layout: Layout, trial: str, attempt: int, resumed: Mapping[str, int] | None, same_code: Callable[[int], bool]
) -> None:
    """Delete checkpoints of earlier attempts that `attempt` has replaced; `KEEP` are left in all.

    Checkpoints beyond the step that `attempt` was `resumed` from are damaged and are deleted first. Checkpoints of
    other code stay. Nothing is deleted if a later attempt has begun, since it may not have saved yet.
    """
    if max(layout.attempts(trial), default=0) > attempt:
        return
    furthest = resumed["step"] if resumed else math.inf
    earlier = [each for each in _candidates(layout, trial) if each[1] < attempt and same_code(each[1])]
    older = sorted((step <= furthest, step, at, path) for step, at, path in earlier)
    room = max(0, KEEP - len(_files(layout.checkpoint(trial, attempt))))
    for *_, path in older[: max(0, len(older) - room)]:
        with contextlib.suppress(OSError):  # a leftover file only costs space
            path.unlink()


class Saved(NamedTuple):
    """Content of a checkpoint or a weights file."""

    trial: str
    step: int
    state: dict[str, Any]


def load_checkpoint(path: Path, trial: str) -> tuple[int, dict[str, Any]]:
    """Load (step, state) from a checkpoint of `trial`. Raises CheckpointError if it is damaged or of another trial."""
    saved = read_checkpoint(path)
    if saved.trial != trial:
        raise CheckpointError(f"{path} belongs to trial {saved.trial}, not to {trial}; it is not used")
    return saved.step, saved.state


def read_checkpoint(path: Path) -> Saved:
    """Load a checkpoint or weights file of any trial. Raises CheckpointError if it is damaged or of another version."""
    import torch

    named = _NAME.fullmatch(path.name)
    if named is None:
        raise CheckpointError(f"{path} is not named step-<step>.<blake2b>.pt; it is not used")
    try:
        data = read_bytes(path)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} has gone; the one before it is used") from error
    except OSError as error:
        if error.errno in OF_THE_DISK:
            raise environment_problem("read", path, error) from error
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); it is not used") from error
    if _hash(data) != named["blake2b"]:
        raise CheckpointError(f"{path} does not have the hash in its name: it was torn or altered; it is not used")
    try:
        content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # the hash matches, so the file was written like this
        raise CheckpointError(f"{path} holds more than tensors and plain data ({error}); it is not used") from error
    if not isinstance(content, dict) or content.get("schema") != CHECKPOINT_SCHEMA:
        raise CheckpointError(f"{path} is not a checkpoint of version {CHECKPOINT_SCHEMA}; it is not used")
    try:
        return Saved(content["trial"], int(content["step"]), dict(content["state"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} lacks a part of a checkpoint ({error!r}); it is not used") from error


def newest_checkpoint(
    layout: Layout, trial: str, same_code: Callable[[int], bool] = lambda _: True
) -> tuple[Checkpoint | None, list[str]]:
    """Load the furthest intact checkpoint of `trial`, of any attempt; also return remarks on those skipped.

    `same_code` tells whether the current code made the checkpoints of an attempt; others are skipped. If a checkpoint
    disappears meanwhile, its owner has written a newer one, so the list is read again.
    """
    for looks_left in reversed(range(_LOOKS)):
        candidates = _candidates(layout, trial)
        strange = sorted({attempt for _, attempt, _ in candidates if not same_code(attempt)})
        remarks = [f"other code made the checkpoints of attempt {attempt}; they are not used" for attempt in strange]
        for step, attempt, path in sorted(candidates, reverse=True):
            if attempt in strange:
                continue
            try:
                return Checkpoint(attempt, step, load_checkpoint(path, trial)[1]), remarks
            except CheckpointError as error:
                if looks_left and isinstance(error.__cause__, FileNotFoundError):
                    break
                remarks.append(str(error))
        else:
            break
    return None, [*remarks, "training starts from the beginning"] if remarks else []


def newest_kept(layout: Layout, trial: str, name: str) -> dict[str, Any] | None:
    """Load the state that the latest attempt kept under `name`; None if none did."""
    for attempt in sorted(layout.attempts(trial), reverse=True):
        for path in reversed(_files(layout.weights(trial, attempt) / name)):
            return load_checkpoint(path, trial)[1]
    return None


def set_aside(layout: Layout, trial: str, checkpoint: Checkpoint) -> None:
    """Rename the files of a checkpoint that does not fit its trial, so that the one before it is used."""
    directory = layout.checkpoint(trial, checkpoint.attempt)
    for path in _files(directory):
        if _step(path) == checkpoint.step:
            with disk_errors("rename", path):
                path.rename(f"{path}.unfit")


def checkpointed_step(layout: Layout, trial: str, same_code: Callable[[int], bool] = lambda _: True) -> int:
    """Return the furthest step in the checkpoint names of the same code, or 0; nothing is loaded."""
    return max((step for step, attempt, _ in _candidates(layout, trial) if same_code(attempt)), default=0)


def discard_checkpoints(layout: Layout, trial: str, last: int) -> None:
    """Delete the checkpoints of `trial` up to attempt `last`, which is ok."""
    for attempt in layout.attempts(trial):
        if attempt <= last:
            shutil.rmtree(layout.checkpoint(trial, attempt), ignore_errors=True)  # a leftover only costs space


def discard_forgotten(layout: Layout, trial: str, state: TrialState) -> None:
    """Delete checkpoints of a finished trial that a killed worker has left."""
    discard_checkpoints(layout, trial, state.result.attempt if state.result else 0)


def _candidates(layout: Layout, trial: str) -> list[tuple[int, int, Path]]:
    return [
        (_step(path), attempt, path)
        for attempt in layout.attempts(trial)
        for path in _files(layout.checkpoint(trial, attempt))
    ]


def _files(directory: Path) -> list[Path]:
    """List the checkpoints in `directory`, by step."""
    try:
        listed = retry_io(lambda: list(directory.iterdir()))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise environment_problem("list", directory, error) from error
    checkpoints = [path for path in listed if not is_temporary(path) and _NAME.fullmatch(path.name)]
    return sorted(checkpoints, key=lambda path: (_step(path), path.name))


def _step(path: Path) -> int:
    return int(path.name.split(".")[0].removeprefix("step-"))


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def require_plain(value: object, where: str) -> None:
    """Raise TypeError if a state could not be loaded again."""
    import torch

    if isinstance(value, Mapping):
        for name, part in value.items():
            require_plain(name, f"a key of {where}")
            require_plain(part, f"{where}[{name!r}]")
    elif isinstance(value, list | tuple):
        for position, part in enumerate(value):
            require_plain(part, f"{where}[{position}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in _PLAIN:
        raise TypeError(f"a checkpoint holds tensors and plain data only; {where} is a {type(value).__name__}")
