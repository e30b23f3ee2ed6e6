"""The command `import` says what it leaves out, and reads directories that writers make inside that of a run."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tracker_files import SummaryWriter, event_file, import_, lines, stored, wandb_run

from ablate import Campaign
from ablate.runners.cli.app import execute
from ablate.store.export import wandb_offline
from ablate.store.external_runs import imported_runs

Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return the text on stderr since the last call, without the last line, which counts the runs."""
    capsys.readouterr()
    return lambda: "\n".join(capsys.readouterr().err.strip().splitlines()[:-1])


def values(root: Path, table: str = "v_metric") -> list[tuple[Any, ...]]:
    """Label, seed, name, step and value."""
    query = f"SELECT label, seed, m.name, m.step, m.value FROM {table} m JOIN grid_trial USING (trial) ORDER BY ALL"
    return Campaign(root).sql(query).rows()


# Directories of SummaryWriter:


def test_add_hparams_is_the_config_of_its_run_and_its_results_are_evaluations(tmp_path: Path, said: Said) -> None:
    for rate in (0.5, 0.25):
        with SummaryWriter(str(tmp_path / "runs" / f"{rate}")) as writer:
            for step in range(3):
                writer.add_scalar("loss", step * rate, step)
            writer.add_hparams({"rate": rate, "name": "a", "seed": 3}, {"loss": 9.0, "hparam/accuracy": rate})
    assert import_(tmp_path / "c", str(tmp_path / "runs"), "--measure", "hparam/accuracy") == 0
    assert said() == ""
    assert Campaign(tmp_path / "c").trials().select("label", "seed", "rate").rows() == [
        ("0.25", 3, 0.25),
        ("0.5", 3, 0.5),
    ]
    curves = [(f"{rate}", 3, "loss", step, step * rate) for rate in (0.25, 0.5) for step in range(3)]
    assert values(tmp_path / "c") == curves
    results = [
        (f"{rate}", 3, name, 2, value)
        for rate in (0.25, 0.5)
        for name, value in (("hparam/accuracy", rate), ("loss", 9))
    ]
    assert values(tmp_path / "c", "v_evaluation") == results


@pytest.mark.parametrize("curve", [True, False])
def test_add_hparams_of_several_configs_are_runs_of_their_own(curve: bool, tmp_path: Path, said: Said) -> None:
    with SummaryWriter(str(tmp_path / "runs")) as writer:
        for seed in range(3):
            writer.add_hparams(
                {"seed": seed, "rate": 0.5}, {"accuracy": seed / 4}, run_name=f"run{seed}", global_step=seed
            )
        if curve:
            writer.add_scalar("loss", 1.0, 0)
    assert import_(tmp_path / "c", str(tmp_path / "runs"), "--label", "{rate}") == (2 if curve else 0)
    assert ("seed" in said()) == curve  # the run above them has none
    assert values(tmp_path / "c", "v_evaluation") == [("0.5", seed, "accuracy", seed, seed / 4) for seed in range(3)]


def test_add_hparams_into_the_directory_of_the_run_leaves_its_curves_whole(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "run")) as writer:
        for step in range(5):
            writer.add_scalar("loss", float(step), step)
        writer.add_hparams({"seed": 1}, {"loss": 7.0}, run_name=".")
    assert import_(tmp_path / "c", str(tmp_path / "run")) == 0
    assert values(tmp_path / "c") == [("run", 1, "loss", step, step) for step in range(5)]
    assert values(tmp_path / "c", "v_evaluation") == [("run", 1, "loss", 4, 7)]


def test_add_scalars_are_curves_of_their_run(tmp_path: Path, said: Said) -> None:
    for seed in range(2):
        with SummaryWriter(str(tmp_path / "runs" / f"s{seed}")) as writer:
            for step in range(3):
                writer.add_scalar("loss", step / 2, step)
                writer.add_scalars("acc/top 1", {"train": step, "val/in": 2 * step}, step)
    event_file(tmp_path / "runs" / "s0" / "loss_other", 0, tag="other", seed=7)  # no curve, but a run inside
    assert import_(tmp_path / "c", str(tmp_path / "runs"), "--named", "s{seed}", "--label", "a") == 2
    assert said().startswith("ablate: " + str(tmp_path / "runs" / "s0" / "loss_other"))
    curves = {("acc/top 1/train", 1), ("acc/top 1/val/in", 2), ("loss", 0.5)}
    assert values(tmp_path / "c") == sorted(
        ("a", seed, name, step, step * slope) for seed in range(2) for name, slope in curves for step in range(3)
    )


