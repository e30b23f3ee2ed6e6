"""Plans, read from `grids/` and `submissions/`: headers and trial lines, with their problems."""

import json
import os
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from grid.errors import NotFoundError, StoreError
from store.files.atomic import parse_object, read_json
from store.files.layout import FILE_SCHEMA, Layout
from store.files.record_fields import Field, another_version, check_record, check_schema, clean_text

_LINE = {
    "trial": Field("key"),
    "cell": Field("key"),
    "seed": Field("int64"),
    "grid": Field("text"),
    "label": Field("text"),
    "operator": Field("text"),
    "axes": Field("object"),
    "spec": Field("object"),
}
_HEADER = {
    "grid": Field("text"),
    "cells": Field("int64"),
    "trials": Field("int64"),
    "seeds": Field("list"),
    "axes": Field("list"),
    "rules": Field("list"),
    "baseline": Field("key", optional=True),
    "baselines": Field("object", optional=True),
    "matched": Field("list", optional=True),
    "measure": Field("object", optional=True),
    "base": Field("object", optional=True),
}
_AXIS = {"path": Field("text"), "name": Field("text"), "labels": Field("list")}


@final
@dataclass
class PlanFile:
    """The lines of one source, and the header where it is a grid."""

    source: str
    header: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(file, reason) of everything that could not be read."""


def plan_signatures(layout: Layout) -> dict[str, str]:
    """Every plan on disk ("grids/<name>", "submissions/<id>") with a signature that changes when its files do."""
    found = {
        f"grids/{name}": _signature(layout.grid_header(name), layout.grid_trials(name))
        for name in layout.planned_grids()
    }
    for submission in layout.submission_ids():
        paths = (layout.manifest(submission), layout.manifest_index(submission))
        found[f"submissions/{submission}"] = _signature(*paths)
    return found


def _signature(*paths: Path) -> str:
    return " ".join(file_signature(path) for path in paths)


def file_signature(path: Path | str) -> str:
    """The version that reads it, the file's inode, its size, and the times of change of its bytes and of the file.

    A rename over the file changes its inode. A file that came back with its old times, from a backup, has a new last.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 (a Path for each of very many is slow)
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    return f"{FILE_SCHEMA}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def read_plan(layout: Layout, source: str) -> PlanFile:
    """The plan `source`; what cannot be read is among its problems and the rest is there."""
    folder, name = source.split("/", 1)
    plan = PlanFile(source)
    if folder == "grids":
        plan.header = _read_header(layout, name, plan)
        _read_lines(layout, layout.grid_trials(name), plan)
        _check_header(layout, plan)
    else:
        offsets = _read_lines(layout, layout.manifest(name), plan)
        _check_index(layout, layout.manifest_index(name), offsets, plan)
    return plan


def _read_header(layout: Layout, name: str, plan: PlanFile) -> dict[str, Any] | None:
    path = layout.grid_header(name)
    try:
        header = read_json(path)
        check_schema(header)
        check_record(header, _HEADER)
        _check_inner(header, name)
    except (NotFoundError, StoreError) as error:
        plan.problems.append((_relative(layout, path), str(error)))
        return None
    return header


def require_version(layout: Layout, name: str) -> None:
    """Refuse the header of a grid that another version of this program wrote: it is neither read nor replaced.

    Raises:
        StoreError: it is one; says which.
    """
    path = layout.grid_header(name)
    try:
        header = read_json(path)
    except (NotFoundError, StoreError):  # a torn file is reported, and a run writes it again
        return
    if another_version(header):
        try:
            check_schema(header)
        except StoreError as error:
            raise StoreError(f"{path} cannot be used: {error}") from error


def _check_inner(header: Mapping[str, Any], name: str) -> None:
    if header["grid"] != name:
        raise StoreError(f"it is the header of the grid {header['grid']!r}, not of {name!r}")
    for cell in (header.get("baselines") or {}).values():
        check_record({"baselines": cell}, {"baselines": Field("key")})
    for seed in header["seeds"]:
        check_record({"seeds": seed}, {"seeds": Field("int64")})
    for axis in header["axes"]:
        check_record({"axes": axis}, {"axes": Field("object")})
        check_record(axis, _AXIS)


def baseline_of_cell(header: Mapping[str, Any], cell: str) -> str | None:
    """The cell that `cell` is compared with; None for a baseline, and without one."""
    if header.get("baselines"):
        found: str | None = header["baselines"].get(cell)
        return found
    return None if header.get("baseline") == cell else header.get("baseline")


def _read_lines(layout: Layout, path: Path, plan: PlanFile) -> list[int]:
    """Add the sound lines of `path` to `plan`; the byte offsets of all of them."""
    file = _relative(layout, path)
    try:
        data = path.read_bytes()
    except OSError as error:
        plan.problems.append((file, f"it cannot be read ({error.strerror})"))
        return []
    if data and not data.endswith(b"\n"):
        plan.problems.append((file, "its last line is torn"))
    offsets, start, seen = [], 0, set[str]()
    for number, text in enumerate(data.splitlines(keepends=True), start=1):
        offsets.append(start)
        start += len(text)
        try:
            line = _line(text, f"line {number}", seen, plan.source)
        except StoreError as error:
            plan.problems.append((file, f"line {number}: {error}"))
            continue
        plan.lines.append(line)
    return offsets


def _line(text: bytes, where: str, seen: set[str], source: str) -> dict[str, Any]:
    line = parse_object(text, where)
    check_record(line, _LINE)
    if source.startswith("grids/") and line["grid"] != source.removeprefix("grids/"):
        raise StoreError(f"it belongs to the grid {line['grid']!r}")
    if line["trial"] in seen:
        raise StoreError(f"the trial {line['trial']} stands there twice")
    seen.add(line["trial"])
    return line


def _check_header(layout: Layout, plan: PlanFile) -> None:
    header = plan.header
    if header is not None and header["trials"] != len(plan.lines):
        path = _relative(layout, layout.grid_trials(header["grid"]))
        plan.problems.append((path, f"its header promises {header['trials']} trials; {len(plan.lines)} can be read"))


def _check_index(layout: Layout, path: Path, offsets: list[int], plan: PlanFile) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        plan.problems.append((_relative(layout, path), f"it cannot be read ({error.strerror})"))
        return
    if len(data) > 8 * len(offsets):
        manifest = _relative(layout, path.with_suffix(".jsonl"))
        plan.problems.append((manifest, f"it has {len(offsets)} lines, and its index {len(data) // 8}"))
    elif data != struct.pack(f"<{len(offsets)}Q", *offsets):
        plan.problems.append((_relative(layout, path), "it does not hold the offsets of its manifest's lines"))


def _relative(layout: Layout, path: Path) -> str:
    return path.relative_to(layout.root).as_posix()


def column_type(values: Iterable[Any]) -> str:
    """The SQL type that holds all `values` of an axis exactly: BIGINT, DOUBLE, BOOLEAN, or, for others, VARCHAR."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in present):
        return "BIGINT"
    numbers = kinds in ({float}, {int, float})
    return "DOUBLE" if numbers and all(_is_double(value) for value in present) else "VARCHAR"


def _is_double(value: float) -> bool:
    return abs(value) <= sys.float_info.max and float(value) == value


def json_text(value: Any) -> str | None:
    """`value` as JSON text for the database; null stays null."""
    return None if value is None else clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
