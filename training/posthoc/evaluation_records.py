"""Write and read records of later evaluations.

One process at a time writes into an attempt's directory. Shards are written first and count only when the record names
them. A new record replaces the old one by a rename, so a kill at any moment leaves the evaluation undone or done.
"""

import fcntl
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from ablate.grid.errors import EnvironmentProblem, NotFoundError, SpecError, StoreError
from ablate.runners.attempts.manifest import submission_id
from ablate.store.files.atomic import environment_problem, is_temporary, make_directory, write_atomic, write_json
from ablate.store.files.attempt_records import Place, evaluation_shards, read_evaluation
from ablate.store.files.change_tracker import touch_trial
from ablate.store.files.layout import FILE_SCHEMA, Layout
from ablate.store.files.records import Evaluated
from ablate.store.files.rows import check_row
from ablate.store.files.shards import TABLES, encode_shard, shard_prefix, verify_shard
from ablate.training.evaluations import Evaluation
from ablate.training.evaluations.knockout import Knockout
from ablate.training.posthoc.trained_model import TrainedModel
from ablate.training.tasks.task import Items, Measurements

_RECORDED_PACKAGES = ("ablate", "torch", "lm-eval", "datasets", "tokenizers", "transformers")

Coordinates = tuple[tuple[str, float], ...]
Coverage = frozenset[tuple[str, Coordinates]]
"""Names of measurements with their points."""


class EvaluationRecord(NamedTuple):
    """The result of an evaluation."""

    measured: Sequence[Measurements]
    items: Sequence[Items]
    wall_s: float
    data: Mapping[str, Any] | None
    """The record of the data that it read."""


def coverage(rows: Iterable[Measurements]) -> Coverage:
    """Return names and points of measurements."""
    return frozenset((each.name, coordinates(each.point)) for each in rows)


def coordinates(point: Mapping[str, float]) -> Coordinates:
    """Return a point in a form that can be compared."""
    return tuple(sorted((name, float(value)) for name, value in point.items()))


@contextmanager
def lock_attempt(layout: Layout, trial: str, attempt: int) -> Iterator[None]:
    """Lock the evaluations of an attempt, at most until death; EnvironmentProblem if another process has the lock."""
    path = make_directory(layout.evaluations(trial, attempt)) / "lock"
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("ab"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise EnvironmentProblem(
                f"another process is evaluating trial {trial[:8]}; run the same command again when it is done"
            ) from error
        except OSError as error:
            raise environment_problem("lock", path, error) from error
        yield


def read_record(layout: Layout, place: Place) -> Evaluated | None:
    """Read the record of an evaluation and verify its rows; None if it is missing or unreadable."""
    try:
        record = read_evaluation(layout, place)
        for path in evaluation_shards(layout, record):
            verify_shard(path)
    except (NotFoundError, StoreError):
        return None
    return record


def read_others(layout: Layout, place: Place) -> dict[str, Coverage]:
    """Return by key what each other later evaluation of the attempt has measured. Unreadable ones are left out."""
    trial, attempt, evaluation = place
    covered = {}
    for key in layout.evaluation_keys(trial, attempt):
        record = None if key == evaluation else read_record(layout, (trial, attempt, key))
        if record is not None:
            shards = [path for path in evaluation_shards(layout, record) if "-evaluation." in path.name]
            rows = [row for path in shards for row in pq.read_table(path, columns=["name", "point"]).to_pylist()]
            covered[key] = frozenset((row["name"], coordinates(dict(row["point"]))) for row in rows)
    return covered


def write_evaluation(
    layout: Layout, trained: TrainedModel, spec: Evaluation | Knockout, result: EvaluationRecord, changed: list[str]
) -> None:
    """Publish an evaluation, under the lock; SpecError if it measures nothing, or one thing twice."""
    place = (trained.kept.key, trained.kept.number, spec.key)
    if len(coverage(result.measured)) != len(result.measured) or not result.measured:
        raise SpecError(f"{spec.label} measures nothing, or a name twice at one point; correct its rows")
    shards = _write_shards(layout, trained, result)
    record = {
        "schema": FILE_SCHEMA,
        **dict(zip(("trial", "attempt", "evaluation"), place, strict=True)),
        "kind": str(spec.data()["kind"]),
        "spec": spec.data(),
        "step": trained.step,
        "shards": shards,
        "ended": time.time(),
        "wall_s": result.wall_s,
        "host": socket.gethostname(),
        "device": trained.device.type,
        "threads": trained.trial.execution.threads,
        "weights": trained.kept.weights.name,
        "versions": _versions(),
        "sources": dict(trained.sources),
        "changed": changed,
        "data": None if result.data is None else dict(result.data),
    }
    touch_trial(layout, place[0])
    write_json(layout.evaluation(*place), record)
    _remove_unused_shards(layout, place)


def forget(layout: Layout, place: Place) -> None:
    """Remove a later evaluation whose measurements another has replaced. The caller holds the lock."""
    touch_trial(layout, place[0])
    layout.evaluation(*place).unlink(missing_ok=True)
    _remove_unused_shards(layout, place)


def _write_shards(layout: Layout, trained: TrainedModel, result: EvaluationRecord) -> list[str]:
    key, number = trained.kept.key, trained.kept.number
    where = (key, number, trained.step)
    measured = [(*where, name, point, value, items, se) for name, value, point, items, se in result.measured]
    items = [
        (*where, each.name, each.point, item, value)
        for each in result.items
        for item, value in zip(each.items, each.values, strict=True)
    ]
    prefix, names = shard_prefix(submission_id(), 0, 0), []
    for table, rows in (("evaluation", measured), ("item", items)):
        if rows:
            columns = zip(*(check_row(table, row) for row in rows), strict=True)
            encoded = encode_shard(table, dict(zip(TABLES[table].names, columns, strict=True)), prefix)
            write_atomic(layout.evaluations(key, number) / encoded.name, encoded.data)
            names.append(encoded.name)
    return names


def _remove_unused_shards(layout: Layout, place: Place) -> None:
    """Remove shards that no record names. All stay while a record is unreadable, since it may be repaired."""
    trial, attempt, _ = place
    named: set[str] = set()
    for key in layout.evaluation_keys(trial, attempt):
        try:
            named |= set(read_evaluation(layout, (trial, attempt, key)).shards)
        except NotFoundError:
            continue
        except StoreError:
            return
    for path in layout.evaluations(trial, attempt).glob("*.parquet"):
        if path.name not in named and not is_temporary(path):
            path.unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    versions = {"python": python_version()}
    for name in _RECORDED_PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
