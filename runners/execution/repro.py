"""Running a finished trial again with the code, the spec and the seed it had, to see whether the result is the same.

The code is the snapshot of the attempt's submission where it has one, else what is installed now. Training happens in
another process, whose import path is that of the restored tree, and in a campaign of its own.
"""

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ablate.grid.durations import format_duration
from ablate.grid.errors import EnvironmentProblem, NotFoundError, SpecError, StoreError
from ablate.runners.attempts.manifest import submission_id, write_submission
from ablate.runners.attempts.micro_batches import split
from ablate.runners.attempts.submission_record import Submission, read_submission_record
from ablate.runners.output import format_count, slow_notice
from ablate.runners.provenance.code import lineage
from ablate.runners.provenance.code_snapshot import Snapshot, extract
from ablate.runners.provenance.environment import (
    THREADS,
    differences as environment_differences,
    record as environment_record,
)
from ablate.store.files.atomic import parse_object
from ablate.store.files.code_versions import differing
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import AttemptState, trial_state

if TYPE_CHECKING:
    from ablate.store.store import Store

_QUERIES = {
    "metric": "SELECT step, name, NULL, NULL, NULL, value FROM v_metric WHERE trial = $trial "
    "AND NOT starts_with(name, 'system.')",  # load of the machine
    "evaluation": "SELECT step, name, NULL, NULL, CAST(point AS VARCHAR), value FROM v_evaluation "
    "WHERE trial = $trial AND later IS NULL",
    "standard error": "SELECT step, name, NULL, NULL, CAST(point AS VARCHAR), se_items FROM v_evaluation "
    "WHERE trial = $trial AND later IS NULL AND se_items IS NOT NULL",
    "item": "SELECT step, name || ' of ' || item, NULL, NULL, CAST(point AS VARCHAR), value FROM v_item "
    "WHERE trial = $trial AND later IS NULL",
    "probe": "SELECT step, name, layer, head, CAST(point AS VARCHAR), value FROM v_probe WHERE trial = $trial",
}


@final
class ValueAddress(NamedTuple):
    """Identifies a recorded value."""

    kind: str
    step: int
    name: str
    layer: int | None = None
    head: int | None = None
    point: str | None = None

    def __str__(self) -> str:
        place = [f"layer {self.layer}"] if self.layer is not None else []
        place += [f"head {self.head}"] if self.head is not None else []
        place += [self.point] if self.point not in (None, "{}") else []
        return " ".join(map(str, (self.kind, self.name, *place, "at step", self.step)))


@final
class ValueDifference(NamedTuple):
    """A value that is not the same bits; None: that result does not have it."""

    where: ValueAddress
    recorded: float | None
    again: float | None

    @property
    def size(self) -> float:
        """The absolute difference; infinite where it is no number."""
        if self.recorded is None or self.again is None:
            return math.inf
        size = abs(self.again - self.recorded)
        return math.inf if math.isnan(size) else size


def values_of(store: "Store", trial: str) -> dict[ValueAddress, float]:
    """Every metric, evaluation, item and probe of `trial` that counts, without later evaluations and machine load."""
    return {
        ValueAddress(kind, *row[:-1]): row[-1]
        for kind, query in _QUERIES.items()
        for row in store.sql(query, {"trial": trial}).rows()
    }


def differences(recorded: Mapping[ValueAddress, float], again: Mapping[ValueAddress, float]) -> list[ValueDifference]:
    """Where two results differ, largest first; NaN equals NaN, and 0.0 is not -0.0."""
    unequal = [
        ValueDifference(where, recorded.get(where), again.get(where))
        for where in {**recorded, **again}
        if _bits(recorded.get(where)) != _bits(again.get(where))
    ]
    return sorted(unequal, key=lambda each: (-each.size, each.where.step, str(each.where)))


def _bits(value: float | None) -> bytes | None:
    return None if value is None else b"nan" if math.isnan(value) else struct.pack("<d", value)


class Reproduction(NamedTuple):
    """Result of a reproduction."""

    equal: int
    different: list[ValueDifference]
    """The others, largest difference first."""
    failure: str | None = None


