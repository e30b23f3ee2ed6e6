"""Plans, read from `grids/` and `submissions/`: headers and trial lines, with their problems."""

import struct
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, final

from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.store.files.atomic import parse_object, read_json
from ablate.store.files.layout import Layout
from ablate.store.files.record_fields import Problem, check_schema, file_signature, json_text, relative


@final
@dataclass
class PlanFile:
    """The lines of one source, and the header where it is a grid."""

    source: str
    header: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def report(self, layout: Layout, path: Path, reason: object) -> None:
        self.problems.append((relative(layout, path), str(reason)))


def plan_signatures(layout: Layout) -> dict[str, str]:
    """Every plan on disk ("grids/<name>", "submissions/<id>") with a signature that changes when its files do."""
    files = {f"grids/{name}": (layout.grid_header(name), layout.grid_trials(name)) for name in layout.planned_grids()}
    submissions = [*layout.submission_ids(), *layout.submissions_without_manifest()]
    files |= {f"submissions/{of}": (layout.manifest(of), layout.manifest_index(of)) for of in submissions}
    return {source: " ".join(map(file_signature, paths)) for source, paths in files.items()}


def read_plan(layout: Layout, source: str, known: dict[bytes, dict[str, Any]] | None = None) -> PlanFile:
    """The plan `source`; what cannot be read is among its problems and the rest is there.

    With `known`, the spec of a line is its JSON text, and lines are taken from there and added to it, by hash. A
    submission repeats the lines of its grid, and decoded specs of very many trials slow down the interpreter.
    """
    folder, name = source.split("/", 1)
    plan = PlanFile(source)
    if folder == "grids":
        plan.header, path = _read_header(layout, name, plan), layout.grid_trials(name)
        _read_lines(layout, path, plan, known)
        if plan.header is not None and plan.header["trials"] != len(plan.lines):
            promised = plan.header["trials"]
            plan.report(layout, path, f"its header promises {promised} trials; {len(plan.lines)} can be read")
    else:
        offsets = _read_lines(layout, layout.manifest(name), plan, known)
        if layout.manifest(name).is_file():
            _check_index(layout, name, offsets, plan)
    return plan


def _read_header(layout: Layout, name: str, plan: PlanFile) -> dict[str, Any] | None:
    from ablate.store.files.records import Header

    path = layout.grid_header(name)
    try:
        header = read_json(path)
        check_schema(header)
        Header.check(header)
    except (NotFoundError, StoreError, EnvironmentProblem) as error:
        plan.report(layout, path, error)
        return None
    if header["grid"] != name:
        plan.report(layout, path, f"it is the header of the grid {header['grid']!r}, not of {name!r}")
        return None
    return header


def require_version(layout: Layout, name: str) -> None:
    """Raise StoreError for a grid whose header another version wrote: it is neither read nor replaced."""
    path = layout.grid_header(name)
    try:
        header = read_json(path)
    except (NotFoundError, StoreError, EnvironmentProblem):  # a torn file is reported, and a run writes it again
        return
    if type(header.get("schema")) is int:
        try:
            check_schema(header)
        except StoreError as error:
            raise StoreError(f"{path} cannot be used: {error}") from error


def control_cells(header: Mapping[str, Any]) -> Collection[str]:
    """The cells of a grid that are controls."""
    cells: Collection[str] = (header.get("controls") or {}).get("cells", ())
    return cells


def added_cells(header: Mapping[str, Any]) -> Collection[str]:
    """The cells of a grid that are no variants: controls, and cells that are trained longer."""
    return {*control_cells(header), *(header.get("longer") or {}).get("added", ())}


def role_of(header: Mapping[str, Any], cell: str) -> str:
    """Name the role of a cell that has no verdict."""
    if cell in control_cells(header):
        return "control"
    return "cell that is trained longer" if cell in added_cells(header) else "baseline"


def baseline_of_cell(header: Mapping[str, Any], cell: str) -> str | None:
    """The cell that `cell` is compared with; None for a baseline or a cell that is no variant, and without one."""
    if cell in added_cells(header):
        return None
    if header.get("baselines"):
        baseline: str | None = header["baselines"].get(cell)
        return baseline
    return None if header.get("baseline") == cell else header.get("baseline")


def _read_lines(layout: Layout, path: Path, plan: PlanFile, known: dict[bytes, dict[str, Any]] | None) -> list[int]:
    """Add the sound lines of `path` to `plan`; the byte offsets of all of them."""
    data = _read_bytes(layout, path, plan) or b""
    if data and not data.endswith(b"\n"):
        plan.report(layout, path, "its last line is torn")
    offsets, start, seen = [], 0, set[str]()
    for number, text in enumerate(data.splitlines(keepends=True), start=1):
        offsets.append(start)
        start += len(text)
        try:
            line = _read_line(text, f"line {number}", known)
        except StoreError as error:
            plan.report(layout, path, f"line {number}: {error}")
            continue
        if plan.source.startswith("grids/") and line["grid"] != plan.source.removeprefix("grids/"):
            plan.report(layout, path, f"line {number}: it belongs to the grid {line['grid']!r}")
        elif line["trial"] in seen:
            plan.report(layout, path, f"line {number}: the trial {line['trial']} stands there twice")
        else:
            seen.add(line["trial"])
            plan.lines.append(line)
    return offsets


def _read_bytes(layout: Layout, path: Path, plan: PlanFile) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError as error:
        plan.report(layout, path, f"it cannot be read ({error.strerror})")
        return None


def _read_line(text: bytes, where: str, known: dict[bytes, dict[str, Any]] | None) -> dict[str, Any]:
    digest = blake2b(text, digest_size=16).digest()
    if known is not None and digest in known:
        return known[digest]
    from ablate.store.files.records import PlanLine

    line = parse_object(text, where)
    PlanLine.check(line)
    if known is not None:
        line = known[digest] = {**line, "spec": json_text(line["spec"])}
    return line


def _check_index(layout: Layout, submission: str, offsets: list[int], plan: PlanFile) -> None:
    path = layout.manifest_index(submission)
    data = _read_bytes(layout, path, plan)
    if data is None:
        return
    if len(data) > 8 * len(offsets):
        told = f"it has {len(offsets)} lines, and its index {len(data) // 8}"
        plan.report(layout, layout.manifest(submission), told)
    elif data != struct.pack(f"<{len(offsets)}Q", *offsets):
        plan.report(layout, path, "it does not hold the offsets of its manifest's lines")


def column_type(values: Iterable[Any]) -> str:
    """The SQL type that holds all `values` of an axis exactly: BIGINT, DOUBLE, BOOLEAN, or, for others, VARCHAR."""
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in present):
        return "BIGINT"
    numbers = kinds in ({float}, {int, float})
    exact = numbers and all(abs(value) <= sys.float_info.max and float(value) == value for value in present)
    return "DOUBLE" if exact else "VARCHAR"
