"""Runs of a grid as TensorBoard event files: a directory per trial with its metrics, evaluations and axes."""

import re
from pathlib import Path
from typing import Any

from ablate.store.export.tracker_runs import TrackerRun, read_runs, read_scalars, require_empty
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


def _settings(run: TrackerRun) -> Any:
    """Encode the axes and the seed for TensorBoard's page HParams."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
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
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
    return Summary.Value(tag=metadata.SESSION_START_INFO_TAG, metadata=SummaryMetadata(plugin_data=plugin))
