"""`ablate papers`, and items of papers as specs of `plan` and `run`."""

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from gallery_campaign import Harm, Made, spec_of, write_gallery

from ablate.papers.cli.papers import item_states
from ablate.runners.cli.app import execute
from ablate.runners.cli.named_grids import locate_spec
from ablate.runners.cli.options import SpecFlags
from ablate.store.files.atomic import write_json

ROOT = Path(__file__).parent.parent.parent


def test_an_item_is_a_grid_of_its_papers_file() -> None:
    path, of = locate_spec(Path("ssa:figure3"), SpecFlags(scale="gpu"))
    assert (path.name, of) == ("ssa.py", SpecFlags(grid="table1-gpu", campaign=Path("campaigns/ssa")))
    assert locate_spec(Path("ssa:table1"), SpecFlags())[1].grid == "table1-cpu"
    one = SpecFlags(grid="table1-cpu", campaign=Path("mine"))
    assert locate_spec(Path("ssa"), one) == (path, one)
    assert locate_spec(Path("mine.py"), one) == (Path("mine.py"), one)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["plan", "ssa:table99"], 3),
        (["run", "ssa:figure10"], 3),
        (["plan", "ssa:table1", "--scale", "huge"], 2),
        (["plan", "ssa:table1", "--grid", "table1-cpu"], 2),
        (["plan", "ssa", "--scale", "gpu"], 2),
        (["plan", "mine.py", "--scale", "cpu"], 2),
        (["plan", "sas:table1"], 3),
        (["papers", "sas"], 3),
    ],
)
def test_what_does_not_exist_has_the_documented_exit_code(command: list[str], code: int) -> None:
    assert execute(command) == code


def test_a_missing_corpus_can_be_planned_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ABLATE_CORPORA", str(tmp_path))
    code = execute(["plan", "ssa:table2", "--scale", "paper", "--campaign", str(tmp_path / "c"), "--json"])
    plan = json.loads(capsys.readouterr().out)["data"]
    assert code == 2
    assert plan["grids"][0]["cells"] == 2
    assert any(str(tmp_path / "fineweb") in why for why in plan["refused"])


def test_states_come_from_the_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    states = {each.item: each for each in item_states("ssa", "cpu", tmp_path, count=False)}
    assert (states["table1"].state, states["table1"].cells, states["table1"].trials) == ("planned", 13, 39)
    assert (states["table5"].state, states["figure10"].state) == ("with table1", "no grid")


def copy_result(paper: str, grid: str, folder: Path) -> Path:
    """Copy a published result of this repository below `folder`; return the place of its header."""
    (folder / "results" / paper).mkdir(parents=True)
    for end in ("json", "parquet"):
        shutil.copy(ROOT / "results" / paper / f"{grid}.{end}", folder / "results" / paper)
    return folder / "results" / paper / f"{grid}.json"


def test_a_grid_of_results_is_published_until_it_runs_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = copy_result("attention_sink", "table12-cpu", tmp_path)
    states = {each.item: each for each in item_states("attention_sink", "cpu", tmp_path / "c", count=False)}
    assert (states["table12"].state, states["table6"].state) == ("published", "planned")
    assert states["table12"].published_hours == json.loads(place.read_text())["cost"]["hours"]
    assert execute(["papers", "attention_sink:table12", "--json"]) == 0
    told = capsys.readouterr()
    (own,) = [row for row in json.loads(told.out)["data"] if row["cell"] == "sum 0.1" and row["row"] == "Valid loss"]
    rows = pl.read_parquet(place.with_suffix(".parquet")).filter(label="sum 0.1", name="validation_loss")
    assert (own["n"], own["mean"]) == (3, pytest.approx(rows["value"].mean()))


def test_results_that_nothing_printed_is_comparable_with_follow_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    copy_result("attention_sink", "table6-cpu", tmp_path)
    assert execute(["papers", "attention_sink:table6"]) == 0
    told = capsys.readouterr()
    assert re.search(r"^batch=32 +3 +2.04 +0$", told.out, re.MULTILINE)


