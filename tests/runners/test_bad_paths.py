"""A path that cannot be read or written is named, and stops nothing but its own trial."""

import errno
import io
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_campaign import keys, run_quietly, tables, toy_grid

from ablate.grid import Grid
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.attempts.attempt import Attempt
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.checkpoint import read_checkpoint
from ablate.runners.execution import Inline, Local
from ablate.runners.execution.run import run_campaign
from ablate.runners.monitoring.integrity import check_campaign
from ablate.store.files.atomic import read_json, write_json
from ablate.store.files.layout import Layout
from ablate.store.files.shards import content_hash
from ablate.store.files.trial_state import trial_state
from ablate.training.trial import Trial

Make = Callable[[Path], object]


def make_file(path: Path) -> None:
    path.write_text("x")


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "x").touch()


def make_loop(path: Path) -> None:
    path.symlink_to(path)


def make_dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


PLACES: dict[str, Callable[[Layout, str], Path]] = {
    "fan": lambda layout, key: layout.trial(key).parent,
    "trial": lambda layout, key: layout.trial(key),
    "attempt": lambda layout, key: layout.attempt(key, 1),
    "checkpoint": lambda layout, key: layout.checkpoint(key, 1),
    "artefacts": lambda layout, key: layout.attempt(key, 1) / "artefacts",
    "evaluations": lambda layout, key: layout.evaluations(key, 1),
    "fan of shards": lambda layout, _: layout.shards()[0].parent,
    "start": lambda layout, key: layout.start(key, 1),
    "end": lambda layout, key: layout.end(key, 1),
    "heartbeat": lambda layout, key: layout.heartbeat(key, 1),
    "log": lambda layout, key: layout.log(key, 1),
    "shard": lambda layout, _: layout.shards()[-1],
    "notes": lambda layout, _: layout.root / "notes.jsonl",
    "header": lambda layout, _: layout.grid_header("other"),
    "manifest": lambda layout, _: layout.manifest(layout.submission_ids()[0]),
}
"""Paths of a trial or of a campaign, by what they should be: directories first, then files."""
FOLDERS, FILES = [*PLACES][:7], [*PLACES][7:]
BAD: list[tuple[Make, list[str]]] = [
    (make_file, FOLDERS),
    (make_directory, FILES),
    (make_loop, [*PLACES]),
    (make_dangling, FOLDERS[:2]),
]
SEEDS = range(12)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid has been trained, and another one is there."""
    root = tmp_path_factory.mktemp("bad") / "c"
    run_quietly(root, toy_grid("other", seeds=[99], steps=2))
    run_quietly(root, toy_grid(seeds=SEEDS, steps=2))
    tables(root)
    return root


def one_of_each_fan(layout: Layout, grid: Grid) -> list[str]:
    """Keys of finished trials, no two of which have a directory above them in common."""
    return [*{layout.trial(planned.trial.key).parent: planned.trial.key for planned in grid.trials()}.values()]


@pytest.mark.parametrize(("make", "names"), BAD)
def test_bad_paths_are_named_and_all_other_trials_go_on(
    tmp_path: Path, trained: Path, make: Make, names: list[str], ablate: Callable[..., Any]
) -> None:
    root = tmp_path / "c"
    shutil.copytree(trained, root)
    layout = Layout(root)
    hit = dict(zip(names, one_of_each_fan(layout, toy_grid(seeds=SEEDS, steps=2)), strict=False))
    assert len(hit) == len(names)
    places = {name: PLACES[name](layout, key) for name, key in hit.items()}
    for place in places.values():
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        make(place)

    grid = toy_grid(seeds=range(15), steps=2)
    assert run_quietly(root, grid).stopped == 0
    fans = {layout.trial(key).parent for key in hit.values()}
    others = {planned.trial.key for planned in grid.trials()}
    others = {key for key in others if layout.trial(key).parent not in fans}
    assert {trial_state(layout, key).state for key in others} == {"done"}

    damages = check_campaign(root)
    for place in places.values():
        bad = place.relative_to(root).as_posix()
        assert any(damage.file == bad or bad in damage.problem for damage in damages), bad
    for command in (["status"], ["status", "--failures"], *([] if "notes" in names else [["tag", "seed=14", "+x"]])):
        ablate(*command, "--campaign", root)
    measured = {key for key, *_ in tables(root)["metric"]}
    lost = {key for key in others if "shard" in names or "fan of shards" in names}
    assert measured >= others - lost
    new = {planned.trial.key for planned in toy_grid(seeds=[12, 13, 14], steps=2).trials()}
    assert measured >= {key for key in new if layout.trial(key).parent not in fans}


@pytest.mark.parametrize("call", ["scandir", "read"])
def test_an_error_of_the_disk_under_one_trial_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    root = tmp_path / "c"
    run_quietly(root, toy_grid(seeds=[0]))
    layout, hit = Layout(root), keys(root)[0]
    plain_scan, plain_read = os.scandir, Path.read_bytes

    def refuse(path: Any) -> None:
        if hit in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def scandir(path: Any = ".") -> Any:
        refuse(path)
        return plain_scan(path)

    def read_bytes(path: Path) -> bytes:
        refuse(path)
        return plain_read(path)

    monkeypatch.setattr(os, "scandir", scandir) if call == "scandir" else None
    monkeypatch.setattr(Path, "read_bytes", read_bytes) if call == "read" else None
    result = run_quietly(root, toy_grid(seeds=[0, 1]))
    assert (result.done, result.failed, result.stopped, result.skipped) == (2, 1, 0, 1)
    assert any(hit in damage.file for damage in check_campaign(root))
    monkeypatch.undo()
    assert run_quietly(root, toy_grid(seeds=[0, 1])).skipped == 4  # its result is still there
    assert layout.attempts(hit) == [1]


def test_a_full_disk_is_not_the_fault_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "c" / "trials" / "x"))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(EnvironmentProblem):
        run_quietly(tmp_path / "c", toy_grid(seeds=[0]))


@pytest.mark.parametrize("machine", [Inline, Local])
def test_an_attempt_that_is_deleted_while_it_trains_begins_again(tmp_path: Path, machine: Any) -> None:
    result = run_quietly(tmp_path / "c", toy_grid(seeds=[0, 1, 2], trained_by="toy_faults:deleting"), machine())
    assert (result.done, result.failed, result.stopped) == (6, 0, 0)
    assert len(list((tmp_path / "c").rglob("*.deleted"))) == 2


def interrupted(root: Path, tiny: Trial, monkeypatch: pytest.MonkeyPatch) -> tuple[Grid, list[Path]]:
    """Stop a run after nine steps; its grid and its two checkpoints."""
    base = tiny.changed(execution={"device": "cpu", "checkpoint_s": 0.0})
    grid = Grid(name="one", base=base, axes=[], seeds=[3])
    plain = Attempt.progress

    def progress(self: Attempt, step: int, steps: int | None, loss: float) -> None:
        plain(self, step, steps, loss)
        if step == 9:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Attempt, "progress", progress)
        assert run_campaign(root, [grid], Inline(), RunRequest(progress=False)).interrupted
    (key,) = keys(root)
    return grid, sorted(Layout(root).checkpoint(key, 1).glob("*.pt"))


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Replace a checkpoint by a whole file with another state."""
    saved = read_checkpoint(path)
    change(saved.state)
    sink = io.BytesIO()
    torch.save({"schema": 1, "trial": saved.trial, "step": saved.step, "state": saved.state}, sink)
    path.unlink()
    path.with_name(f"step-{saved.step:09d}.{content_hash(sink.getvalue())}.pt").write_bytes(sink.getvalue())


