"""The record of an evaluation that was made later: written once whole, replaced by a rename, never counted twice.

An attempt's directory is held by one process at a time while it writes. The shards come first and count for nothing
until the record names them; so a kill at any moment leaves the evaluation undone or done.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any, NamedTuple, final

import pyarrow.parquet as pq

from grid.errors import EnvironmentProblem, NotFoundError, SpecError, StoreError
from runners.attempts.manifest import submission_id
from runners.evaluations import Evaluation
from runners.posthoc.trained_model import TrainedModel
from runners.tasks.task import Items, Measurements
from store.files.atomic import environment_problem, is_temporary, make_directory, write_atomic, write_json
from store.files.change_tracker import touch_trial
from store.files.layout import FILE_SCHEMA, Layout
from store.files.posthoc_evaluations import Place, evaluation_shards, read_evaluation
from store.files.shards import encode_shard, shard_prefix, verify_shard

_RECORDED_PACKAGES = ("ablate", "torch", "lm-eval", "datasets", "tokenizers", "transformers")

Coordinates = tuple[tuple[str, float], ...]
Said = frozenset[tuple[str, Coordinates]]
"""Names of measurements with the points they are taken at."""


@final
class EvaluationRecord(NamedTuple):
    """What an evaluation found, and what it took."""

    measured: Sequence[Measurements]
    items: Sequence[Items]
    wall_s: float
    data: Mapping[str, Any] | None
    """What it read."""


def said(rows: Iterable[Measurements]) -> Said:
    """What rows are about."""
    return frozenset((each.name, coordinates(each.point)) for each in rows)


def coordinates(point: Mapping[str, float]) -> Coordinates:
    """A point as something that can be compared."""
    return tuple(sorted((name, float(value)) for name, value in point.items()))


@contextmanager
def held(layout: Layout, trial: str, attempt: int) -> Iterator[None]:
    """Keep other processes from writing evaluations of this attempt meanwhile; the kernel lets go if this one dies.

    Raises:
        EnvironmentProblem: another process has it, or the campaign cannot be written.
    """
    path = make_directory(layout.evaluations(trial, attempt)) / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise environment_problem("open", path, error) from error
    try:
        _lock(path, trial, descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, trial: str, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise EnvironmentProblem(
            f"another process is evaluating trial {trial[:8]}; run the same command again when it is done"
        ) from error
    except OSError as error:  # a file system without locks
        raise environment_problem("lock", path, error) from error


def recorded(layout: Layout, place: Place) -> dict[str, Any] | None:
    """The record of an evaluation with all its rows; None where there is none, or what there is cannot be read."""
    try:
        record = read_evaluation(layout, place)
        for path in evaluation_shards(layout, record):
            verify_shard(path)
    except (NotFoundError, StoreError):
        return None
    return record


def others(layout: Layout, place: Place) -> dict[str, Said]:
    """By key what each other later evaluation of the attempt has measured; unreadable ones count for nothing."""
    trial, attempt, evaluation = place
    found = {}
    for key in layout.evaluation_keys(trial, attempt):
        record = None if key == evaluation else recorded(layout, (trial, attempt, key))
        if record is not None:
            found[key] = _said_by(layout, record)
    return found


def _said_by(layout: Layout, record: Mapping[str, Any]) -> Said:
    found: set[tuple[str, Coordinates]] = set()
    for path in evaluation_shards(layout, record):
        if "-evaluation." in path.name:
            rows = pq.read_table(path, columns=["name", "point"]).to_pylist()
            found |= {(row["name"], coordinates(dict(row["point"]))) for row in rows}
    return frozenset(found)


def write_evaluation(
    layout: Layout, trained: TrainedModel, spec: Evaluation, judged: EvaluationRecord, changed: list[str]
) -> None:
    """Publish what `spec` found of a trained model, in place of what it found before; the caller holds the attempt.

    Raises:
        SpecError: it says nothing, or the same thing twice.
        EnvironmentProblem: the campaign cannot be written; what was there stays.
    """
    place = (trained.kept.key, trained.kept.number, spec.key)
    if len(said(judged.measured)) != len(judged.measured) or not judged.measured:
        raise SpecError(f"an evaluation says something, and each thing once; {spec.label} does not: mend its Judge")
    shards = _write_shards(layout, trained, judged)
    record = {
        "schema": FILE_SCHEMA,
        **dict(zip(("trial", "attempt", "evaluation"), place, strict=True)),
        "kind": str(spec.data()["kind"]),
        "spec": spec.data(),
        "step": trained.step,
        "shards": shards,
        "ended": time.time(),
        "wall_s": judged.wall_s,
        "host": socket.gethostname(),
        "device": trained.device.type,
        "threads": trained.trial.execution.threads,
        "weights": trained.kept.weights.name,
        "versions": {"python": python_version(), **_versions()},
        "sources": dict(trained.sources),
        "changed": changed,
        "data": None if judged.data is None else dict(judged.data),
    }
    touch_trial(layout, place[0])
    write_json(layout.evaluation(*place), record)
    _sweep(layout, place)


def forget(layout: Layout, place: Place) -> None:
    """Remove a later evaluation: everything it said was said anew by another; the caller holds the attempt."""
    touch_trial(layout, place[0])
    layout.evaluation(*place).unlink(missing_ok=True)
    _sweep(layout, place)


def _write_shards(layout: Layout, trained: TrainedModel, judged: EvaluationRecord) -> list[str]:
    key, number = trained.kept.key, trained.kept.number
    where = (key, number, trained.step)
    measured = [
        (*where, each.name, dict(each.point), each.value, each.items, each.se_items) for each in judged.measured
    ]
    items = [
        (*where, each.name, dict(each.point), item, float(value))
        for each in judged.items
        for item, value in zip(each.items, each.values, strict=True)
    ]
    prefix, names = shard_prefix(submission_id(), 0, 0), []
    for table, rows, columns in (("evaluation", measured, _EVALUATION), ("item", items, _ITEM)):
        if rows:
            encoded = encode_shard(table, dict(zip(columns, zip(*rows, strict=True), strict=True)), prefix)
            write_atomic(layout.evaluations(key, number) / encoded.name, encoded.data)
            names.append(encoded.name)
    return names


_EVALUATION = ("trial", "attempt", "step", "name", "point", "value", "items", "se_items")
_ITEM = ("trial", "attempt", "step", "name", "point", "item", "value")


def _sweep(layout: Layout, place: Place) -> None:
    """Remove shards that no record names; all stay while a record cannot be read, since it may be mended."""
    trial, attempt, _ = place
    named: set[str] = set()
    for key in layout.evaluation_keys(trial, attempt):
        try:
            named |= set(read_evaluation(layout, (trial, attempt, key))["shards"])
        except NotFoundError:
            continue
        except StoreError:
            return
    for path in layout.evaluations(trial, attempt).glob("*.parquet"):
        if path.name not in named and not is_temporary(path):
            path.unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    found = {}
    for name in _RECORDED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
