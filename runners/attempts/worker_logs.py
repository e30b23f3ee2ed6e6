"""Logs of workers on a cluster: their places in a campaign, and what the end of one says."""

import re
from pathlib import Path
from typing import NamedTuple

from ablate.store.files.layout import Layout

_SUFFIX = "_0_log.out"
_TAIL_BYTES = 1 << 14
_MOST_CHARACTERS = 160

_OURS = re.compile(r"^\S+ \S+ ablate: (?P<text>.*)$")
_SET_UP = re.compile(r"^(a line of set-up ended with|the lines before the worker ended with)")
_GIVEN_UP = re.compile(r"^not queued again: (?!it was cancelled)")
_NODE_NAME = re.compile(r"(?: ended with \d+ on|^queued again: node) (?P<name>[\w.-]+)")
_SCRIPT = re.compile(r"^\S+: line \d+: ")
_NOISE = re.compile(r"Exited with exit code|^\S+: (error: )?\*{3}|task \d+: ")


class LastWords(NamedTuple):
    """The end of a task's log."""

    path: Path
    text: str
    """The lines that say most, as one."""
    node: str
    """The last node that it names, or `?`."""
    over: bool
    """True if the task was given up; False if it was cancelled."""


def logs(layout: Layout, submission: str) -> Path:
    """Return the directory of a submission's logs."""
    return layout.submission(submission) / "logs"


def worker_log(layout: Layout, submission: str, job: str) -> Path:
    """Return the path of a worker's log; `job` is `123_4` or `123`."""
    return logs(layout, submission) / f"{job}{_SUFFIX}"


def worker_logs(layout: Layout, submission: str) -> dict[str, Path]:
    """Return the existing logs, by job."""
    try:
        listed = sorted(logs(layout, submission).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return {path.name.removesuffix(_SUFFIX): path for path in listed if path.name.endswith(_SUFFIX)}


def last_words(path: Path) -> LastWords | None:
    """Read the end of a log; None if it is missing or empty.

    The text is the last line of a program, then how set-up ended; without both, the last line of the batch script.
    """
    try:
        with path.open("rb") as file:
            if file.seek(max(0, path.stat().st_size - _TAIL_BYTES)):
                file.readline()  # the rest of a line
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return None
    own = [match["text"] for line in lines if (match := _OURS.match(line))]
    others = [_SCRIPT.sub("", line) for line in lines if not _OURS.match(line) and not _NOISE.search(line)]
    parts = [*others[-1:], *[line for line in own if _SET_UP.match(line)][-1:]] or own[-1:] or lines[-1:]
    text = "; ".join(part[:_MOST_CHARACTERS] for part in parts)
    nodes = [match["name"] for line in own if (match := _NODE_NAME.search(line))]
    return LastWords(path, text, nodes[-1] if nodes else "?", bool(own and _GIVEN_UP.match(own[-1])))


def given_up(layout: Layout, submission: str, job: str, left: str | None) -> LastWords | None:
    """Return the end of a task's log if the task was given up and its last record, which says `left`, does not say why.

    `left` is None if there is no record, or no end in it.
    """
    if left not in (None, "time", "signal"):
        return None
    printed = last_words(worker_log(layout, submission, job))
    return printed if printed and printed.over else None
