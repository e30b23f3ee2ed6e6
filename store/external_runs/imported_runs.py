"""Runs of other trackers, read from their files and logged into a grid, each once."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from ablate.grid.errors import AblateError, NotFoundError, SpecError, StoreError
from ablate.grid.suggestions import suggest_name
from ablate.store.export.csv_file import read_csv
from ablate.store.export.tensorboard import read_tensorboard
from ablate.store.export.tracker_runs import FoundRun, Scalar
from ablate.store.export.wandb_offline import read_wandb
from ablate.store.external_runs.imported_config import Source, What, find_axes, line_of
from ablate.store.external_runs.logged_plans import logged_lines, publish, require_logged
from ablate.store.external_runs.logged_run import start_run
from ablate.store.files.atomic import environment_problem
from ablate.store.files.checked_values import CheckedValues
from ablate.store.files.layout import Layout
from ablate.store.files.trial_status import trial_state

Point = dict[str, float]
_AT = re.compile(r"(.+)/([^/=,]+=[^/=,]+(?:,[^/=,]+=[^/=,]+)*)")
"""The name of a value at a point, as exports write it: `mse/sigma_f=5`."""


class Imported(NamedTuple):
    """A run, and what became of it."""

    name: str
    label: str
    seed: int
    state: str
    """ "done", "failed", or "known", if it was imported before."""
    metrics: int
    evaluations: int


def _find_runs(path: Path) -> dict[str, Source]:
    """Return how to read the runs at `path`, by path. Raises NotFoundError if there are none."""
    if not path.exists():
        beside = [str(each) for each in path.parent.glob("*")]
        raise NotFoundError(f"there is no file {path}{suggest_name(str(path), beside)}")
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    sources, events = dict[str, Source](), defaultdict[Path, list[Path]](list)
    for file in files:
        name = str((file.relative_to(path) if path.is_dir() else Path(file.name)).with_suffix(""))
        if "tfevents" in file.name:
            events[file.parent].append(file)
        elif file.suffix == ".wandb":
            sources[str(file)] = partial(_read_wandb, name, file)
        elif file.suffix.lower() == ".csv":
            sources[str(file)] = partial(_read_csv, name, file)
    for folder, within in events.items():
        name = str(folder.relative_to(path)) if path.is_dir() and folder != path else folder.resolve().name
        sources[str(folder)] = partial(_read_tensorboard, name, within)
    if not sources:
        raise (NotFoundError if path.is_dir() else SpecError)(
            f"{path} holds no run; runs are event files of TensorBoard (*tfevents*), of W&B (*.wandb), or *.csv"
        )
    return dict(sorted(sources.items()))


def _read_tensorboard(name: str, files: Sequence[Path], _: What) -> list[FoundRun]:
    return [read_tensorboard(name, files)]


def _read_wandb(name: str, file: Path, _: What) -> list[FoundRun]:
    return [read_wandb(name, file)]


def _read_csv(name: str, file: Path, what: What) -> list[FoundRun]:
    return read_csv(name, file, what.step, what.columns)


def import_runs(root: Path, grid: str, paths: Sequence[Path], what: What) -> Iterator[Imported | AblateError]:
    """Log the runs at `paths` into a grid; yield each, or why one is not, or not whole, among the others."""
    layout, sources, taken = Layout(root), dict[str, Source](), dict[tuple[str, int], str]()
    require_logged(layout, grid)
    for path in paths:
        try:
            sources |= _find_runs(path)
        except AblateError as error:
            yield error
    axes = find_axes(sources, what)
    for place, source in sources.items():
        try:
            runs = source(what)
        except AblateError as error:
            yield error
            continue
        except OSError as error:
            yield environment_problem("read", Path(place), error)
            continue
        for run in runs:
            try:
                yield _import_run(layout, grid, run, what, axes, taken)
                if run.damage is not None:
                    yield StoreError(f"{run.damage}; the run counts as failed, with the values before that")
            except AblateError as error:
                yield type(error)(f"{place}: {error}")


def _import_run(
    layout: Layout, grid: str, run: FoundRun, what: What, axes: Mapping[str, str], taken: dict[tuple[str, int], str]
) -> Imported:
    line = line_of(grid, run, what, axes)
    key = line["label"], line["seed"]
    if key in taken:
        raise SpecError(f"a seed of a label is one run; {key[0]!r} with seed {key[1]} is {taken[key]}, too")
    taken[key] = run.name
    if not run.scalars:
        raise SpecError("it has no scalar") if run.damage is None else StoreError(f"{run.damage}, before any scalar")
    rows = _rows(run.scalars, what.evaluations)
    source = f"{run.files[0].name} {blake2b(repr(run[4:]).encode(), digest_size=6).hexdigest()}"
    counts = sum(len(row.metrics) for row in rows), sum(len(row.evaluations) for row in rows)
    ended = trial_state(layout, line["trial"]).ended
    if ended is not None and ended.start["versions"].get("script") == source:
        if line["trial"] not in {each["trial"] for each in logged_lines(layout, grid)}:
            publish(layout, line)  # it was imported into another grid
        return Imported(run.name, *key, "known", *counts)
    if ended is not None and (ended.end or {}).get("status") == "ok":
        before = ended.start["versions"].get("script")
        raise SpecError(
            f"a run is imported once; {key[0]!r} with seed {key[1]} was logged from {before}, with other values: "
            "remove that by `ablate rm`, or give this one another label"
        )
    _write(layout, line, rows, source, run)
    return Imported(run.name, *key, "failed" if run.failure or run.damage else "done", *counts)


def _write(layout: Layout, line: Mapping[str, Any], rows: "Sequence[_Row]", source: str, run: FoundRun) -> None:
    began, row = rows[0].at, rows[0]
    with start_run(layout, line, None, None, source=source, clock=lambda: max(0.0, row.at - began)) as logged:
        for row in rows:
            if row.metrics:
                logged.log(row.step, row.metrics)
            for name, point, value in row.evaluations:
                logged.evaluate(row.step, name, value, point=point)
        if told := run.damage or run.failure:
            logged.fail(told, "error")


class _Row(NamedTuple):
    """The values of one step."""

    step: int
    at: float
    metrics: dict[str, float]
    evaluations: list[tuple[str, Point, float]]


def _rows(scalars: Sequence[Scalar], evaluations: Sequence[str]) -> list[_Row]:
    """Return the values by step. Raises SpecError for a name or a step that no table can hold."""
    rows, checked = dict[int, _Row](), CheckedValues()
    for step, name, value, at in scalars:
        row = rows.setdefault(step, _Row(step, at, {}, []))
        named, point = _point_of(name)
        if point or name in evaluations:
            row.evaluations.append((named, point, value))
        else:
            row.metrics[name] = value
    for row in rows.values():
        checked.metrics(row.step, row.metrics)
        for named, point, value in row.evaluations:
            checked.evaluation(row.step, named, value, point, 1, None)
    return list(rows.values())


def _point_of(name: str) -> tuple[str, Point]:
    if (parts := _AT.fullmatch(name)) is not None:
        try:
            return parts[1], {key: float(at) for key, _, at in (each.partition("=") for each in parts[2].split(","))}
        except ValueError:
            pass  # no point, but a name with an equals sign
    return name, {}