def widen(state: dict[str, Any]) -> None:
    name = next(iter(state["model"]))
    state["model"][name] = torch.zeros(3, 5, 7)


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "shapes": widen,
    "a missing weight": lambda state: state["model"].pop(next(iter(state["model"]))),
    "no optimiser": lambda state: state.pop("optimiser"),
    "no model": lambda state: state.pop("model"),
    "other kinds": lambda state: state.update(model=7),
    "rows that are none": lambda state: state.update(rows="[1, 2]"),
    "no JSON": lambda state: state.update(wrote="{"),
}


@pytest.mark.parametrize("forgery", [*FORGERIES, "a directory"])
def test_a_checkpoint_that_does_not_fit_is_left_for_the_one_before(
    tmp_path: Path, tiny: Trial, monkeypatch: pytest.MonkeyPatch, forgery: str
) -> None:
    grid, (before, newest) = interrupted(tmp_path / "c", tiny, monkeypatch)
    step = int(before.name[5:14])
    if forgery == "a directory":
        newest.unlink()
        newest.mkdir()
    else:
        forge(newest, FORGERIES[forgery])
    result = run_campaign(tmp_path / "c", [grid], Inline(), RunRequest(progress=False))
    assert (result.done, result.failed) == (1, 0)
    (key,) = keys(tmp_path / "c")
    found = trial_state(Layout(tmp_path / "c"), key).result
    assert found is not None
    assert found.start["resumed_from"] == {"attempt": 1, "step": step}
    run_campaign(tmp_path / "whole", [grid], Inline(), RunRequest(progress=False))
    for table in ("metric", "evaluation"):
        assert tables(tmp_path / "c")[table] == tables(tmp_path / "whole")[table]
    assert [damage for damage in check_campaign(tmp_path / "c") if "promises" in damage.problem] == []


@pytest.mark.parametrize("change", [("rows", 1), ("rows", -1), ("step", 1), ("step", -3)])
def test_records_are_compared_with_what_their_shards_hold(tmp_path: Path, change: tuple[str, int]) -> None:
    root, deaths = tmp_path / "c", tmp_path / "deaths"
    deaths.write_text("xx")
    run_quietly(root, toy_grid(seeds=[0, 1], fates=["ok", "dies"], checkpoint_s=0.0, deaths=str(deaths)), Local(2))
    tables(root)
    assert check_campaign(root) == []
    key = keys(root)[0]
    path = Layout(root).end(key, max(Layout(root).attempts(key)))
    record = read_json(path)
    name, by = change
    record["wrote"]["metric"][name] += by
    write_json(path, record)
    assert [damage.file for damage in check_campaign(root)] == [path.relative_to(root).as_posix()]