def test_values_that_are_no_scalars_are_counted_over_all_runs(tmp_path: Path, said: Said) -> None:
    for seed in range(3):
        with SummaryWriter(str(tmp_path / "runs" / f"s{seed}")) as writer:
            writer.add_scalar("loss", 0.5, 1)
            writer.add_scalar("vector", 0.5, 1, new_style=True)
            writer.add_text("note", "text", 0)
            for step in range(2):
                writer.add_image("picture", np.zeros((3, 2, 2)), step)
            writer.add_histogram("weights", np.arange(4.0), 0)
            writer.add_tensor("tensor", torch.zeros(3))
    assert import_(tmp_path / "c", str(tmp_path / "runs"), "--named", "s{seed}", "--label", "a") == 0
    assert len(values(tmp_path / "c")) == 6
    (line,) = said().splitlines()
    for kind in ("6 of images", "3 of text", "3 of histograms", "3 of tensor", "s0 and 2 more"):
        assert kind in line


def test_values_at_a_step_of_a_later_one_are_counted(tmp_path: Path, said: Said) -> None:
    with SummaryWriter(str(tmp_path / "run")) as writer:
        for value in (1.0, 2.0, 2.0, 3.0):
            writer.add_scalar("loss", value)  # without a step
        writer.add_scalar("other", 1.0, 5)
        writer.add_scalar("other", 2.0, 3)  # backwards
    event_file(tmp_path / "run", 4, 5, tag="other", name=".z")
    assert import_(tmp_path / "c", str(tmp_path / "run"), "--seed", "0") == 0
    assert "3 of scalars" in said()  # 1 and 2 of the loss, and what the later file has again
    wanted = [
        ("loss", 0, 3.0),
        ("other", 3, 2.0),
        ("other", 4, float(np.float32(0.2))),
        ("other", 5, float(np.float32(1 / 6))),
    ]
    assert [each[2:] for each in values(tmp_path / "c")] == wanted


def test_files_of_one_second_follow_the_count_of_their_writer(tmp_path: Path) -> None:
    for number, step in ((9, 1), (10, 0)):
        file = event_file(tmp_path / "run", step, step + 1, name=f".{number}")
        file.rename(file.with_name(f"events.out.tfevents.1.host.1.{number}"))
    assert import_(tmp_path / "c", str(tmp_path / "run"), "--seed", "0") == 0
    assert [each[3] for each in values(tmp_path / "c")] == [0, 1]


# W&B:


def test_tables_and_texts_are_left_out_and_a_summary_is_a_result(tmp_path: Path, said: Said) -> None:
    import wandb

    def act(run: Any) -> None:
        run.log(
            {"inner": {"table": wandb.Table(columns=["a"], data=[[1]]), "x": 2.5}, "histogram": wandb.Histogram([1, 2])}
        )
        run.summary["best"] = 0.25
        run.summary["told"] = {"deep": 0.5, "text": "a"}

    wandb_run(tmp_path / "w", {"seed": 1}, act=act, text="a", truth=True, list=[1, 2], none=None, big=2**60)
    assert import_(tmp_path / "c", str(tmp_path / "w"), "--label", "a") == 0
    names = {name for *_, name, _, _ in values(tmp_path / "c")}
    assert names == {"loss", "inner.x", "big"}
    assert values(tmp_path / "c", "v_evaluation") == [("a", 1, "best", 3, 0.25), ("a", 1, "told.deep", 3, 0.5)]
    told = said()
    for kind in (
        "1 of 'inner.table'",
        "1 of 'histogram'",
        "3 of 'text'",
        "3 of 'truth'",
        "3 of 'list'",
        "1 of 'told.text'",
    ):
        assert kind in told


def test_a_metric_whose_summary_is_its_last_value_is_an_evaluation(tmp_path: Path) -> None:
    def act(run: Any) -> None:
        run.define_metric("val", summary="last")
        run.define_metric("other", summary="min")
        run.log({"val": 0.5, "other": 0.5})

    wandb_run(tmp_path / "w", {"seed": 1}, act=act)
    assert import_(tmp_path / "c", str(tmp_path / "w"), "--label", "a") == 0
    assert values(tmp_path / "c", "v_evaluation") == [("a", 1, "val", 3, 0.5)]
    assert ("a", 1, "other", 3, 0.5) in values(tmp_path / "c")


