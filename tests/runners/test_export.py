"""The command `export`: every table in every format, trackers' own readers, and what is refused."""

import contextlib
import io
import json
import math
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from synthetic import write_campaign
from tracked_campaign import scalar_name, write_tracked_campaign

from ablate.runners.cli.app import execute
from ablate.store import Campaign
from ablate.store.files.layout import Layout
from ablate.store.files.saved_texts import QUERIES
from ablate.store.statistics.noise import unseen_share
from ablate.store.store import Store


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    sizes = {"factors": {"width": (8,)}, "seeds": range(3), "steps": 4, "sigma_f": (5,), "sigma_x": (1,)}
    write_campaign(root, operators=("softmax", "SSA"), **sizes)
    query = "select label, map {'a': count(*)} as n from grid_trial group by all order by all"
    QUERIES.save(Layout(root), "per-cell", query)
    return root


def export(campaign: Path, *arguments: str) -> int:
    return execute(["export", *arguments, "--campaign", str(campaign)])


def test_trials_have_the_measure_and_rows_the_order_of_the_plan(campaign: Path, tmp_path: Path) -> None:
    for table in ("trials", "cells"):
        assert export(campaign, table, "--to", str(tmp_path / f"{table}.parquet")) == 0
    trials, cells = (pl.read_parquet(tmp_path / f"{table}.parquet") for table in ("trials", "cells"))
    assert cells["label"].unique(maintain_order=True).to_list() == ["softmax · 8", "SSA · 8"]
    means = trials.group_by("label").agg(pl.col("value").mean())
    measured = cells.filter((pl.col("name") == "mse") & (pl.col("sigma_f") == 5)).select("label", "mean")
    assert means.join(measured, on="label").select((pl.col("value") - pl.col("mean")).abs().max()).item() < 1e-12


@pytest.mark.parametrize(
    ("table", "rows", "column"),
    [
        ("verdicts", 1, "p_holm"),
        ("cells", 2 * 4, "sigma_f"),
        ("trials", 6, "width"),
        ("metrics", 6 * 4 * 3, "wall_s"),
        ("evaluations", 6 * 2, "sigma_x"),
        ("probes", 3 * 2 * 4, "head"),
        ("items", 6 * 2, "item"),
        ("per-cell", 2, "n"),
    ],
)
def test_every_table_is_whole_in_csv_and_parquet(
    table: str, rows: int, column: str, campaign: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "new" / f"{table}.csv"
    assert export(campaign, table, "--to", str(file)) == 0
    assert capfdbinary.readouterr().out.strip() == str(file).encode()
    assert export(campaign, table, "--to", "-", "--format", "parquet") == 0
    for found in (pl.read_csv(file), pl.read_parquet(io.BytesIO(capfdbinary.readouterr().out))):
        assert found.height == rows
        assert column in found.columns
        assert "point" not in found.columns


def test_tables_go_on_pages(campaign: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for table, suffix in (("verdicts", "tex"), ("metrics", "md"), ("per-cell", "tex")):
        assert export(campaign, table, "--to", str(tmp_path / f"{table}.{suffix}")) == 0
    page = (tmp_path / "verdicts.tex").read_text()
    assert re.search(r"SSA \$\\cdot\$ 8 & 3 & 0\.0\d{4} & \$-\$\d\d\.\d & \$-\$\d\d\.\d to \$-\$\d\d\.\d & ", page)
    assert re.search(r"softmax \$\\cdot\$ 8 & 3 & 0\.0\d{4} & -- & -- & -- & -- & baseline", page)
    assert rf"{100 * unseen_share(3):.0f} \% of a cell" in page
    capfdbinary.readouterr()
    assert export(campaign, "cells", "--to", "-", "--format", "md", "--spread", "sd") == 0
    assert b"standard deviation" in capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("verdict --to x.csv", 3, "did you mean 'verdicts'"),
        ("../grids --to x.csv", 3, "no table '../grids'"),
        ("cells --to -", 2, "add --format"),
        ("trials --to x.csv --at sigma_f=5", 2, "cells on a page"),
        ("cells --to x.md --at sigma_f", 2, "--at 'sigma_f'"),
        ("cells --to= --format csv", 2, "--to '' names no file"),
    ],
)
def test_wrong_use_is_one_sentence_and_writes_nothing(
    arguments: str, code: int, words: str, campaign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.chdir(tmp_path):
        assert export(campaign, *arguments.split()) == code
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err
    assert list(tmp_path.iterdir()) == []


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


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("wandb", reason='needs "ablate[wandb]"')
    from wandb.proto.wandb_internal_pb2 import Record


BLOCK = 32_768


def records(file: Path) -> Iterator[Any]:
    """Yield the records of a file, which are in the format of LevelDB's log after a head of seven bytes."""
    data, at, parts = file.read_bytes(), 7, b""
    while at < len(data):
        if BLOCK - at % BLOCK < 7:  # no room for the head of a record
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield Record.FromString(parts)
            parts = b""


def read_of_export_wandb(file: Path) -> dict[str, Any]:
    """Return project, group, name, config, exit code and, by step and name, the values of a run."""
    found: dict[str, Any] = {"config": {}, "values": set()}
    for record in records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            found |= {"project": run.project, "group": run.run_group, "name": run.display_name, "tags": [*run.tags]}
            found["config"] |= {each.key: json.loads(each.value_json) for each in run.config.update}
        elif kind == "history":
            named = {each.key or "/".join(each.nested_key): each.value_json for each in record.history.item}
            step = json.loads(named["_step"])
            found["values"] |= {(step, name, repr(json.loads(v))) for name, v in named.items() if name[0] != "_"}
        elif kind == "exit":
            found["exit"] = record.exit.exit_code
    return found


def test_the_file_of_a_run_has_what_counts(tmp_path: Path) -> None:
    root = tmp_path / "c"
    campaign = write_tracked_campaign(root)
    assert execute(["export", "wandb", str(tmp_path / "runs"), "--campaign", str(root)]) == 0
    files = list((tmp_path / "runs").rglob("*.wandb"))
    runs = {found["name"]: found for found in map(read_of_export_wandb, files)}
    assert set(runs) == {"a/b · 0.1 · true seed 0", "a/b · 0.1 · true seed 1", "softmax · 0.1 · true seed 0"}
    with Store.open(root) as store:
        for name, found in runs.items():
            label, seed = name.rsplit(" seed ", 1)
            line = campaign.line(label, int(seed))
            failed = label.startswith("softmax")
            query = (
                "SELECT step, name, value, '{}' AS p FROM v_metric WHERE trial = $t UNION ALL "
                "SELECT step, name, value, point::JSON::VARCHAR FROM v_evaluation WHERE trial = $t"
            )
            rows = store.sql(query, {"t": line["trial"]}).iter_rows()
            wanted = {(step, scalar_name(what, json.loads(point)), repr(value)) for step, what, value, point in rows}
            assert found["values"] == wanted
            assert (found["project"], found["group"], found["exit"]) == (line["grid"], label, int(failed))
            config = {name: value for name, value in found["config"].items() if not name.startswith("_")}
            axes = {"operator": line["axes"]["operator"], "lr": 0.1, "gated": True, "seed": line["seed"]}
            assert (config, found["tags"]) == (axes, ["failed" if failed else "done"])


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_campaign(tmp_path / "c", operators=("softmax",), seeds=range(1))
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert execute(["export", "wandb", str(tmp_path / "runs"), "--campaign", str(tmp_path / "c")]) == 5
    assert re.search(r'pip install "ablate\[wandb\]"', capsys.readouterr().err)
