"""Runs as offline runs of Weights & Biases, which `wandb sync` uploads. Written and read."""

import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from ablate.grid.errors import SpecError, StoreError
from ablate.grid.optional_packages import require_package
from ablate.store.export.tracker_runs import (
    FoundRun,
    LeftOut,
    Reading,
    TrackerRun,
    Values,
    flatten,
    in_order,
    read_runs,
    read_scalars,
    require_empty,
)
from ablate.store.files.atomic import make_directory
from ablate.store.store import Store


def write_wandb(store: Store, grid: str, folder: Path) -> int:
    """Write an offline run for every trial of `grid` that has begun; return the number of runs.

    The project is the grid, the group the cell, the tag the state; the config has the axes and the seed. The package
    wandb must be installed. Raises SpecError: `folder` holds something; EnvironmentProblem: it cannot be made.
    """
    require_empty(folder)
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # wandb would report its own faults over the network
    import wandb

    runs = read_runs(store, grid)
    make_directory(folder)
    for run in runs:
        _write_run(store, grid, run, folder)
    wandb.teardown()  # its own process writes the files, also after a run is finished
    return len(runs)


def _write_run(store: Store, grid: str, run: TrackerRun, folder: Path) -> None:
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    written = wandb.init(
        mode="offline",
        dir=folder,
        project=grid,
        group=run.label,
        name=run.name,
        id=run.trial,
        config=dict(run.settings),
        tags=[run.state],
        settings=settings,
    )
    scalars = [*read_scalars(store, run.trial)]
    metrics = {each.name for each in scalars if not each.evaluated}
    for name in dict.fromkeys(each.name for each in scalars if each.name not in metrics):
        written.define_metric(name, summary="last")  # it says that this is an evaluation; W&B has the last one anyhow
    for step, values in groupby(scalars, key=lambda each: each.step):
        written.log({each.name: each.value for each in values}, step=step)
    written.finish(exit_code=int(run.state != "done"))


_BLOCK, _HEAD = 32_768, 7
"""Bytes of a block of a file, and of the head of a file or of a record; none crosses the end of a block."""
_BEGIN = b":W&B\xe1\xbe\0"
_LAST_PARTS = (1, 4)
"""Kinds of a record that is whole, or the last part of one."""


def read_wandb(name: str, file: Path) -> list[Reading]:
    """Read the file of an offline run, and what of it is left out; `name` is for a run without one.

    Raises SpecError: it is another file; EnvironmentProblem: the package wandb is not installed.
    """
    require_package("wandb", by="an offline run of W&B", extra="wandb")
    reader, damage = _Reader(name, file), None
    try:
        for record in _records(file):
            reader.take(record)
    except StoreError as error:
        damage = str(error)
    except ValueError as error:
        damage = f"a record cannot be read: {error}"
    return reader.read(damage)


