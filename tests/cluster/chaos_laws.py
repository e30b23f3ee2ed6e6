"""Laws that every campaign keeps whatever happened to it, and the history of trials that break one."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from cluster.chaos_training import CHECKPOINT_S, diary

from ablate.runners.attempts.manifest import Manifest
from ablate.runners.attempts.worker_logs import logs
from ablate.runners.attempts.worker_records import read_workers
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import AttemptState, trial_state
from ablate.store.store import Store

Tables = Mapping[str, Sequence[tuple[Any, ...]]]


def planned(layout: Layout) -> list[str]:
    """Keys of all trials that were submitted."""
    found = [Manifest(layout, submission) for submission in layout.submission_ids()]
    return [manifest.line(row)["trial"] for manifest in found for row in range(len(manifest))]


def trial_spec(layout: Layout, key: str) -> dict[str, Any]:
    """The spec of a trial that was submitted."""
    found = [Manifest(layout, submission) for submission in layout.submission_ids()]
    lines = (manifest.line(row) for manifest in found for row in range(len(manifest)))
    return dict(next(line["spec"] for line in lines if line["trial"] == key))


def complete(layout: Layout) -> int:
    """How many trials have an attempt that is ok."""
    return sum(trial_state(layout, key, lambda *_: False).state == "done" for key in planned(layout))


def broken(layout: Layout, steps: Path) -> list[str]:
    """Laws that do not hold, each with the trial in question; `steps` is where the diaries are."""
    return [f"{key[:8]}: {what}" for key in planned(layout) for what in _broken(layout, steps, key)]


def _broken(layout: Layout, steps: Path, key: str) -> Iterator[str]:
    attempts = trial_state(layout, key, lambda *_: False).attempts
    ended = [(found.end or {}).get("reason") or (found.end or {}).get("status") for found in attempts]
    hog = trial_spec(layout, key).get("fate") == "hogs"
    if ended.count("ok") != 1 or ended[-1] != "ok" or not set(ended) <= {None, "ok", "stopped", "out_of_memory" * hog}:
        yield f"its attempts ended with {ended}"
    for before, after in pairwise(attempts):
        yield from _broken_between(before, after)
        yield from _wasted(steps, key, before.attempt, after)


def _broken_between(before: AttemptState, after: AttemptState) -> Iterator[str]:
    """The later attempt goes on where the earlier one said that it stopped, and never further back than it began."""
    resumed, began = _step(after), _step(before)
    if resumed < began:
        yield f"attempt {before.attempt} began at {began}, and attempt {after.attempt} at {resumed}"
    if before.end is not None and before.end["status"] == "stopped" and resumed != before.end["step"]:
        yield f"attempt {before.attempt} saved {before.end['step']}, and attempt {after.attempt} began at {resumed}"


def _step(found: AttemptState) -> int:
    return int((found.start["resumed_from"] or {"step": 0})["step"])


def _wasted(steps: Path, key: str, before: int, after: AttemptState) -> Iterator[str]:
    """The later attempt begins when the earlier one is over, and repeats no more than a checkpoint interval of it.

    A checkpoint may be written after each step. All lost steps but the last were therefore made less than an interval
    after the last checkpoint, and saved steps are found.
    """
    lines, following = diary(steps, key, before), diary(steps, key, after.attempt)
    if lines and following and following[0].at < lines[-1].at:
        late = sum(line.at > following[0].at for line in lines)
        yield f"attempt {before} wrote {late} lines after attempt {after.attempt} had begun"
    resumed = _step(after)
    kept = [line for line in lines if line.what != "step"]
    if kept and resumed < kept[-1].step:
        yield f"attempt {before} saved {kept[-1].step}, and attempt {after.attempt} began at {resumed}"
    lost = [line for line in lines if line.what == "step" and line.step > resumed]
    if kept and len(lost) > 1 and lost[-2].at - kept[-1].at >= CHECKPOINT_S:
        seconds = lost[-1].at - kept[-1].at
        yield f"attempt {before} lost {len(lost)} steps, {seconds:.2f} s; an interval is {CHECKPOINT_S:g} s"


def abandoned(layout: Layout) -> list[str]:
    """Workers that did not come back after their last life was cut short."""
    workers = [each for name in layout.submission_ids() for each in read_workers(layout, name)]
    last = {(each.submission, each.resource_class, each.worker): each for each in workers}
    return [f"{each.job} after {each.restarts} restarts" for each in last.values() if each.left != "done"]


def differences(found: Tables, expected: Tables) -> list[str]:
    """Rows of `found` that are not expected, and rows that are missing, each as often as that is so."""
    told = []
    for name in expected:
        here, there = Counter(map(str, found[name])), Counter(map(str, expected[name]))
        told += [f"{name} has {row}" for row in (here - there).elements()]
        told += [f"{name} lacks {row}" for row in (there - here).elements()]
    return told


def recorded_again(root: Path) -> int:
    """Rows in the database that another attempt has recorded too; only one of them counts."""
    with Store.open(root) as store:
        (found,) = store.sql("SELECT count(*) - count(DISTINCT (trial, step, name)) FROM metric").rows()
    return int(found[0])


def processes_that_know(place: Path) -> list[str]:
    """Processes of this machine whose environment or command names `place`, as number and command."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            command = (each / "cmdline").read_bytes()
            known = (each / "environ").read_bytes() + command
        except OSError:
            continue
        if str(place).encode() in known and int(each.name) != os.getpid():
            found.append(f"{each.name} {command.replace(bytes(1), b' ').decode(errors='replace')[:200]}")
    return found


def history(layout: Layout, said: list[str]) -> str:
    """Describe faults, records of workers and ends of their logs, to find the reason of a failure."""
    parts = {"happened": "\n".join(said)}
    for submission in layout.submission_ids():
        parts[submission] = "\n".join(map(str, read_workers(layout, submission)))
        for path in sorted(logs(layout, submission).glob("*")):
            parts[path.name] = "\n".join(path.read_text(errors="replace").splitlines()[-40:])
    return "\n\n".join(f"== {name}\n{text}" for name, text in parts.items())
