"""TensorBoard's own reader finds every value that counts, the axes, and nothing else."""

import json
import math
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from synthetic import write_campaign
from tracked_campaign import scalar_name, write_tracked_campaign

from ablate.runners.cli.app import execute
from ablate.store import Campaign
from ablate.store.store import Store

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("tensorboard", reason='needs "ablate[tensorboard]"')
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.io_wrapper import ListDirectoryAbsolute
    from tensorboard.plugins.hparams import metadata


def read(place: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, object]]:
    """By tag the steps and values, and the axes, of one run."""
    assert len(list(ListDirectoryAbsolute(str(place)))) == 1
    found = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
    scalars = {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    content = found.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    hparams = metadata.parse_session_start_info_plugin_data(content).hparams
    return scalars, {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()}


def test_the_reader_of_tensorboard_finds_what_counts(tmp_path: Path) -> None:
    root = tmp_path / "c"
    campaign = write_tracked_campaign(root)
    assert execute(["export", "tensorboard", str(tmp_path / "runs"), "--campaign", str(root)]) == 0
    places = {path.name: path for path in (tmp_path / "runs").iterdir()}
    assert set(places) == {"a_b · 0.1 · true seed 0", "a_b · 0.1 · true seed 1", "softmax · 0.1 · true seed 0"}
    with Store.open(root) as store:
        for name, place in places.items():
            label, seed = name.rsplit(" seed ", 1)
            line = campaign.line(label.replace("a_b", "a/b"), int(seed))
            wanted: dict[str, list[tuple[int, str]]] = {}
            for view in ("v_metric", "v_evaluation"):
                point = "MAP {}" if view == "v_metric" else "point"
                query = (
                    f"SELECT name, step, value, {point}::JSON::VARCHAR AS p FROM {view} WHERE trial = $t ORDER BY ALL"
                )
                for what, step, value, at in store.sql(query, {"t": line["trial"]}).iter_rows():
                    place_of = {} if view == "v_metric" else json.loads(at)
                    wanted.setdefault(scalar_name(what, place_of), []).append((step, str(np.float32(value).item())))
            scalars, axes = read(place)
            assert {each: [(step, str(value)) for step, value in values] for each, values in scalars.items()} == wanted
            assert axes == {"operator": line["axes"]["operator"], "lr": 0.1, "gated": True, "seed": line["seed"]}


def test_values_that_are_no_number_stay_so(tmp_path: Path) -> None:
    with Campaign(tmp_path / "c") as campaign, campaign.start("widths", label="wide", seed=0) as run:
        run.log(1, loss=math.inf)
        run.log(2, loss=math.nan)
    assert execute(["export", "tensorboard", str(tmp_path / "runs"), "--campaign", str(tmp_path / "c")]) == 0
    scalars, _ = read(tmp_path / "runs" / "wide seed 0")
    (first, infinite), (second, missing) = scalars["loss"]
    assert (first, infinite, second) == (1, math.inf, 2)
    assert math.isnan(missing)


def test_a_directory_with_something_in_it_is_left_alone_and_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_campaign(tmp_path / "c", operators=("softmax",), seeds=range(1))
    place = tmp_path / "runs"
    place.mkdir()
    (place / "mine").write_text("mine")
    assert execute(["export", "tensorboard", str(place), "--campaign", str(tmp_path / "c")]) == 2
    assert [path.name for path in place.iterdir()] == ["mine"]
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert execute(["export", "tensorboard", str(tmp_path / "more"), "--campaign", str(tmp_path / "c")]) == 5
    assert 'pip install "ablate[tensorboard]"' in capsys.readouterr().err