@final
@dataclass(frozen=True)
class Recorded:
    """Record of a finished trial."""

    layout: Layout
    key: str
    attempt: int
    start: Mapping[str, Any]
    end: Mapping[str, Any]
    record: Submission | None
    """None if the submission has no record."""
    made_by: tuple[AttemptState, ...]
    """The attempts that computed the result, latest first; each resumed from the next."""

    @property
    def mixed(self) -> bool:
        """True if it was resumed on another device, or with another number of micro-batches."""
        return len({(each.start.get("device"), each.start.get("accumulate")) for each in self.made_by}) > 1

    @property
    def took(self) -> str:
        ends = [each.end for each in self.made_by if each.end is not None]
        spent = format_duration(sum(float(end.get("wall_s") or 0.0) for end in ends))
        return f"{format_count(len(ends), 'attempt')} that made its result took {spent} in all"

    @property
    def snapshot(self) -> Snapshot | None:
        fields = self.record.snapshot if self.record else None
        return None if fields is None else Snapshot.of(fields)

    def line(self) -> dict[str, Any]:
        """Read its manifest line, with the device and micro-batches of the last attempt.

        Raises NotFoundError if the manifest is missing or has no such line.
        """
        path = self.layout.manifest(self.start["submission"])
        begins = f'{{"trial":"{self.key}"'.encode()
        text = None
        with suppress(FileNotFoundError), path.open("rb") as file:
            text = next((line for line in file if line.startswith(begins)), None)
        if text is None:
            raise NotFoundError(f"{path} has no line of the trial {self.key}; put the file back")
        line = parse_object(text, str(path))
        execution = line["spec"].get("execution") or {}
        if self.start.get("device") and "device" in execution:
            execution["device"] = self.start["device"]
        if self.start.get("accumulate") and "accumulate" in execution:
            line["spec"] = split(line["spec"], self.start["accumulate"])
        return line


def read_recorded(layout: Layout, key: str) -> Recorded:
    """Read the record of the trial `key`; the latest ok attempt counts.

    Raises:
        NotFoundError: the trial has no result.
        StoreError: the record of its submission is damaged.
    """
    state = trial_state(layout, key)
    done = state.result
    if done is None or done.end is None:
        raise NotFoundError(f"the trial {key} is {state.state}, and has no result to compare with; run it first")
    record = None
    with suppress(NotFoundError):
        record = read_submission_record(layout, str(done.start["submission"]))
    made_by = tuple(filter(None, lineage(state, done.attempt)))
    return Recorded(layout, key, done.attempt, done.start, done.end, record, made_by)


def submitted_code(recorded: Recorded) -> list[Path]:
    """List the files of code that a repetition runs: the snapshot, else the spec files."""
    if recorded.snapshot is not None:
        return [recorded.layout.snapshot_tar(recorded.snapshot.tar)]
    job = recorded.record.job if recorded.record else {}
    return [Path(file) for file in job.get("specs") or job.get("files") or ()]


def reproduce(store: "Store", key: str, place: Path, spec: Path | None, notify: Callable[[str], None]) -> Reproduction:
    """Run the trial `key` of `store` again in the directory `place` and compare every value that counts.

    `spec` is the file its classes are from, where neither a snapshot nor a record says so.

    Raises:
        NotFoundError: the trial has no result, or the files that say how it was run are gone.
        SpecError: its spec has another key with the code that is here.
        StoreError: a snapshot or the manifest was altered.
        EnvironmentProblem: the trial cannot be started.
    """
    recorded = read_recorded(store.layout, key)
    with slow_notice("restoring the code, and comparing the environment"):
        request = _prepare(recorded, place, spec, notify)
        differ = list(_environment(recorded))
    for sentence in differ:
        notify(sentence)
    if recorded.mixed:
        notify("the trial went on on another device, or in other micro-batches, than it began: bits may differ")
    notify(f"training it again; {recorded.took}")
    _run(request, _variables(recorded, request))
    with slow_notice("comparing the values"):
        result = _compare(store, recorded, Layout(Path(request["root"])), notify)
    if result.failure is not None and not request["files"]:
        notify("if it needs a spec file, name the spec file that defines its classes with --spec")
    return result


