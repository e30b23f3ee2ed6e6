"""Runs of a grid as TensorBoard event files: a directory per trial with its metrics, evaluations and axes."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grid.errors import SpecError
from store.files.atomic import make_directory
from store.store import Store

_RUNS = """
    SELECT g.trial, g.label, g.seed, CAST(g.axes AS VARCHAR) AS axes, t.status,
           coalesce(min(a.started) FILTER (WHERE c.trial IS NOT NULL), 0) AS started
    FROM grid_trial g JOIN trial t USING (trial) JOIN attempt a USING (trial)
    LEFT JOIN counted c ON c.trial = a.trial AND c.attempt = a.attempt
    WHERE g.grid = $grid GROUP BY ALL ORDER BY any_value(g.position)
"""
_SCALARS = """
    SELECT m.step, m.name, MAP {}::MAP(VARCHAR, DOUBLE) AS point, m.value, a.started + m.wall_s AS at
    FROM v_metric m JOIN attempt a USING (trial, attempt) WHERE m.trial = $trial
    UNION ALL
    SELECT e.step, e.name, e.point, e.value, coalesce(a.ended, a.started)
    FROM v_evaluation e JOIN attempt a USING (trial, attempt) WHERE e.trial = $trial
    ORDER BY ALL
"""


def write_tensorboard(store: Store, grid: str, folder: Path) -> int:
    """Write a run for every trial of `grid` that has begun; the number of runs.

    A run is called by cell and seed. A measurement at a point is called `mse/sigma_f=5,sigma_x=1`. The page HParams of
    TensorBoard has the axes. The package tensorboard must be installed. Raises SpecError: `folder` holds something;
    EnvironmentProblem: it cannot be made.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SpecError(f"runs for TensorBoard go to a directory that is new or empty; {folder} holds something")
    runs = store.sql(_RUNS, {"grid": grid}).rows(named=True)
    taken: set[str] = set()
    for run in runs:
        name = re.sub(r"[^\w .,=+()·-]+", "_", f"{run['label']} seed {run['seed']}")
        name = f"{name} {run['trial'][:8]}" if name in taken else name
        taken.add(name)
        _write_run(store, run, make_directory(folder / name))
    return len(runs)


def _write_run(store: Store, run: Mapping[str, Any], place: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with (place / f"events.out.tfevents.{round(run['started']):010d}.ablate").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=run["started"], file_version="brain.Event:2").SerializeToString())
        writer.write(Event(wall_time=run["started"], summary=Summary(value=[_settings(run)])).SerializeToString())
        for step, name, point, value, at in store.sql(_SCALARS, {"trial": run["trial"]}).iter_rows():
            at_point = point.items() if isinstance(point, Mapping) else ((each["key"], each["value"]) for each in point)
            tag = "/".join(filter(None, [name, ",".join(f"{key}={number:g}" for key, number in at_point)]))
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.write(Event(wall_time=at, step=step, summary=summary).SerializeToString())


def _settings(run: Mapping[str, Any]) -> Any:
    """The axes and the seed, for TensorBoard's page HParams."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

    started = SessionStartInfo(start_time_secs=run["started"], group_name=run["label"])
    for name, value in {**json.loads(run["axes"]), "seed": run["seed"]}.items():
        if isinstance(value, bool):
            started.hparams[name].bool_value = value
        elif isinstance(value, int | float):
            started.hparams[name].number_value = value
        else:
            started.hparams[name].string_value = "none" if value is None else str(value)
    content = HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, session_start_info=started)
    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME, content=content.SerializeToString())
    return Summary.Value(tag=metadata.SESSION_START_INFO_TAG, metadata=SummaryMetadata(plugin_data=plugin))
