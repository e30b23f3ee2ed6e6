"""The command `import`: what trackers wrote is read whole, once, and what is unfit is told while the rest goes on."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tracker_files import SummaryWriter, attempts, event_file, import_, lines, stored, wandb_run

from ablate import Campaign
from ablate.grid.errors import AblateError
from ablate.store.export.csv_reader import read_csv
from ablate.store.export.tensorboard_reader import read_tensorboard
from ablate.store.export.tracker_runs import FoundRun, Reading
from ablate.store.export.wandb_offline import read_wandb
from ablate.store.files.layout import Layout

# Files of others:


def test_event_files_of_torch_are_runs_with_their_own_times(tmp_path: Path) -> None:
    for rate in (0.5, 0.25):
        for seed in range(2):
            event_file(tmp_path / "runs" / f"{rate}" / f"{seed}", 0, 5, rate=rate, seed=seed, width=8)
    assert import_(tmp_path / "c", str(tmp_path / "runs")) == 0
    campaign = Campaign(tmp_path / "c")
    assert {*campaign.trials().select("label", "seed", "rate").rows()} == {
        ("0.5", 0, 0.5),
        ("0.5", 1, 0.5),
        ("0.25", 0, 0.25),
        ("0.25", 1, 0.25),
    }
    rows = campaign.sql("SELECT DISTINCT name, step, value, wall_s FROM v_metric WHERE name = 'train/loss'").rows()
    assert sorted(rows) == [("train/loss", 0, 1.0, 0.0), ("train/loss", 5, float(np.float32(1 / 6)), 10.0)]
    assert "width" not in campaign.trials().columns  # it is the same everywhere


def test_a_restarted_run_counts_from_where_it_went_on(tmp_path: Path) -> None:
    first = event_file(tmp_path / "run", 0, 1, 2, 3, name=".a")
    event_file(tmp_path / "run", 0, 1, tag="other", name=".b")
    with SummaryWriter(str(tmp_path / "run"), filename_suffix=".c") as writer:
        writer.add_scalar("train/loss", 7.0, 2)
    assert first.exists()
    assert import_(tmp_path / "c", str(tmp_path / "run"), "--seed", "3") == 0
    rows = Campaign(tmp_path / "c").sql("SELECT name, step, value FROM v_metric ORDER BY ALL").rows()
    assert rows == [
        ("other", 0, 1.0),
        ("other", 1, 0.5),
        *[("train/loss", *each) for each in ((0, 1.0), (1, 0.5), (2, 7.0))],
    ]


def test_a_run_of_wandb_has_nested_config_and_odd_values(tmp_path: Path) -> None:
    config = {"model": {"width": 8}, "optim": {"lr": 0.5}, "data": {"seed": 4}, "out": str(tmp_path)}
    wandb_run(tmp_path / "w", config, nan=math.nan, far=-math.inf, text="a", inner={"x": 2})
    words = ["--seed", "data.seed", "--axis", "optim.lr", "--axis", "size=model.width", "--without", "out"]
    assert import_(tmp_path / "c", str(tmp_path / "w"), *words, "--label", "w{model.width}") == 0
    campaign = Campaign(tmp_path / "c")
    assert campaign.trials().select("label", "seed", "state", "lr", "size").rows() == [("w8", 4, "done", 0.5, 8)]
    (spec,) = (json.loads(path.read_text())["spec"] for path in Layout(tmp_path / "c").root.rglob("manifest.jsonl"))
    assert spec["config"] == {"model.width": 8, "optim.lr": 0.5}
    last = campaign.sql("SELECT name, value FROM v_metric WHERE step = 2 ORDER BY name").rows()
    assert [name for name, _ in last] == ["far", "inner.x", "loss", "nan"]
    assert last[0][1] == -math.inf
    assert math.isnan(last[3][1])


def test_names_of_files_give_labels_and_seeds_and_a_verdict_follows(tmp_path: Path) -> None:
    for label, factor in (("sgd", 1.0), ("adam", 0.5)):
        for seed in range(5):
            value = factor * (1 + 0.01 * (seed * len(label) % 7))
            rows = [f"{step},{value / step:.6f},," for step in (1, 2)]
            final = f"2,,{value:.4f},"
            lines(tmp_path / "runs" / f"{label}-s{seed}.csv", "step,loss,val_loss,note", *rows, final)
    words = ["--named", "{optimiser}-s{seed}", "--measure", "val_loss:lower", "--baseline", "sgd"]
    assert import_(tmp_path / "c", str(tmp_path / "runs"), *words) == 0
    (row,) = Campaign(tmp_path / "c").compare().rows(named=True)
    assert (row["label"], row["verdict"], row["pairs"]) == ("adam", "better", 5)
    assert row["percent"] == pytest.approx(-50, abs=3)


def test_files_of_one_name_in_two_places_are_two_runs(tmp_path: Path) -> None:
    files = [lines(tmp_path / each / "log.csv", "step,loss,seed", f"1,0.5,{each}") for each in "01"]
    assert import_(tmp_path / "c", *map(str, files), str(files[0])) == 0
    assert stored(tmp_path / "c")[1] == {("log", 0): "done", ("log", 1): "done"}


def test_a_table_without_steps_has_a_row_per_run(tmp_path: Path) -> None:
    rows = [f"{label},{seed},{seed + width}" for label, width in (("a", 1), ("b", 2)) for seed in range(2)]
    file, root = lines(tmp_path / "final.csv", "label,seed,accuracy", *rows), tmp_path / "c"
    assert import_(root, str(file), "--evaluation", "accuracy") == 0
    found = Campaign(root).sql("SELECT label, seed, value FROM v_final WHERE name = 'accuracy' ORDER BY ALL").rows()
    assert found == [("a", 0, 1.0), ("a", 1, 2.0), ("b", 0, 2.0), ("b", 1, 3.0)]


# Once:


def test_the_same_runs_add_nothing_and_more_values_are_refused(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.csv", "step,loss,seed", "1,0.5,0", "1,0.6,1")
    root = tmp_path / "c"
    assert import_(root, str(file)) == 0
    before, stands = stored(root), attempts(root)
    assert import_(root, str(file)) == 0
    assert (stored(root), attempts(root)) == (before, stands)
    lines(file, "step,loss,seed", "1,0.5,0", "1,0.6,1", "2,0.4,1")
    assert import_(root, str(file)) == 2
    assert (stored(root), attempts(root)) == (before, stands)
    lines(file, "step,loss,seed", "1,0.5,0", "1,0.6,1", "1,0.7,2")
    assert import_(root, str(file)) == 0
    assert len(attempts(root)) == len(stands) + 2
    assert import_(root, str(file), grid="other") == 0
    assert Campaign(root).trials("other")["state"].to_list() == ["done"] * 3


def test_what_was_cut_off_comes_in_whole_later(tmp_path: Path) -> None:
    root, file = tmp_path / "c", lines(tmp_path / "a.csv", "step,loss", "1,0.5", "2,0.", end="")
    assert import_(root, str(file), "--seed", "0") == 6
    stands = attempts(root)
    assert (stored(root)[1], import_(root, str(file), "--seed", "0")) == ({("a", 0): "failed"}, 6)
    assert attempts(root) == stands
    lines(file, "step,loss", "1,0.5", "2,0.25")
    assert import_(root, str(file), "--seed", "0") == 0
    found, states = stored(root)
    assert states == {("a", 0): "done"}
    assert found["a", 0] == {(1, "loss", "{}", "0.5"), (2, "loss", "{}", "0.25")}


# Bad input:


def _nothing(place: Path) -> None:
    place.mkdir()


def _other_bytes(place: Path) -> None:
    place.mkdir()
    (place / "events.out.tfevents.1").write_bytes(bytes(range(256)))


def _one_seed_twice(place: Path) -> None:
    for each in (1, 2):
        lines(place / f"{each}.csv", "step,loss,label,seed", f"1,{each},a,0")


def _flipped_record(place: Path) -> None:
    file = event_file(place, 0, 1, 2, 3, seed=0)
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(data)


BAD: dict[str, tuple[Callable[[Path], object], int]] = {
    "a directory without runs": (_nothing, 3),
    "no such file": (Path.absolute, 3),
    "no event file": (_other_bytes, 2),
    "a damaged record": (_flipped_record, 6),
    "no seed": (lambda place: lines(place / "a.csv", "step,loss", "1,0.5"), 2),
    "one seed twice": (_one_seed_twice, 2),
    "half a line": (lambda place: lines(place / "a.csv", "step,loss,seed", "1,0.5,0", "2,0", end=""), 6),
    "a short line": (lambda place: lines(place / "a.csv", "step,loss,seed", "1,0.5,0", "2,0.25", "3,0.1,0"), 6),
    "no step column": (lambda place: lines(place / "a.csv", "epoch,loss,seed", "1,0.5,0", "2,0.4,0"), 2),
    "half a step": (lambda place: lines(place / "a.csv", "step,loss,seed", "1.5,0.5,0"), 6),
    "a word among numbers": (lambda place: lines(place / "a.csv", "step,loss,seed", "1,0.5,0", "2,x,0"), 6),
    "a step twice": (lambda place: lines(place / "a.csv", "step,loss,seed", "1,0.5,0", "1,0.6,0"), 2),
    "an empty file": (lambda place: lines(place / "a.csv", end=""), 2),
    "no text": (lambda place: lines(place / "a.csv").write_bytes(b"step,loss\n1,\xff\n"), 2),
    "an unfit name": (lambda place: lines(place / "a.csv", "step, loss,seed", "1,0.5,0"), 2),
    "a step below zero": (lambda place: lines(place / "a.csv", "step,loss,seed", "-1,0.5,0"), 2),
    "a file that is none": (lambda place: (place / "a.csv").mkdir(parents=True), 3),
    "no file of wandb": (lambda place: lines(place / "run-1.wandb", "a"), 2),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_its_neighbours_go_on(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, code = BAD[case]
    make(tmp_path / "bad")
    good = lines(tmp_path / "good.csv", "step,loss,seed", "1,0.5,7")
    capsys.readouterr()
    assert import_(tmp_path / "c", str(tmp_path / "bad"), str(good)) == code
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 2  # the fault, and how many were added
    assert str(tmp_path) in said[0] or "bad" in said[0] or "a.csv" in said[0] or "2.csv" in said[0]
    found, states = stored(tmp_path / "c")
    assert states["good", 7] == "done"
    assert found["good", 7] == {(1, "loss", "{}", "0.5")}
    assert {state for key, state in states.items() if key != ("good", 7)} <= {"failed" if code == 6 else "done"}


def test_a_missing_package_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event_file(tmp_path / "runs" / "x", 0)
    lines(tmp_path / "runs" / "a.csv", "step,loss,seed", "1,0.5,0")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert import_(tmp_path / "c", str(tmp_path / "runs")) == 5
    assert 'pip install "ablate[tensorboard]"' in capsys.readouterr().err
    assert stored(tmp_path / "c")[1] == {("a", 0): "done"}


def _sources(tmp_path: Path) -> Iterator[tuple[Path, Callable[[Path], list[Reading]]]]:
    yield event_file(tmp_path / "t", *range(20)), lambda file: read_tensorboard({file.parent: ("t", [file])})
    yield wandb_run(tmp_path / "w", {"seed": 0}), lambda file: read_wandb("w", file)
    rows = [f"{step},{1 / (step + 1)}" for step in range(20)]
    yield lines(tmp_path / "a.csv", "step,loss", *rows), lambda file: read_csv("a", file, "step", ["seed"])


def _read(full: FoundRun, file: Path, read: Callable[[Path], list[Reading]]) -> list[FoundRun]:
    """The runs of an altered file, which hold the first values of the whole one; none if it is refused."""
    try:
        found = read(file)
    except AblateError as error:
        found = [error]
    runs = [
        full._replace(scalars=[], damage=str(each)) if isinstance(each, AblateError) else each
        for each in found
        if isinstance(each, FoundRun | AblateError)
    ]
    for run in runs:
        assert run.scalars == full.scalars[: len(run.scalars)]
    return runs


def test_wherever_a_file_is_cut_or_altered_only_values_before_that_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for file, read in _sources(tmp_path):
        whole = file.read_bytes()
        (full,) = read(file)
        assert isinstance(full, FoundRun)
        assert (full.damage, full.failure) == (None, None)
        for at in rng.integers(1, len(whole), 60).tolist():
            file.write_bytes(whole[:at])
            for run in _read(full, file, read):
                assert run.damage or run.failure or len(run.scalars) < len(full.scalars)
            if file.suffix != ".csv":  # which has no checksums
                file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << int(rng.integers(8))]) + whole[at + 1 :])
                assert all(run.damage for run in _read(full, file, read))
