"""Manifests are whole before any work starts, and read back row by row."""

import json
import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from real_spec import real_spec
from toy_campaign import run_quietly, toy_grid
from toy_training import ToyTrial

from ablate.grid.errors import EnvironmentProblem, SpecError, StoreError
from ablate.runners.attempts.manifest import (
    Manifest,
    read_lines,
    submission_id,
    trial_lines,
    write_grid,
    write_submission,
)
from ablate.runners.cli.app import execute
from ablate.runners.planning.worklist import collect_cells, list_trials
from ablate.store.files.atomic import parse_object, read_json
from ablate.store.files.layout import Layout


def test_a_manifest_is_read_back_row_by_row_in_any_order(layout: Layout) -> None:
    lines = list(trial_lines(toy_grid()))
    for line in lines:
        trial = ToyTrial.model_validate(json.loads(json.dumps(line))["spec"])
        assert (trial.key, trial.seed) == (line["trial"], line["seed"])
        assert set(line) == {"trial", "cell", "seed", "grid", "label", "operator", "axes", "experiment", "spec"}
    submission = submission_id()
    write_submission(layout, submission, lines)
    manifest = Manifest(layout, submission)
    assert len(manifest) == len(lines)
    assert [manifest.line(row) for row in reversed(range(len(lines)))] == lines[::-1]
    assert [manifest.trial(row) for row in range(len(lines))] == [line["trial"] for line in lines]
    offsets = layout.manifest_index(submission).read_bytes()
    assert len(offsets) == 8 * len(lines)
    assert struct.unpack_from("<Q", offsets, 8)[0] == layout.manifest(submission).read_bytes().index(b"\n") + 1


def test_a_manifest_that_cannot_be_written_whole_does_not_appear(layout: Layout) -> None:
    def failing():  # type: ignore[no-untyped-def]
        yield from list(trial_lines(toy_grid()))[:2]
        raise OSError(28, "No space left on device")

    with pytest.raises(EnvironmentProblem, match="No space left"):
        write_submission(layout, submission_id(), failing())
    assert layout.submission_ids() == []


def test_a_damaged_row_is_refused_and_the_others_are_read(layout: Layout) -> None:
    submission = submission_id()
    write_submission(layout, submission, trial_lines(toy_grid()))
    path = layout.manifest(submission)
    data = bytearray(path.read_bytes())
    data[0] = ord("x")
    path.write_bytes(data)
    manifest = Manifest(layout, submission)
    for read in (manifest.line, manifest.trial):
        with pytest.raises(StoreError, match="row 0"):
            read(0)
    assert manifest.line(1)["seed"] == 0
    for damage in (b"", b"abc"):
        layout.manifest_index(submission).write_bytes(damage)
        with pytest.raises(StoreError, match="torn or altered"):
            Manifest(layout, submission)


def test_a_grid_that_has_not_changed_is_not_written_again(layout: Layout) -> None:
    grid = toy_grid()
    lines = list(trial_lines(grid))
    write_grid(layout, grid, lines)
    chosen = [parse_object(line, "a line") for line in read_lines(layout.grid_trials("toy"), [1, 4])]
    assert chosen == [lines[1], lines[4]]
    with pytest.raises(StoreError, match="ends before line 100"):
        list(read_lines(layout.grid_trials("toy"), [0, 99]))
    paths = (layout.grid_header("toy"), layout.grid_trials("toy"))
    before = [path.stat().st_ino for path in paths]
    write_grid(layout, grid, trial_lines(grid))
    assert [path.stat().st_ino for path in paths] == before
    changed = toy_grid(seeds=(0, 1, 2, 3))
    write_grid(layout, changed, trial_lines(changed))
    assert [path.stat().st_ino == inode for path, inode in zip(paths, before, strict=True)] == [False, False]
    assert read_json(paths[0]) == json.loads(json.dumps(changed.header()))
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole[: len(whole) // 2])
    write_grid(layout, changed, trial_lines(changed))
    assert paths[0].read_bytes() == whole


def test_a_grid_that_another_run_planned_anew_is_not_trained_under_the_wrong_name(layout: Layout) -> None:
    found = list_trials(layout, [toy_grid()], collect_cells([toy_grid()]), take=partial(write_grid, layout))
    lines = layout.grid_trials("toy").read_text(encoding="utf-8").splitlines()
    layout.grid_trials("toy").write_text("\n".join(lines[::-1]) + "\n", encoding="utf-8")
    with pytest.raises(StoreError, match=r"of grid 'toy' .* planned it anew"):
        list(found.lines(found.to_do))


def test_a_grid_of_another_version_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, root = tmp_path / "spec.py", tmp_path / "campaign"
    spec.write_text(real_spec("g", training="steps=2", seeds=1))
    run = ["run", str(spec), "--campaign", str(root), "--on", "inline"]
    assert execute(run) == 0
    path = Layout(root).grid_header("g")
    for version, says in ((99, "upgrade ablate"), (0, "read it with the ablate that wrote it")):
        path.write_text(json.dumps({**read_json(path), "schema": version}))
        before = path.read_bytes()
        for command in (run, *([name, "--campaign", str(root)] for name in ("status", "table"))):
            capsys.readouterr()
            assert execute(command) == 6
            (line,) = capsys.readouterr().err.strip().splitlines()
            assert f"{path} cannot be used: it has schema version {version}, and this ablate reads 1; {says}" in line
        assert path.read_bytes() == before
    path.write_text("torn")
    assert execute(run) == 0
    assert read_json(path)["schema"] == 1


@pytest.mark.parametrize("before", [None, "own"])
def test_a_variance_that_is_chosen_with_results_shows(layout: Layout, before: str | None) -> None:
    def write(variance: str) -> dict[str, Any]:
        grid = toy_grid("shared").changed(variance=variance)
        write_grid(layout, grid, trial_lines(grid))
        return read_json(layout.grid_header("shared"))

    run_quietly(layout.root, toy_grid("ended", seeds=(2,)))  # has trials of the other grid
    if before:
        write(before)
    for _ in range(2):
        header = write("shared")
        assert header["variance"] == "shared"
        assert header.get("earlier_variances") == ([before] if before else None)
    header = write("own")
    assert "variance" not in header
    assert header["earlier_variances"] == [*([before] if before else []), "shared"]


def test_a_variance_that_is_chosen_before_any_result_does_not_show(layout: Layout) -> None:
    run_quietly(layout.root, toy_grid("ended", seeds=(7,)))
    for variance in ("own", "shared"):
        grid = toy_grid("shared").changed(variance=variance)
        write_grid(layout, grid, trial_lines(grid))
    assert "earlier_variances" not in read_json(layout.grid_header("shared"))


def test_a_grid_has_one_variance() -> None:
    plain, shared = toy_grid(), toy_grid().changed(variance="shared")
    assert [each.key for each in plain.trials()] == [each.key for each in shared.trials()]
    assert shared.header() == {**plain.header(), "variance": "shared"}
    with pytest.raises(SpecError, match="shard"):
        plain.changed(variance="shard")
    with pytest.raises(SpecError, match="variance"):
        plain | shared
