"""A campaign that is copied by hard links, moved while it is used, or whose snapshot a notebook holds."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from toy_campaign import run_quietly, tables, toy_grid

from ablate.grid.errors import EnvironmentProblem, StoreError
from ablate.runners.monitoring.integrity import check_campaign
from ablate.store.analysis.judge import conclude
from ablate.store.campaign import Campaign
from ablate.store.database.connection import DatabaseBroken, DatabaseHeld, translate_error
from ablate.store.files.annotations import annotate
from ablate.store.files.attempts import Heartbeat
from ablate.store.files.layout import STORE_SCHEMA, Layout
from ablate.store.ingest import ingest as ingesting
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

TESTS = Path(__file__).parent.parent
HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"


@contextmanager
def held(database: Path) -> Iterator[None]:
    """Another process has `database` open for writing."""
    command = [sys.executable, "-c", HOLD, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield


def trained(root: Path) -> Path:
    run_quietly(root, toy_grid(seeds=(0, 1)))
    ingest(root)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_snapshot_that_a_notebook_holds_stops_no_command(tmp_path: Path) -> None:
    root = trained(tmp_path / "c")
    snapshot = Layout(root).snapshot
    with held(snapshot):
        with pytest.raises(DatabaseHeld, match="read_only=True") as caught:
            Store.open(root, refresh=False)
        assert str(snapshot) in str(caught.value)
        assert caught.value.exit_code == 5
        with Store.open(root) as store:
            assert store.progress("toy")["done"].sum() == 4
    with Store.open(root, conclude=conclude):  # nothing new is left to write
        pass
    for command in (["status", "--json"], ["sql", "FROM trial", "--json"]):
        with held(snapshot):
            answered = subprocess.run(
                [sys.executable, "-m", "ablate", *command, "--campaign", root], capture_output=True, text=True
            )
            assert answered.returncode == 0, answered.stderr
            assert "read_only=True" in answered.stderr
    with held(snapshot), held(Layout(root).live), pytest.raises(DatabaseHeld):
        Store.open(root)  # a database that somebody writes is not copied


def test_a_writer_in_the_same_process_is_named_as_one(tmp_path: Path) -> None:
    root = trained(tmp_path / "c")
    with duckdb.connect(str(Layout(root).snapshot)), pytest.raises(DatabaseHeld):
        Store.open(root)
    with duckdb.connect(str(Layout(root).snapshot), read_only=True), Store.open(root) as store:
        assert store.grids() == ["toy"]


def test_what_a_notebook_wrote_beside_the_snapshot_does_not_spoil_the_next(tmp_path: Path) -> None:
    root = trained(tmp_path / "c")
    layout = Layout(root)
    with duckdb.connect(str(layout.snapshot)) as notebook:
        notebook.execute("CREATE TABLE mine AS SELECT 1 AS a")
        assert Path(f"{layout.snapshot}.wal").exists()
        run_quietly(root, toy_grid(seeds=(0, 1, 2)))
        ingest(root)
        count = (
            "import sys, duckdb; c = duckdb.connect(sys.argv[1], read_only=True); print(c.sql('FROM trial').shape[0])"
        )
        command = [sys.executable, "-c", count, str(layout.snapshot)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "6\n"


def test_a_copy_by_hard_links_keeps_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trained(tmp_path / "c")
    attempt = next(root.glob("trials/*/*/001"))
    (attempt / "heartbeat").write_bytes(b" " * 97)
    annotate(Layout(root), [(None, "toy")], add=["good"], note="as planned")
    log = Path(f"{Layout(root).live}.wal")
    log.write_bytes(b"")
    copy = Path(shutil.copytree(root, tmp_path / "copy", copy_function=os.link))
    before = contents(copy)
    monkeypatch.setattr(ingesting, "LEAST", 2)
    run_quietly(root, toy_grid(seeds=(0, 1, 2)), land_every_s=0.01)
    annotate(Layout(root), [(None, "toy")], add=["better"], note="after all")
    tables(root)
    beat = Heartbeat(attempt / "heartbeat", every_s=0.01)
    beat.tell(1, 2, 0.5)
    beat.start()
    while not (attempt / "heartbeat").read_bytes().strip():
        time.sleep(0.01)
    beat.stop()
    rebuild(root)
    assert contents(copy) == before
    with Store.open(root) as store:
        assert store.progress("toy")["done"].sum() == 6
    original = contents(root)
    with Store.open(copy) as store:  # nor does the copy change what it came from
        assert store.progress("toy")["done"].sum() == 4
    rebuild(copy)
    assert contents(root) == original


def test_a_run_whose_campaign_is_moved_leaves_nothing_where_it_was(tmp_path: Path) -> None:
    root, moved = tmp_path / "c", tmp_path / "moved"
    request = {"root": str(root), "grid": {"step_s": 0.05, "steps": 10**6}, "workers": 2, "land": 0.02}
    command = [sys.executable, str(TESTS / "toy_run.py"), json.dumps(request)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        while not (Layout(root).snapshot.exists() and list(root.glob("trials/*/*/*/heartbeat"))):
            assert run.poll() is None
            time.sleep(0.05)
        root.rename(moved)
        _, told = run.communicate(timeout=300)
    assert not root.exists(), contents(root)
    assert "moved" in told


def test_a_logged_run_writes_nothing_where_its_campaign_was(tmp_path: Path) -> None:
    root = tmp_path / "c"
    campaign = Campaign(root)
    run = campaign.start("a", label="x", seed=0)
    run.log(0, loss=1.0)
    root.rename(tmp_path / "moved")
    for write in (run.flush, lambda: annotate(Layout(root), [(None, "a")], note="x"), lambda: ingest(root)):
        with pytest.raises(EnvironmentProblem, match="moved or removed"):
            write()
    assert not root.exists()
    Campaign(root).start("a", label="y", seed=0).finish()  # a new one may be made there
    assert Campaign(root).trials()["label"].to_list() == ["y"]
    shutil.rmtree(root)
    (tmp_path / "moved").rename(root)
    run.finish()
    assert Campaign(root).trials()["label"].to_list() == ["x"]


def test_a_rebuild_is_advised_only_where_it_helps(tmp_path: Path) -> None:
    root = trained(tmp_path / "c")
    path = Layout(root).live
    for text in ("Too many open files", "Input/output error", "Is a directory", "No space left on device"):
        error = duckdb.IOException(f'IO Error: Could not read from file "{path}": {text}')
        assert type(translate_error(error, path)) is EnvironmentProblem, text
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET value = $next WHERE name = 'store_schema'", {"next": str(STORE_SCHEMA + 1)})
    with pytest.raises(StoreError) as newer:
        ingest(root)
    assert type(newer.value) is StoreError
    assert "ablate check --rebuild" not in str(newer.value)
    assert {each.remedy for each in check_campaign(root)} == {"upgrade ablate"}
    path.write_bytes(b"not a database")
    with pytest.raises(DatabaseBroken, match="ablate check --rebuild"):
        ingest(root)
    rebuild(root)
    assert check_campaign(root) == []
