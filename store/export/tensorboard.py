"""Runs as TensorBoard event files: a directory per run with its metrics, evaluations and axes."""

import json
import re
from pathlib import Path
from typing import Any

from ablate.store.export.tracker_runs import TrackerRun, flatten, read_runs, read_scalars, require_empty
from ablate.store.files.atomic import make_directory
from ablate.store.store import Store

_MOST_BYTES = 200
"""Bytes of the name of a directory; file systems take 255."""
MARK = "evaluation"
"""The description of an evaluation; TensorBoard shows it beside the name."""
_EXACT = 2**53
"""Up to here, HParams holds whole numbers without a loss."""


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
        is_long = len(name.encode()) > _MOST_BYTES
        name = f"{name[: _MOST_BYTES // 4]} {run.trial[:8]}" if is_long or name in taken else name
        taken.add(name)
        _write_run(store, run, make_directory(folder / name))
    return len(runs)


def _write_run(store: Store, run: TrackerRun, place: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.record_writer import RecordWriter

    with (place / f"events.out.tfevents.{round(run.started):010d}.ablate").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=run.started, file_version="brain.Event:2").SerializeToString())
        writer.write(Event(wall_time=run.started, summary=Summary(value=[_settings(run)])).SerializeToString())
        for step, name, value, at, evaluated in read_scalars(store, run.trial):
            said = SummaryMetadata(summary_description=MARK) if evaluated else None
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value, metadata=said)])
            writer.write(Event(wall_time=at, step=step, summary=summary).SerializeToString())
        writer.write(Event(wall_time=run.started, summary=Summary(value=[_end(run)])).SerializeToString())


def _settings(run: TrackerRun) -> Any:
    """Encode the axes and the seed for TensorBoard's page HParams."""
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    started = SessionStartInfo(start_time_secs=run.started, group_name=run.label)
    for name, value in flatten(run.settings):
        entry = started.hparams[name]  # an entry that is None has no value
        if isinstance(value, bool):
            entry.bool_value = value
        elif isinstance(value, float) or (isinstance(value, int) and abs(value) <= _EXACT):
            entry.number_value = value
        elif value is not None:
            entry.string_value = value if isinstance(value, str) else json.dumps(value)
    content = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_start_info=started)
    return _hparams(metadata.SESSION_START_INFO_TAG, content)


def _end(run: TrackerRun) -> Any:
    """Encode for TensorBoard's page HParams how a run ended, or that it did not."""
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    words = {"done": "STATUS_SUCCESS", "failed": "STATUS_FAILURE"}
    status = Status.Value(words.get(run.state, "STATUS_RUNNING"))
    content = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_end_info=SessionEndInfo(status=status))
    return _hparams(metadata.SESSION_END_INFO_TAG, content)


def _hparams(tag: str, content: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import metadata

    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin))
