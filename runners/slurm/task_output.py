"""What the tasks of workers print: where it lies and what it ends with, which is all of those without a record."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from store.files.layout import Layout

_END = "_0_log.out"
_TAIL_BYTES = 1 << 14
_MOST = 160
"""Characters of a line that are shown."""

_OURS = re.compile(r"^\S+ \S+ ablate: (?P<text>.*)$")
_SET_UP = re.compile(r"^(a line of set-up ended with|the lines before the worker ended with)")
_OVER = re.compile(r"^not queued again: (?!it was cancelled)")
_NODE = re.compile(r"(?: ended with \d+ on|^queued again: node) (?P<name>[\w.-]+)")
_SCRIPT = re.compile(r"^\S+: line \d+: ")
_NOISE = re.compile(r"Exited with exit code|^\S+: (error: )?\*{3}|task \d+: ")


class LastWords(NamedTuple):
    """What the output of a task ends with."""

    path: Path
    text: str
    """Its most telling lines, as one."""
    node: str
    """The last that it names, or `?`."""
    over: bool
    """Whether it says that the task is not queued again, for another reason than that somebody cancelled it."""


def logs(layout: Layout, submission: str) -> Path:
    """Directory of what the workers of a submission print."""
    return layout.submission(submission) / "logs"


def worker_log(layout: Layout, submission: str, job: str) -> Path:
    """What a worker printed, by its job as in `place`: `123_4`, or `123`."""
    return logs(layout, submission) / f"{job}{_END}"


def worker_logs(layout: Layout, submission: str) -> dict[str, Path]:
    """What is there of such files, by job."""
    try:
        listed = sorted(logs(layout, submission).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {path.name.removesuffix(_END): path for path in listed if path.name.endswith(_END)}


def last_words(path: Path) -> LastWords | None:
    """What the output `path` ends with; None where there is none, or nothing in it."""
    try:
        with path.open("rb") as file:
            start = file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            if start:
                file.readline()  # the rest of a line
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    own = [found["text"] for line in lines if (found := _OURS.match(line))]
    nodes = [found["name"] for said in own if (found := _NODE.search(said))]
    return LastWords(path, _telling(lines), nodes[-1] if nodes else "?", bool(own and _OVER.match(own[-1])))


def given_up(layout: Layout, submission: str, job: str, left: str | None) -> LastWords | None:
    """What a task printed at its end, if nobody takes it any more and its last record, which says `left`, has no reason
    for that; None for the record: there is none, or its life had no end."""
    if left not in (None, "time", "signal"):
        return None
    printed = last_words(worker_log(layout, submission, job))
    return printed if printed and printed.over else None


def _telling(lines: Sequence[str]) -> str:
    """How set-up ended, with the line before it; else the last line that is not the script's own."""
    ours = [_OURS.match(line) for line in lines]
    for at in range(len(lines) - 1, -1, -1):
        found = ours[at]
        if found is None or not _SET_UP.match(found["text"]):
            continue
        above = at - 1
        while above >= 0 and (mine := ours[above]) is not None and _SET_UP.match(mine["text"]):
            above -= 1
        before = lines[above] if above >= 0 and ours[above] is None else ""
        return "; ".join(filter(None, (_SCRIPT.sub("", before)[:_MOST], found["text"][:_MOST])))
    theirs = [line for line, mine in zip(lines, ours, strict=True) if mine is None and not _NOISE.search(line)]
    said = [found["text"] for found in ours if found]
    return (theirs or said or list(lines))[-1][:_MOST]
