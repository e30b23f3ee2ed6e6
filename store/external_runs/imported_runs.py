"""Runs of other trackers, read from their files and logged into a grid, each once."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, final

from ablate.grid.errors import AblateError, NotFoundError, SpecError, StoreError
from ablate.grid.suggestions import suggest_name
from ablate.grid.values import require_whole
from ablate.store.export.csv_reader import is_export, read_csv, read_exports
from ablate.store.export.tensorboard_reader import read_tensorboard
from ablate.store.export.tracker_runs import FoundRun, LeftOut, Reading, Scalar, name_places, tell_left_out
from ablate.store.export.wandb_offline import read_wandb
from ablate.store.external_runs.imported_config import What, find_axes, line_of
from ablate.store.external_runs.logged_plans import KnownLines, derive, logged_lines, publish, require_logged
from ablate.store.external_runs.logged_run import Source, begin_run
from ablate.store.files.atomic import environment_problem
from ablate.store.files.layout import Layout
from ablate.store.files.rows import check_row
from ablate.store.files.trial_state import trial_state

Point = dict[str, float]
_AT = re.compile(r"(.+)/([^/=,]+=[^/=,]+(?:,[^/=,]+=[^/=,]+)*)")
"""The name of a value at a point, as exports write it: `mse/sigma_f=5`."""


_MOST_KEPT = 1_000_000
"""Scalars that are kept in memory between the two times that files are read."""


class Imported(NamedTuple):
    """A run, and what became of it."""

    name: str
    label: str
    seed: int
    state: str
    """ "done", "failed", or "known", if it was imported before."""
    metrics: int
    evaluations: int
    names: frozenset[str]
    """The names of its values."""


class _Source(NamedTuple):
    """Runs that are read together."""

    place: Path
    read: Callable[[What], list[Reading]]

    def list_readings(self, what: What) -> list[Reading]:
        """Read the runs; if that fails, the reason is what was read."""
        try:
            return self.read(what)
        except AblateError as error:
            return [error]
        except OSError as error:
            return [environment_problem("read", self.place, error)]


def _find_sources(paths: Sequence[Path]) -> Iterator[_Source | AblateError]:
    """Yield how to read the runs at `paths`, each once, or that there are none."""
    files, exports = dict[Path, tuple[Path, str]](), list[Path]()
    for path in paths:
        try:
            files |= {file: (path, name) for file, name in _find_files(path)}
        except AblateError as error:
            yield error
    folders = defaultdict[Path, dict[Path, tuple[str, list[Path]]]](dict)
    events = {file.parent for file in files if "tfevents" in file.name}
    for file, (path, name) in sorted(files.items()):
        folder = file.parent
        if folder in events and "tfevents" in file.name:
            top = next(each for each in (*reversed(folder.parents), folder) if each in events)
            within = folder.relative_to(path) if path.is_dir() and folder != path else folder.resolve().name
            folders[top].setdefault(folder, (str(within), []))[1].append(file)
        elif file.suffix == ".wandb":
            yield _Source(file, partial(_read_wandb, name, file))
        elif is_export(file):
            exports.append(file)
        else:
            yield _Source(file, partial(_read_csv, name, file))
    yield from (_Source(top, partial(_read_tensorboard, within)) for top, within in folders.items())
    if exports:
        yield _Source(exports[0], lambda _: read_exports(exports))


def _read_tensorboard(folders: Mapping[Path, tuple[str, Sequence[Path]]], _: What) -> list[Reading]:
    return read_tensorboard(folders)


def _read_wandb(name: str, file: Path, _: What) -> list[Reading]:
    return read_wandb(name, file)


def _read_csv(name: str, file: Path, what: What) -> list[Reading]:
    return read_csv(name, file, what.step, what.columns, what.needed)


def _find_files(path: Path) -> list[tuple[Path, str]]:
    """Return the files of runs at `path`, and how the run of each is called. Raises NotFoundError: there are none."""
    if not path.exists():
        beside = [str(each) for each in path.parent.glob("*")]
        raise NotFoundError(f"there is no file {path}{suggest_name(str(path), beside)}")
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    runs = [file for file in files if "tfevents" in file.name or file.suffix.lower() in (".wandb", ".csv")]
    if not runs:
        raise (NotFoundError if path.is_dir() else SpecError)(
            f"{path} holds no run; runs are event files of TensorBoard (*tfevents*), of W&B (*.wandb), or *.csv"
        )
    return [(file, str(Path(file.relative_to(path) if path.is_dir() else file.name).with_suffix(""))) for file in runs]


def import_runs(root: Path, grid: str, paths: Sequence[Path], what: What) -> Iterator[Imported | AblateError | str]:
    """Log the runs at `paths` into a grid; yield each, why one is not or not whole, and what is left out of one."""
    layout, sources, kept = Layout(root), list[_Source](), dict[Path, list[Reading]]()
    require_logged(layout, grid)
    for source in _find_sources(paths):
        if isinstance(source, AblateError):
            yield source
        else:
            sources.append(source)
    axes = find_axes(_read_first(sources, what, kept), what) if what.axes is None else what.axes
    target = _Target(layout, grid, what, axes)
    try:
        for source in sources:
            for reading in kept.pop(source.place, None) or source.list_readings(what):
                yield from target.take(reading)
        yield from target.tell_faults()
    finally:
        derive(layout, grid)


def _read_first(sources: Sequence[_Source], what: What, kept: dict[Path, list[Reading]]) -> Iterator[FoundRun]:
    """Yield all runs, and keep the first ones, so that few files are read twice and memory has an end."""
    room = _MOST_KEPT
    for source in sources:
        readings = source.list_readings(what)
        runs = [each for each in readings if isinstance(each, FoundRun)]
        room -= sum(len(run.scalars) for run in runs)
        if room >= 0:
            kept[source.place] = readings
        yield from (run._replace(scalars=[]) for run in runs)


@final
class _Target:
    """The grid that runs are logged into."""

    def __init__(self, layout: Layout, grid: str, what: What, axes: Mapping[str, str]) -> None:
        self._layout, self._grid, self._what, self._axes = layout, grid, what, axes
        self._taken: dict[tuple[str, int], str] = {}
        self._known: KnownLines = {}
        self._left_out = list[LeftOut]()
        self._faults = defaultdict[tuple[type[AblateError], str], list[Path]](list)

    def take(self, reading: Reading) -> Iterator[Imported | AblateError]:
        """Log a run and yield what became of it; faults that several runs may have are told at the end."""
        if isinstance(reading, LeftOut):
            self._left_out.append(reading)
        elif isinstance(reading, AblateError):
            yield reading
        else:
            try:
                yield self._log(reading)
            except AblateError as error:
                self._blame(reading, error)

    def tell_faults(self) -> Iterator[AblateError | str]:
        """Yield each fault once, with the first run that has it; then what is left out."""
        for (kind, text), places in self._faults.items():
            yield kind(f"{name_places(places)}: {text}")
        yield from tell_left_out(self._left_out)

    def _blame(self, run: FoundRun, fault: AblateError) -> None:
        self._faults[type(fault), str(fault)].append(run.place)

    def _log(self, run: FoundRun) -> Imported:
        line = line_of(self._grid, run, self._what, self._axes)
        key = line["label"], line["seed"]
        if key in self._taken:
            before = self._taken[key]
            raise SpecError(f"{key[0]!r} with seed {key[1]} is {before}, too; a seed of a label is one run")
        self._taken[key] = run.name
        if not run.scalars:
            raise (
                SpecError("it has no scalar") if run.damage is None else StoreError(f"{run.damage}, before any scalar")
            )
        rows, faults = _sort_rows(run.scalars, self._what.evaluations)
        if not rows:
            raise SpecError(next(iter(faults)))
        state = "failed" if run.failure or run.damage else "done"
        source = f"{run.place.name} {blake2b(repr((run.scalars, run.failure)).encode(), digest_size=6).hexdigest()}"
        if self._is_known(line, source):
            state = "known"
        else:
            submission = publish(self._layout, line, self._known)
            _write(self._layout, line, submission, rows, source, run)
        counts = sum(len(row.metrics) for row in rows), sum(len(row.evaluations) for row in rows)
        names = {name for row in rows for name in (*row.metrics, *(each[0] for each in row.evaluations))}
        for fault in faults:
            self._blame(run, SpecError(f"{fault}; its values are left out"))
        if run.damage is not None:
            self._blame(run, StoreError(f"{run.damage}; what else can be read counts as of a failed run"))
        return Imported(run.name, *key, state, *counts, frozenset(names))

    def _is_known(self, line: Mapping[str, Any], source: str) -> bool:
        """Tell whether a run was imported before, if need be into another grid. Raises SpecError: with other values."""
        ended = trial_state(self._layout, line["trial"]).ended
        if ended is None:
            return False
        before = ended.start["versions"].get("script")
        if before == source:
            if line["trial"] not in {each["trial"] for each in logged_lines(self._layout, self._grid, self._known)}:
                publish(self._layout, line, self._known)
            return True
        if (ended.end or {}).get("status") == "ok":
            raise SpecError(
                f"{line['label']!r} with seed {line['seed']} was logged before, from {before}, with other values; "
                "remove that by `ablate rm`, or give this one another label"
            )
        return False


def _write(
    layout: Layout, line: Mapping[str, Any], submission: str, rows: "Sequence[_Row]", source: str, run: FoundRun
) -> None:
    began, at = rows[0].at if run.began is None else run.began, 0.0
    with begin_run(layout, line, submission, source=Source(source, lambda: max(0.0, at - began))) as logged:
        for row in rows:
            at = row.at
            if row.metrics:
                logged.log(row.step, row.metrics)
            for name, point, value in row.evaluations:
                logged.evaluate(row.step, name, value, point=point)
        at = max(row.at for row in rows)
        if told := run.damage or run.failure:
            logged.fail(told, "error")


class _Row(NamedTuple):
    """The values of one step."""

    step: int
    at: float
    metrics: dict[str, float]
    evaluations: list[tuple[str, Point, float]]


def _sort_rows(scalars: Sequence[Scalar], evaluations: Sequence[str]) -> tuple[list[_Row], dict[str, None]]:
    """Return the values by step, and why some have a name or a step that no table can hold."""
    rows, places, faults = dict[int, _Row](), dict[str, tuple[str, Point] | None](), dict[str, None]()
    for step, name, value, at, evaluated in sorted(scalars, key=lambda each: each.evaluated):
        try:
            if name not in places:
                places[name] = None
                places[name] = _place_of(name)
            require_whole(step, "the step")
        except SpecError as error:
            faults[str(error)] = None
            continue
        place = places[name]
        if place is None:
            continue
        row = rows.setdefault(step, _Row(step, at, {}, []))
        if not (evaluated or place[1] or name in evaluations):
            row.metrics[name] = value
        elif (*place, value) not in row.evaluations:
            row.evaluations.append((*place, value))
    return sorted(rows.values()), faults


def _place_of(name: str) -> tuple[str, Point]:
    """Return name and point of a value. Raises SpecError: no table can hold the name."""
    named, point = name, Point()
    if (parts := _AT.fullmatch(name)) is not None:
        with suppress(ValueError):  # no point, but a name with an equals sign
            pairs = [each.partition("=") for each in parts[2].split(",")]
            named, point = parts[1], {key: float(at) for key, _, at in pairs}
    if not all(map(isfinite, point.values())):
        named, point = name, {}
    check_row("evaluation", ("", 0, 0, named, point, 0.0, 1, None))
    return named, point
