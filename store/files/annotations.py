"""Tags and notes that people write on trials and grids: one line each in `notes.jsonl`, the later line counts."""

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ablate.grid.errors import EnvironmentProblem, SpecError, StoreError
from ablate.store.files.atomic import disk_errors, encode_json, parse_object, read_bytes, write_atomic
from ablate.store.files.layout import Layout
from ablate.store.files.record_fields import Problem, clean_text

FILE = "notes.jsonl"

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

Subject = tuple[str | None, str | None]  # trial and grid; one of them is None


class Annotations(NamedTuple):
    """All that people wrote."""

    tags: dict[Subject, list[str]]
    notes: list[tuple[Subject, float, str]]  # subject, time in seconds since the epoch, and text; oldest first
    problems: list[Problem]


def check_tag(tag: str) -> str:
    """Return `tag` if it can be one; else raise `SpecError`."""
    if not _TAG.fullmatch(tag):
        raise SpecError(
            f"the tag {tag!r} does not fit; write letters, digits, _ . and -, after + to add it and - to remove it"
        )
    return tag


def read_annotations(layout: Layout) -> Annotations:
    """Read the tags and notes of a campaign."""
    annotations = Annotations({}, [], [])
    try:
        lines = _bytes(layout).splitlines()
    except EnvironmentProblem as error:
        return Annotations({}, [], [(FILE, str(error))])
    for number, text in enumerate(lines, start=1):
        from ablate.store.files.records import Annotation  # here: most campaigns have no notes

        try:
            line = Annotation.check(parse_object(text, "it"))
        except StoreError as error:
            annotations.problems.append((FILE, f"line {number}: {error}"))
            continue
        subject = (line.trial, line.grid)
        tags = [tag for tag in annotations.tags.get(subject, ()) if tag not in line.remove]
        annotations.tags[subject] = list(dict.fromkeys([*tags, *map(str, line.add)]))
        if line.note is not None:
            annotations.notes.append((subject, line.written, str(clean_text(line.note))))
    return annotations


def annotate(
    layout: Layout,
    subjects: Iterable[Subject],
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    note: str | None,
) -> int:
    """Write a note or tags on the `subjects` that they change, and count these; the caller holds the ingest lock."""
    said = {"written": time.time(), "add": list(add), "remove": list(remove), "note": note}
    tags = read_annotations(layout).tags
    lines = [
        {"trial": subject[0], "grid": subject[1], **said}
        for subject in subjects
        if note is not None or not set(add) <= set(tags.get(subject, ())) or set(remove) & set(tags.get(subject, ()))
    ]
    if lines:
        write_atomic(layout.root / FILE, _bytes(layout) + b"".join(map(encode_json, lines)))
    return len(lines)


def rename_annotated(layout: Layout, old: str, new: str) -> None:
    """Give what is written on grid `old` to grid `new`; the caller holds the ingest lock."""
    lines = _bytes(layout).splitlines(keepends=True)
    for at, text in enumerate(lines):
        with suppress(StoreError):  # a damaged line stays as it is
            line = parse_object(text, "it")
            lines[at] = encode_json({**line, "grid": new}) if line.get("grid") == old else text
    if lines:
        write_atomic(layout.root / FILE, b"".join(lines))


def _bytes(layout: Layout) -> bytes:
    path = layout.root / FILE
    with disk_errors("read", path), suppress(FileNotFoundError):
        return read_bytes(path)
    return b""
