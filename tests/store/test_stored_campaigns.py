"""Campaigns that earlier versions wrote are read by this one, row by row as they were.

`stored/files_<version>/campaign` is a campaign as that version of the files had it, and `rows.json` what the store said
of it then. They are never made again: a new version of the files gets a folder of its own beside them. Where a view
says something else on purpose, that row of `rows.json` follows, and the changelog says so.
"""

import json
import logging
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ablate.grid.errors import StoreError
from ablate.store.files.layout import FILE_SCHEMA, STORE_SCHEMA, Layout
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_lock import ingest_lock
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

STORED = Path(__file__).parent / "stored"
WRITTEN = {"files_1": "9436e7f48470f5d1c2cbe27503f4e31d"}
"""Hash of the files of each stored campaign."""

# columns of one database only: when it read a file, and the file's place on the disk
_OF_THE_MOMENT = ("alive", "signature", "found", "ingested", "number", "shard")
_TABLES = (
    *(
        "grid",
        "axis",
        "grid_trial",
        "planned",
        "trial",
        "attempt",
        "metric",
        "evaluation",
        "item",
        "probe",
        "evaluated",
    ),
    *("recorded", "shard", "bad_shard", "bad_record"),
    *("v_final", "v_cell_stats", "v_pair", "v_failure", "v_progress", "v_evaluated", "v_cost"),
)


def rows(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of each table and view, with every value as JSON."""
    found = {}
    for table in _TABLES:
        texts = store.sql(f"SELECT to_json(r)::VARCHAR AS row FROM {table} r")["row"].to_list()
        number = _rounded if table.startswith("v_") else float
        read = [json.loads(text, parse_constant=str, parse_float=number) for text in texts]
        each = [{k: v for k, v in row.items() if k not in _OF_THE_MOMENT} for row in read]
        found[table] = sorted(each, key=lambda row: json.dumps(row, sort_keys=True))
    return found


def _rounded(text: str) -> float:
    """A sum over rows in any order."""
    return float(f"{float(text):.12g}")


def tree_hash(root: Path) -> str:
    """Return a hash of the names and bytes of all files below `root`."""
    digest = blake2b(digest_size=16)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(root).as_posix()} {blake2b(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def databases(root: Path) -> list[Path]:
    """The two files of a campaign's store."""
    return [Layout(root).live, Layout(root).snapshot]


@pytest.fixture(params=sorted(WRITTEN))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A stored campaign, copied."""
    return Path(shutil.copytree(STORED / request.param / "campaign", tmp_path / request.param))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The newest stored campaign with a database of an older version, that has other tables and a log to replay."""
    root = Path(shutil.copytree(STORED / f"files_{FILE_SCHEMA}" / "campaign", tmp_path / "old"))
    (root / "store").mkdir()
    for path in databases(root):
        with duckdb.connect(str(path)) as connection:
            connection.execute("CREATE TABLE meta (name VARCHAR, value VARCHAR); CREATE TABLE trial (nothing INTEGER)")
            connection.execute("INSERT INTO meta VALUES ('store_schema', $v)", {"v": str(STORE_SCHEMA - 1)})
    Path(f"{Layout(root).live}.wal").write_bytes(b"")
    return root


def test_every_version_of_the_files_has_a_stored_campaign() -> None:
    assert sorted(WRITTEN) == sorted(path.name for path in STORED.iterdir())
    assert f"files_{FILE_SCHEMA}" in WRITTEN


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_stored_campaign_is_as_it_was_written(name: str) -> None:
    assert tree_hash(STORED / name / "campaign") == WRITTEN[name], "stored campaigns are never made again or edited"


def test_todays_code_makes_the_very_rows_from_yesterdays_files(stored: Path) -> None:
    expected = json.loads((STORED / stored.name / "rows.json").read_text(encoding="utf-8"))
    assert sum(map(len, expected.values())) > 100
    with Store.open(stored) as store:
        found, first = rows(store), store.content_hash()
    for table, before in expected.items():  # a column that is new by now has no old value
        names = set(before[0]) if before else set()
        assert [{k: v for k, v in row.items() if k in names} for row in found[table]] == before, table
    rebuild(stored)
    with Store.open(stored, refresh=False) as store:
        assert (rows(store), store.content_hash()) == (found, first)


def test_a_campaign_of_an_older_version_opens_and_one_line_says_that_its_store_is_made_again(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(old) as store:
        assert store.stale is None
        upgraded = rows(store)
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "written by an older ablate; it is made again from the campaign's files" in line.getMessage()
    shutil.rmtree(old / "store")
    with Store.open(old) as store:
        assert rows(store) == upgraded
    assert len(caplog.records) == 1


def test_an_upgrade_that_was_killed_is_finished_by_the_next_command(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("ablate.store.ingest.ingest.ingest_into", _killed)
        with pytest.raises(KeyboardInterrupt):
            Store.open(old)
    with pytest.raises(StoreError, match="older ablate"):  # the old snapshot is all there is
        Store.open(old, refresh=False)
    with Store.open(old) as store:
        assert store.sql("SELECT count(*) AS n FROM trial")["n"].item() == 4


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_snapshot_of_an_older_version_is_not_served_while_another_process_makes_the_new_one(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def busy_first(layout: Layout, *, wait: bool = True, **_: Any) -> Any:
        asked.append(wait)
        if not wait:
            with ingest_lock(layout, wait=True):
                return ingest(layout, wait=False)
        return ingest(layout, wait=True)

    monkeypatch.setattr("ablate.store.store.ingest", busy_first)
    with Store.open(old) as store:
        assert store.stale is None
    assert asked == [False, True]


def test_a_newer_store_is_refused_and_left_alone(old: Path) -> None:
    for path in databases(old):
        with duckdb.connect(str(path)) as connection:
            connection.execute("UPDATE meta SET value = $v", {"v": str(STORE_SCHEMA + 1)})
    before = [path.read_bytes() for path in databases(old)]
    message = rf"newer ablate \(store version {STORE_SCHEMA + 1}; this one reads {STORE_SCHEMA}\); upgrade ablate"
    for refresh in (True, False):
        with pytest.raises(StoreError, match=message):
            Store.open(old, refresh=refresh)
    assert [path.read_bytes() for path in databases(old)] == before


def test_without_a_refresh_an_older_store_says_what_to_do(old: Path) -> None:
    with pytest.raises(StoreError, match=r"older ablate .*make it again .*`ablate check --rebuild`"):
        Store.open(old, refresh=False)
    rebuild(old)
    Store.open(old, refresh=False).close()