def _prepare(recorded: Recorded, place: Path, spec: Path | None, notify: Callable[[str], None]) -> dict[str, Any]:
    """Restore code and manifest below `place`; what `ablate.runners.rerun` is asked for."""
    layout = Layout(place / "campaign")
    submission = submission_id()
    write_submission(layout, submission, [recorded.line()])
    job = recorded.record.job if recorded.record else {}
    entry = job.get("entry") or {}  # a snapshot of a release that recorded it asks for it
    snapshot, tree, made_by = recorded.snapshot, None, recorded.start["submission"]
    if snapshot is not None and spec is not None:
        raise SpecError(
            f"--spec has no effect on a trial with a snapshot; that of {made_by} has the spec file in it, leave it out"
        )
    if snapshot is not None:
        tree = extract(recorded.layout.snapshot_tar(snapshot.tar), place / "tree")
        files = snapshot.files(tree)
        changes = f", {format_count(len(snapshot.changed), 'file')} changed, {len(snapshot.untracked)} untracked"
        commit = f" (commit {snapshot.head[:12]}{changes if snapshot.dirty else ''})" if snapshot.head else ""
        notify(f"the code is the snapshot that {made_by} was submitted with{commit}")
    else:
        files = (spec.resolve(),) if spec else tuple(Path(file) for file in job.get("files") or ())
        notify(f"{made_by} kept no snapshot, so the code is what is installed now")
    return {
        "root": str(layout.root),
        "submission": submission,
        "trial": entry.get("trial"),
        "train": entry.get("train"),
        "files": [str(file) for file in files],
        "tree": None if tree is None else str(tree),
        "paths": [] if tree is None or snapshot is None else [str(tree / path) for path in snapshot.paths],
    }


def _environment(recorded: Recorded) -> Iterator[str]:
    """Describe how this environment differs from the recorded one."""
    if recorded.record is None or recorded.record.environment is None:
        yield "the submission did not record its environment, so it may differ"
        return
    differ = environment_differences(recorded.record.environment, environment_record())
    yield from (f"{each}; this may change the numbers" for each in differ.forbidding)
    yield from differ.remarks


def _variables(recorded: Recorded, request: Mapping[str, Any]) -> dict[str, str]:
    """Build the environment variables: import path, and the number of threads of the attempt."""
    before = os.environ.get("PYTHONPATH")
    paths = (
        [*request["paths"], *([before] if before else [])] if request["tree"] else [each for each in sys.path if each]
    )
    threads = str(recorded.start.get("threads") or 1)
    return {
        **os.environ,
        **{name: threads for name in THREADS if name.endswith("_NUM_THREADS")},
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _run(request: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Train in another process, which ends with this one."""
    old = request["tree"] is not None and Path(request["tree"], "code", "runners").is_dir()  # a tree of release 0.1
    module = ".".join(["runners" if old else "ablate.runners", "rerun"])
    command = [sys.executable, "-P", "-m", module, json.dumps(request)]
    done = subprocess.run(
        command,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise EnvironmentProblem(f"the trial cannot be run again: {said}")


def _compare(store: "Store", recorded: Recorded, layout: Layout, notify: Callable[[str], None]) -> Reproduction:
    from ablate.store.store import Store

    state = trial_state(layout, recorded.key)
    if state.ended is None or state.ended.end is None:
        raise StoreError(f"{layout.trial(recorded.key)} has no record of how the trial ended; run the command again")
    start, end = state.ended.start, state.ended.end
    for sentence in _changed_code(recorded, start):
        notify(sentence)
    if end["status"] == "stopped":
        raise SpecError(
            f"the trial {recorded.key} has another key by the code that is here, since the fields of its specs have "
            "changed; it cannot be run again as it was"
        )
    if end["status"] == "failed":
        return Reproduction(0, [], f"{end['reason']}: {' '.join(str(end['message']).split())}")
    with Store.open(layout.root) as again:
        before, now = values_of(store, recorded.key), values_of(again, recorded.key)
    different = differences(before, now)
    return Reproduction(len(before.keys() | now.keys()) - len(different), different)


def _changed_code(recorded: Recorded, start: Mapping[str, Any]) -> Iterator[str]:
    before, now = recorded.start.get("sources"), start.get("sources")
    if before is None:
        yield "the attempt did not record its code, so nothing says whether it is the same"
    elif now is not None and (changed := list(differing(before, now, recorded.start.get("path")))):
        yield f"the code is not what the trial ran: {', '.join(changed)} changed since"