class _Reader:
    """The contents of the records of a run."""

    def __init__(self, name: str, file: Path) -> None:
        self._run = FoundRun(name, file, None, {}, [], _NO_END)
        self._values: dict[tuple[int, str], tuple[float, float]] = {}
        self._summary: dict[str, Any] = {}
        self._evaluations, self._others, self._last = set[str](), Counter[str](), 0

    def take(self, record: Any) -> None:
        kind = record.WhichOneof("record_type")
        if kind in ("run", "config"):
            for each in record.run.config.update if kind == "run" else record.config.update:
                _insert(self._run.config, _path(each), json.loads(each.value_json))
        if kind == "run":
            label = record.run.run_group or None
            self._run = self._run._replace(name=record.run.display_name or self._run.name, label=label)
        elif kind == "metric" and record.metric.summary.last:
            self._evaluations.add(record.metric.name)
        elif kind == "history":
            self._take_history(record.history)
        elif kind == "summary":
            for each in record.summary.update:
                _insert(self._summary, _path(each), json.loads(each.value_json))
        elif kind == "exit":
            code = record.exit.exit_code
            self._run = self._run._replace(failure=f"it ended with the exit code {code}" if code else None)

    def _take_history(self, history: Any) -> None:
        items = {".".join(_path(each)): json.loads(each.value_json) for each in history.item}
        self._last = int(items.get("_step", history.step.num))
        for name, value in self._list_numbers(items):
            self._values[self._last, name] = value, items.get("_timestamp") or 0.0

    def _list_numbers(self, items: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        """Yield the values that are numbers, and count the others; a table or a picture is one, in several entries."""
        media = {name.removesuffix("._type") for name in items if name.endswith("._type")}
        for name, value in items.items():
            whole = next((each for each in _names_above(name) if each in media), None)
            if whole is not None:
                self._others[whole] += name == f"{whole}._type"
            elif (number := _number(value)) is not None and name not in _OWN:
                yield name, number
            elif value is not None:
                self._others[name] += name not in _OWN

    def read(self, damage: str | None) -> list[Reading]:
        """Return the run. Values that only its summary has are evaluations at the last step."""
        logged, ended = {name for _, name in self._values}, max((at for _, at in self._values.values()), default=0.0)
        known = {*logged, *self._others, *_OWN}
        summary = {} if damage or self._run.failure == _NO_END else self._summary
        result = {name: value for name, value in flatten(summary) if not known & {*_names_above(name)}}
        values: Values = {(step, name, name in self._evaluations): each for (step, name), each in self._values.items()}
        values |= {(self._last, name, True): (value, ended) for name, value in self._list_numbers(result)}
        self._run.config.pop("_wandb", None)
        file = self._run.place
        read: list[Reading] = [self._run._replace(scalars=in_order(values), damage=damage)]
        if self._run.failure == _NO_END and damage is None:
            read.append(LeftOut(file, f"the run counts as failed, as {_NO_END}"))
        if others := {repr(name): count for name, count in self._others.items() if count}:
            read.append(LeftOut(file, "values that are no numbers are left out", others))
        return read


_NO_END = "its file ends without the record of an end, as of a killed process"
_OWN = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
"""Names of W&B itself."""


def _names_above(name: str) -> Iterator[str]:
    """Yield the names of the entries in which one lies, and its own: a, a.b, a.b.c."""
    return accumulate(name.split("."), lambda above, part: f"{above}.{part}")


def _path(item: Any) -> list[str]:
    return [item.key] if item.key else [*item.nested_key]


def _insert(config: dict[str, Any], path: list[str], value: Any) -> None:
    """Set an entry inside of others; it takes the place of a value that is none."""
    for name in path[:-1]:
        if not isinstance(config.get(name), dict):
            config[name] = {}
        config = config[name]
    config[path[-1]] = value


def _number(value: Any) -> float | None:
    """Return a number as W&B writes it; None for other values."""
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _records(file: Path) -> Iterator[Any]:
    """Yield the records of a file, in the format of LevelDB's log. Raises StoreError where it is damaged."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts, count = file.read_bytes(), _HEAD, b"", 0
    if data[:_HEAD] != _BEGIN:
        raise SpecError(f"{file} is no file of an offline run of Weights & Biases, which begins with {_BEGIN!r}")
    while at < len(data):
        if (room := _BLOCK - at % _BLOCK) < _HEAD:
            at += room
            continue
        checksum, length, kind = struct.unpack("<IHB", data[at : at + _HEAD].ljust(_HEAD, b"\0"))
        body, at = data[at + _HEAD : at + _HEAD + length], at + _HEAD + length
        parts += body
        if at > len(data) or zlib.crc32(bytes([kind]) + body) != checksum:
            raise StoreError(f"record {count + 1} is damaged or cut off")
        if kind in _LAST_PARTS:
            yield wandb_internal_pb2.Record.FromString(parts)  # type: ignore[attr-defined]
            parts, count = b"", count + 1
    if parts:
        raise StoreError(f"record {count + 1} is cut off")
