import errno
import os
from pathlib import Path

import pytest

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.store.files.layout import Layout

KEY = "0123456789abcdef" * 2


def test_every_path_of_the_wire_format(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    expected = {
        "grids/g.json": layout.grid_header("g"),
        "grids/g.trials.jsonl": layout.grid_trials("g"),
        "submissions/20260102T030405-0a1b2c/manifest.jsonl": layout.manifest("20260102T030405-0a1b2c"),
        "submissions/20260102T030405-0a1b2c/manifest.idx": layout.manifest_index("20260102T030405-0a1b2c"),
        f"trials/01/{KEY}/001/start.json": layout.start(KEY, 1),
        f"trials/01/{KEY}/012/end.json": layout.end(KEY, 12),
        f"trials/01/{KEY}/1000/heartbeat": layout.heartbeat(KEY, 1000),
        f"trials/01/{KEY}/001/log": layout.log(KEY, 1),
        f"trials/01/{KEY}/001/checkpoint": layout.checkpoint(KEY, 1),
        "spool": layout.spool,
        "store/live.duckdb": layout.live,
        "store/snapshot.duckdb": layout.snapshot,
        "store/ingest.lock": layout.ingest_lock,
    }
    assert {path.relative_to(tmp_path).as_posix() for path in expected.values()} == set(expected)


@pytest.mark.parametrize("name", ["", "../g", "a/b", ".hidden", "a\n", "ü"])
def test_a_name_cannot_leave_its_directory(tmp_path: Path, name: str) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(SpecError, match="a grid is named by"):
        layout.grid_header(name)
    with pytest.raises(SpecError, match="32 hexadecimal digits"):
        layout.trial(name)
    with pytest.raises(SpecError, match="a submission is named"):
        layout.submission(name)


def test_listings_hold_what_is_published_and_nothing_else(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for path in [
        layout.grid_header("b"),
        layout.grid_header("a.b"),
        layout.grid_trials("a.b"),
        layout.grids / "c.json.tmp.host.1.aa",
        layout.grids / "d.tmp.host.1.json",
        layout.manifest("20260102T030405-0a1b2c"),
        layout.submission("20260102T030406-0a1b2c") / "manifest.jsonl.tmp.host.1.aa",
        layout.start(KEY, 2),
        layout.start(KEY, 1000),
        layout.trial(KEY) / "notes" / "x",
        layout.trials / "01" / "readme" / "x",
        layout.spool / "a.parquet",
        layout.spool / "a.parquet.tmp.host.1.aa",
        layout.spool / "b.tmp.host.1.parquet",
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert layout.grid_names() == ["a.b", "b"]
    assert layout.submission_ids() == ["20260102T030405-0a1b2c"]
    assert list(layout.trial_keys()) == [KEY]
    assert layout.attempts(KEY) == [2, 1000]
    assert layout.shards() == [layout.spool / "a.parquet"]


def test_a_file_system_that_does_not_answer_is_a_problem_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr("ablate.store.files.atomic.PAUSES_S", (0,))
    monkeypatch.setattr(os, "scandir", stale)
    layout = Layout(tmp_path)
    lists = (layout.grid_names, layout.submission_ids, lambda: [*layout.trial_keys()], layout.shards)
    for listed in (*lists, lambda: layout.attempts(KEY)):
        with pytest.raises(EnvironmentProblem, match=r"cannot list .*Stale file handle"):
            listed()
