"""Runs as TensorBoard event files: a directory per run with its metrics, evaluations and axes. Written and read."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablate.grid.errors import SpecError, StoreError
from ablate.grid.optional_packages import require_package
from ablate.store.export.tracker_runs import FoundRun, TrackerRun, in_order, read_runs, read_scalars, require_empty
from ablate.store.files.atomic import make_directory
from ablate.store.store import Store


def write_tensorboard(store: Store, grid: str, folder: Path) -> int:
    """Write a run for every trial of `grid` that has begun; return the number of runs.

    The page HParams of TensorBoard has the axes. The package tensorboard must be installed. Raises SpecError: `folder`
    holds something; EnvironmentProblem: it cannot be made.
    """
    require_empty(folder)
    runs = read_runs(store, grid)
    taken: set[str] = set()
    for run in runs:
        name = re.sub(r"[^\w .,=+()·-]+", "_", run.name)
        name = f"{name} {run.trial[:8]}" if name in taken else name
        taken.add(name)
        _write_run(store, run, make_directory(folder / name))
    return len(runs)


def _write_run(store: Store, run: TrackerRun, place: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with (place / f"events.out.tfevents.{round(run.started):010d}.ablate").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=run.started, file_version="brain.Event:2").SerializeToString())
        writer.write(Event(wall_time=run.started, summary=Summary(value=[_settings(run)])).SerializeToString())
        for step, name, value, at in read_scalars(store, run.trial):
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.write(Event(wall_time=at, step=step, summary=summary).SerializeToString())
        if run.state in ("done", "failed"):
            writer.write(Event(wall_time=run.started, summary=Summary(value=[_end(run)])).SerializeToString())


def _settings(run: TrackerRun) -> Any:
    """Encode the axes and the seed for TensorBoard's page HParams."""
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    started = SessionStartInfo(start_time_secs=run.started, group_name=run.label)
    for name, value in run.settings.items():
        if isinstance(value, bool):
            started.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            started.hparams[name].number_value = value
        else:
            started.hparams[name].string_value = "none" if value is None else str(value)
    content = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_start_info=started)
    return _hparams(metadata.SESSION_START_INFO_TAG, content)


def _end(run: TrackerRun) -> Any:
    """Encode how a run ended for TensorBoard's page HParams."""
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    status = Status.Value("STATUS_FAILURE" if run.state == "failed" else "STATUS_SUCCESS")
    content = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_end_info=SessionEndInfo(status=status))
    return _hparams(metadata.SESSION_END_INFO_TAG, content)


def _hparams(tag: str, content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import metadata

    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))


def read_tensorboard(name: str, files: Sequence[Path]) -> FoundRun:
    """Read the run that event files of one directory hold, in the order of their names.

    Where a later file has a scalar at the same step or an earlier one, as after a restart, the later file counts.
    Raises SpecError: a file is no event file; EnvironmentProblem: the package tensorboard is not installed.
    """
    require_package("tensorboard", by="an event file", extra="tensorboard")
    from tensorboard.plugins.hparams import metadata
    from tensorboard.util import tensor_util

    run, scalars = FoundRun(name, tuple(files), None, {}, []), dict[tuple[str, int], tuple[float, float]]()
    for file in files:
        begun = dict[str, int]()
        try:
            for at, step, value in _values(file):
                plugin = value.metadata.plugin_data
                if plugin.plugin_name == "scalars":
                    begun.setdefault(value.tag, step)
                    if begun[value.tag] == step:
                        scalars = {key: old for key, old in scalars.items() if key[0] != value.tag or key[1] < step}
                    scalars[value.tag, step] = float(tensor_util.make_ndarray(value.tensor).item()), at
                elif value.tag == metadata.SESSION_START_INFO_TAG:
                    run = _read_settings(run, metadata.parse_session_start_info_plugin_data(plugin.content))
                elif value.tag == metadata.SESSION_END_INFO_TAG:
                    ended = metadata.parse_session_end_info_plugin_data(plugin.content)
                    run = run._replace(failure="its event file says that it failed" if ended.status == 2 else None)
        except StoreError as error:
            run = run._replace(damage=str(error))
    return run._replace(scalars=in_order(scalars))


def _read_settings(run: FoundRun, started: Any) -> FoundRun:
    """Add the axes that TensorBoard's page HParams shows. It has no whole numbers."""
    kinds = {name: value.WhichOneof("kind") for name, value in started.hparams.items()}
    values = {name: getattr(started.hparams[name], kind) for name, kind in kinds.items() if kind}
    whole = {name: int(value) for name, value in values.items() if isinstance(value, float) and value.is_integer()}
    return run._replace(label=started.group_name or None, config={**run.config, **values, **whole})


def _values(file: Path) -> Iterator[tuple[float, int, Any]]:
    """Yield the time, the step and the value of each summary of a file. Raises StoreError where it is damaged."""
    from tensorboard import data_compat, dataclass_compat
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub import errors
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import PyRecordReader_New

    reader, seen, count = PyRecordReader_New(str(file)), dict[str, Any](), 0
    while True:
        try:
            reader.GetNext()
            event = Event.FromString(reader.record())
        except errors.OutOfRangeError:
            return
        except Exception as error:  # TensorBoard's reader raises many kinds
            if not count:
                raise SpecError(f"{file} is no event file of TensorBoard, whose records have checksums") from error
            raise StoreError(f"{file} is damaged or cut off in record {count + 1}") from error
        count += 1
        for each in dataclass_compat.migrate_event(data_compat.migrate_event(event), seen):
            for value in each.summary.value:
                if value.tag in seen:
                    value.metadata.CopyFrom(seen[value.tag])
                yield each.wall_time, each.step, value
