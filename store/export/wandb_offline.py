"""Runs as offline runs of Weights & Biases, which `wandb sync` uploads. Written and read."""

import json
import os
import struct
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from ablate.grid.errors import SpecError, StoreError
from ablate.grid.optional_packages import require_package
from ablate.store.export.tracker_runs import FoundRun, TrackerRun, in_order, read_runs, read_scalars, require_empty
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
    for step, scalars in groupby(read_scalars(store, run.trial), key=lambda each: each.step):
        written.log({each.name: each.value for each in scalars}, step=step)
    written.finish(exit_code=int(run.state == "failed"))


_BLOCK, _HEAD = 32_768, 7
"""Bytes of a block of a file, and of the head of a file or of a record; none crosses the end of a block."""
_BEGIN = b":W&B\xe1\xbe\0"
_LAST_PARTS = (1, 4)
"""Kinds of a record that is whole, or the last part of one."""


def read_wandb(name: str, file: Path) -> FoundRun:
    """Read the file of an offline run; `name` is for a run without one.

    Raises SpecError: it is another file; EnvironmentProblem: the package wandb is not installed.
    """
    require_package("wandb", by="an offline run of W&B", extra="wandb")
    run = FoundRun(name, (file,), None, {}, [], "its file ends without the record of an end, as of a killed process")
    scalars = dict[tuple[str, int], tuple[float, float]]()
    try:
        for record in _records(file):
            kind = record.WhichOneof("record_type")
            if kind in ("run", "config"):
                updates = record.run.config.update if kind == "run" else record.config.update
                for each in updates:
                    _insert(run.config, [each.key] if each.key else [*each.nested_key], json.loads(each.value_json))
                if kind == "run":
                    run = run._replace(name=record.run.display_name or run.name, label=record.run.run_group or None)
            elif kind == "history":
                items = {
                    each.key or ".".join(each.nested_key): _number(each.value_json) for each in record.history.item
                }
                step, at = int(items.get("_step") or 0), items.get("_timestamp") or 0.0
                for each, value in items.items():
                    if value is not None and not each.startswith("_"):
                        scalars[each, step] = value, at
            elif kind == "exit":
                code = record.exit.exit_code
                run = run._replace(failure=f"it ended with the exit code {code}" if code else None)
    except StoreError as error:
        run = run._replace(damage=str(error))
    run.config.pop("_wandb", None)
    return run._replace(scalars=in_order(scalars))


def _insert(config: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        config = config.setdefault(name, {})
    config[path[-1]] = value


def _number(text: str) -> float | None:
    """Return a number as W&B writes it; None for other values."""
    value = json.loads(text)
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
            raise StoreError(f"{file} is damaged or cut off in record {count + 1}")
        if kind in _LAST_PARTS:
            yield wandb_internal_pb2.Record.FromString(parts)  # type: ignore[attr-defined]
            parts, count = b"", count + 1
    if parts:
        raise StoreError(f"{file} is cut off in record {count + 1}")