def test_a_config_of_wandb_may_change_its_form_and_have_no_end(tmp_path: Path) -> None:
    config = {"seed": 1, "model": {"width": 8}, "clip": math.inf, "label": "mine"}
    wandb_run(tmp_path / "w", config, act=lambda run: run.config.update({"model": 3}, allow_val_change=True))
    assert import_(tmp_path / "c", str(tmp_path / "w")) == 0
    (spec,) = (json.loads(path.read_text())["spec"] for path in (tmp_path / "c").rglob("manifest.jsonl"))
    assert (spec["label"], spec["config"]) == ("mine", {"model": 3, "clip": "inf"})
    nested: dict[str, Any] = {"model": 3}
    wandb_offline._insert(nested, ["model", "width"], 8)
    wandb_offline._insert(nested, ["model", "width", "deep"], 9)
    assert nested == {"model": {"width": {"deep": 9}}}


def test_a_run_of_wandb_without_an_end_is_told(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb_run(tmp_path / "w", {"seed": 1}, act=lambda run: run.summary.update({"best": 1.0}))
    whole = wandb_offline._records
    without_end = lambda file: (each for each in whole(file) if each.WhichOneof("record_type") != "exit")  # noqa: E731
    monkeypatch.setattr(wandb_offline, "_records", without_end)
    assert import_(tmp_path / "c", str(tmp_path / "w"), "--label", "a") == 0
    assert "counts as failed" in said()
    assert stored(tmp_path / "c")[1] == {("a", 1): "failed"}
    assert [each[2:] for each in values(tmp_path / "c")] == [("loss", step, 1 / (step + 1)) for step in range(3)]


# CSV:


def test_words_for_no_value_are_no_values_and_other_words_are_faults(tmp_path: Path, said: Said) -> None:
    words = ["", "N/A", "NA", "null", "None", "-", "<NA>", "#N/A"]
    rows = [f"{step},{word},0" for step, word in enumerate(words)]
    lines(tmp_path / "a.csv", "step,loss,seed", *rows, "8,nan,0", "9,-inf,0", "10,0.5,0")
    assert import_(tmp_path / "c", str(tmp_path / "a.csv")) == 0
    assert said() == ""
    assert [repr(each[2:]) for each in values(tmp_path / "c")] == [
        "('loss', 8, nan)", "('loss', 9, -inf)", "('loss', 10, 0.5)"
    ]  # fmt: skip
    lines(tmp_path / "b.csv", "step,loss,seed", "1,x,0", "2,0.5,0", "3,1_0,0", "4,0.25,0")
    assert import_(tmp_path / "c", str(tmp_path / "b.csv")) == 6
    assert "line 2" in (told := said())
    assert "2" in told
    assert [each[3:] for each in values(tmp_path / "c") if each[0] == "b"] == [(2, 0.5), (4, 0.25)]
    assert stored(tmp_path / "c")[1]["b", 0] == "failed"


def test_columns_that_are_left_out_are_named_once_for_all_files(tmp_path: Path, said: Said) -> None:
    for seed in range(3):
        lines(
            tmp_path / "r" / f"{seed}.csv", ",step,loss,host,none,seed", f"0,1,0.5,a,,{seed}.0", f"1,2,0.25,,,{seed}.0"
        )
    assert import_(tmp_path / "c", str(tmp_path / "r"), "--label", "a") == 0
    (line,) = said().splitlines()
    for word in ("and 2 more", "3 of 'host'", "3 of no name"):
        assert word in line
    assert values(tmp_path / "c") == [("a", seed, "loss", step, 0.5 / step) for seed in range(3) for step in (1, 2)]


def test_ragged_rows_are_left_out_and_all_others_are_read(tmp_path: Path, said: Said) -> None:
    rows = ["1,0.5,0", "2,0.25", "3,0.125,0", "4,0.5,0,7", "1,1,1", "3,0.5,1"]
    lines(tmp_path / "a.csv", "step,loss,seed", *rows)
    assert import_(tmp_path / "c", str(tmp_path / "a.csv"), "--label", "a") == 6
    assert "line 3" in said()
    wanted = [("a", 0, "loss", 1, 0.5), ("a", 0, "loss", 3, 0.125), ("a", 1, "loss", 1, 1.0), ("a", 1, "loss", 3, 0.5)]
    assert values(tmp_path / "c") == wanted


def test_steps_may_come_in_any_order_and_twice_with_one_value(tmp_path: Path, said: Said) -> None:
    lines(tmp_path / "a.csv", "step,loss,seed", "3,0.25,0", "1,0.5,0", "3,0.25,0", "2.0,nan,0", "2,nan,0")
    assert import_(tmp_path / "c", str(tmp_path / "a.csv")) == 0
    assert said() == ""
    assert [repr(each[3:]) for each in values(tmp_path / "c")] == ["(1, 0.5)", "(2, nan)", "(3, 0.25)"]


REFUSED = {
    "headings only": (["step,loss,seed"], "no rows"),
    "a heading twice": (["step,loss,loss,seed", "1,2,3,0"], "heading 'loss' 2 times"),
    "two values": (["step,loss,seed", "1,2,0", "1,3,0", "1,2,1", "1,3,1"], "in line 3 (so have 2 of its runs)"),
    "a missing column": (["step,loss,seed,rate", "1,2,0,1"], "did you mean 'rate'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_can_be_read_in_two_ways_is_refused(case: str, tmp_path: Path, said: Said) -> None:
    rows, words = REFUSED[case]
    file = lines(tmp_path / "a.csv", *rows)
    assert import_(tmp_path / "c", str(file), *(["--axis", "rat"] if case == "a missing column" else [])) == 2
    (line,) = said().splitlines()
    assert words in line
    assert not (tmp_path / "c" / "trials").exists()


def test_a_label_and_an_entry_stay_as_they_are_written(tmp_path: Path) -> None:
    head, row = "step,loss,seed,label,code,wide,rate,whole", "1,0.5,0,007,1_000,True,1e-3,8"
    lines(tmp_path / "a.csv", head, row)
    words = ["--axis", "code", "--axis", "wide", "--axis", "rate", "--axis", "whole"]
    assert import_(tmp_path / "c", str(tmp_path / "a.csv"), *words) == 0
    trials = Campaign(tmp_path / "c").trials().select("label", "code", "wide", "rate", "whole").rows()
    assert trials == [("007", "1_000", True, 0.001, 8)]


# All:


def test_a_name_that_no_table_can_hold_is_left_out_alone(tmp_path: Path, said: Said) -> None:
    for seed in range(2):
        lines(tmp_path / "r" / f"{seed}.csv", f"step,loss, blank,{'x' * 151},seed", f"1,0.5,1,2,{seed}")
    assert import_(tmp_path / "c", str(tmp_path / "r"), "--label", "a") == 2
    assert len(said().splitlines()) == 2
    assert values(tmp_path / "c") == [("a", seed, "loss", 1, 0.5) for seed in range(2)]


def test_a_measure_and_a_baseline_that_are_not_there_are_told(tmp_path: Path, said: Said) -> None:
    lines(tmp_path / "a.csv", "step,val_loss,seed,label", "1,0.5,0,sgd", "1,0.4,0,adam")
    words = [str(tmp_path / "a.csv"), "--measure", "val_los:lower", "--baseline", "sg"]
    assert import_(tmp_path / "c", *words) == 3
    told = said()
    assert "did you mean 'val_loss'" in told
    assert "did you mean 'sgd'" in told
    assert not [*(tmp_path / "c" / "grids").glob("*.judged")]
    assert import_(tmp_path / "c", *words[:2], "val_loss:lower", "--baseline", "sgd") == 0
    assert Campaign(tmp_path / "c").compare()["label"].to_list() == ["adam"]


def test_runs_that_are_all_variants_of_their_own_are_told(tmp_path: Path, said: Said) -> None:
    for seed in range(3):
        lines(tmp_path / "r" / f"{seed}.csv", "step,loss,seed", f"1,0.5,{seed}")
    assert import_(tmp_path / "c", str(tmp_path / "r")) == 0
    assert "--without" in said()


def test_a_campaign_and_a_grid_have_names_of_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "a.csv", "step,loss,seed", "1,0.5,0")
    for _ in range(2):
        assert execute(["import", "a.csv"]) == 0
    assert stored(tmp_path / "campaigns" / "imported")[1] == {("a", 0): "done"}


def test_what_does_not_fit_in_memory_is_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [str(lines(tmp_path / f"{rate}.csv", "step,loss,seed,rate", f"1,{rate},0,{rate}")) for rate in (1, 2)]
    assert import_(tmp_path / "c", *files, "--named", "{rate}") == 0
    monkeypatch.setattr(imported_runs, "_MOST_KEPT", 0)
    assert import_(tmp_path / "d", *files, "--named", "{rate}") == 0
    assert stored(tmp_path / "d") == stored(tmp_path / "c")
    assert {label for label, _ in stored(tmp_path / "c")[1]} == {"1", "2"}