def test_probes_that_a_table_names_are_shown_by_cell_and_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = copy_result("affine_scaled", "table1-cpu", tmp_path)
    label = "1B (181k here) · softmax"
    runs = pl.read_parquet(place.with_suffix(".parquet")).filter(name="gradient_spikes", label=label)
    assert execute(["papers", "affine_scaled:table5"]) == 0
    told = capsys.readouterr().out
    (row,) = [line.split() for line in told.splitlines() if line.startswith(label)]
    by_k = [runs.filter(pl.col("point").str.contains(f'"k":{k}'))["value"].mean() for k in (6, 9)]
    assert [float(value) for value in row[5:]] == [5, *map(pytest.approx, by_k)]


def test_results_of_another_version_are_not_called_published_and_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    place = copy_result("attention_sink", "table6-cpu", tmp_path)
    place.with_suffix(".parquet").write_bytes(b"torn")
    assert execute(["papers", "attention_sink:table6"]) == 6
    assert "table6-cpu.json and its Parquet file are damaged" in capsys.readouterr().err
    pl.DataFrame({"trial": ["a"]}).write_parquet(place.with_suffix(".parquet"))
    assert execute(["papers", "attention_sink:table6"]) == 6
    place.write_text('{"schema": 2}')
    assert execute(["papers", "attention_sink:table6"]) == 6
    assert "results/attention_sink/table6-cpu.json has version 2" in capsys.readouterr().err
    whole = json.loads(copy_result("attention_sink", "table6-cpu", tmp_path / "whole").read_text())
    for part, broken in (("cost", {"hours": None}), ("header", {"grid": "table6-cpu"})):
        place.write_text(json.dumps(whole | {part: broken}))
        assert execute(["papers", "attention_sink:table6"]) == 6
        assert execute(["papers", "attention_sink"]) == 0
    states = {each.item: each for each in item_states("attention_sink", "cpu", tmp_path / "c", count=False)}
    assert (states["table6"].state, states["table6"].published_hours) == ("planned", None)


def test_without_results_a_table_shows_the_printed_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert execute(["papers", "ssa:table5", "--campaign", str(tmp_path / "none"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["data"]
    assert [row["paper_table"] for row in told] == ["T5"] * 11


@pytest.mark.parametrize(
    ("item", "why"), [("attention_sink:table5", "is no grid: public"), ("integral:table6", "has no scale 'cpu'")]
)
def test_a_table_without_a_grid_shows_its_printed_values_and_the_reason(
    item: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["papers", item]) == 0
    told = capsys.readouterr()
    assert "doubt" in told.out or "Mistral-7B" in told.out
    assert why in told.err


def test_a_grid_that_was_run_with_overrides_is_not_called_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c" / "grids").mkdir(parents=True)
    more, steps = {"overrides": ["seeds=0..88"]}, {"overrides": ["training.steps=9", "seeds=0..88"]}
    written = {"table1-cpu": steps, "table6-cpu": more, "table2-cpu-steps-9-01234567": {**steps, "of": "table2-cpu"}}
    for grid, header in written.items():
        write_json(tmp_path / "c" / "grids" / f"{grid}.json", header)
    states = {each.item: each.state for each in item_states("ssa", "cpu", tmp_path / "c", count=False)}
    assert [states[each] for each in ("table1", "table2", "table6")] == ["other settings", "other settings", "planned"]


def test_a_table_shows_own_means_beside_printed_values_and_doubts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("evaluation", "mse", {"sigma_f": 5.0, "sigma_x": 1.0}, None, None)]
    task = {"task": {"kind": "linear_functions"}}
    cells = [
        Made(name, {"operator": spec_of(name, {}), **task}, {"operator": name}, rows) for name in ("softmax", "ssa")
    ]
    root = write_gallery(tmp_path / "runs", {"table1-cpu": cells}, Harm(seeds=(0, 1, 2)))
    assert execute(["papers", "ssa:table1", "--campaign", str(root), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["data"]
    (own,) = [row for row in told if (row["row"], row["column"]) == ("Softmax", "5")]
    assert (own["printed"], own["n"], own["cell"]) == ("1.62", 3, "softmax")
    assert own["mean"] is not None
    assert "tables 1 and 6" in own["trust"]
    assert execute(["papers", "ssa:table1", "--campaign", str(root)]) == 0
    assert "doubt" in capsys.readouterr().out
