"""Effects of a bad disk, a kill and a full disk on a campaign."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from synthetic import Campaign

from ablate.grid.errors import StoreError
from ablate.store.database.queries import damage
from ablate.store.files.atomic import read_json, write_atomic, write_json
from ablate.store.files.shards import ShardInfo
from ablate.store.files.trial_state import trial_state
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.ingest_shards import ShardIngest
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

OpenStore = Callable[..., Store]


def rows(store: Store) -> dict[str, int]:
    return {
        table: store.sql(f"SELECT count(*) AS n FROM {table}")["n"].item()
        for table in ("metric", "evaluation", "item", "probe")
    }


def test_a_byte_that_flips_after_the_ingest_is_found_by_the_next_one(campaign: Campaign, opened: OpenStore) -> None:
    """A shard of one table after the other is damaged; they are brought again together."""
    served, sound = rows(opened(campaign.root)), opened(campaign.root).content_hash()
    good: dict[Path, bytes] = {}
    for table in list(served):
        path = next(path for path in campaign.layout.shards() if f"-{table}." in path.name)
        data = good[path] = path.read_bytes()
        path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        assert ingest(campaign.root).bad_shards == 1
        served[table] = 0
        store = opened(campaign.root)
        assert rows(store) == served
        assert sorted(store.bad_shards()["file"]) == sorted(path.name for path in good)
    assert all("do not have the hash in its name" in reason for reason in store.bad_shards()["reason"])
    damaged = store.content_hash()
    rebuild(campaign.root)
    assert opened(campaign.root).content_hash() == damaged
    for path, data in good.items():
        write_atomic(path, data)
    assert ingest(campaign.root).shards == 4
    assert opened(campaign.root).content_hash() == sound


def test_a_twin_serves_when_the_shard_that_counted_is_damaged(campaign: Campaign, opened: OpenStore) -> None:
    path = campaign.layout.shards()[0]
    twin = path.with_name(path.name.replace("-0000-000000-", "-0007-000000-"))
    write_atomic(twin, path.read_bytes())
    whole = rows(opened(campaign.root))
    path.write_bytes(b"")
    store = opened(campaign.root)
    assert rows(store) == whole
    assert store.bad_shards()["file"].to_list() == [path.name]


def test_a_record_that_is_damaged_after_it_was_read_is_found_by_the_next_ingest(
    campaign: Campaign, opened: OpenStore
) -> None:
    key = campaign.line("softmax · 8", 0)["trial"]
    start, end = campaign.layout.start(key, 1), campaign.layout.end(key, 1)
    write_json(start, {**read_json(start), "pid": 2**22 + 1, "pid_started": 1.0})  # a process that is gone
    sound = opened(campaign.root).content_hash()
    for path in (start, end):
        good = path.read_bytes()
        path.write_bytes(good[:-5])
        store = opened(campaign.root)
        asked = "SELECT state FROM trial WHERE trial = $key"
        assert store.sql(asked, {"key": key})["state"].item() == ("pending" if path is start else "lost")
        assert store.bad_records()["file"].to_list() == [path.relative_to(campaign.root).as_posix()]
        write_atomic(path, good)
        assert opened(campaign.root).content_hash() == sound


def test_of_many_damaged_files_the_first_are_told_and_the_others_counted() -> None:
    files = pl.DataFrame({"file": [f"{n:02}" for n in range(60)], "reason": ["torn"] * 60})

    def sql(query: str, _: Mapping[str, Any]) -> pl.DataFrame:
        return files if "bad_record" in query else pl.DataFrame()

    told = damage(sql, None)
    assert told[:2] == ["the record 00 cannot be read: torn", "the record 01 cannot be read: torn"]
    assert told[50:] == ["10 files more cannot be read; `ablate sql 'from bad_record'` lists all"]


def test_a_directory_or_a_file_in_the_wrong_place_is_one_bad_record(campaign: Campaign, opened: OpenStore) -> None:
    whole = rows(opened(campaign.root))
    first, second = campaign.line("softmax · 8", 0)["trial"], campaign.line("softmax · 8", 1)["trial"]
    start = campaign.layout.start(first, 1)
    start.unlink()
    start.mkdir()
    campaign.layout.attempt(second, 2).write_text("in the place of a directory")
    store = opened(campaign.root)
    assert rows(store) == whole
    reasons = store.bad_records()["reason"].to_list()
    assert len(reasons) == 2
    assert all("must be a file" in reason for reason in reasons)
    assert trial_state(campaign.layout, first).state == "pending"
    assert trial_state(campaign.layout, second).state == "done"


def test_a_torn_shard_is_quarantined_until_it_is_whole(campaign: Campaign, opened: OpenStore) -> None:
    path = campaign.layout.shards()[0]
    good = path.read_bytes()
    for kept in (0, -1):
        path.write_bytes(good[:kept])
        assert ingest(campaign.root).bad_shards == 1
        assert ingest(campaign.root) == Ingested()  # said once, kept until it changes
        write_atomic(path, good)
        assert ingest(campaign.root).bad_shards == 0
        assert opened(campaign.root).bad_shards().is_empty()


def test_a_shard_delivered_twice_counts_once(campaign: Campaign, opened: OpenStore) -> None:
    before = rows(opened(campaign.root))
    path = campaign.layout.shards()[0]
    write_atomic(path, path.read_bytes())  # the same name again: nothing happens
    assert replace(ingest(campaign.root), published=False) == Ingested()
    twin = path.with_name(path.name.replace("-0000-000000-", "-0007-000000-"))
    write_atomic(twin, path.read_bytes())
    assert ingest(campaign.root).bad_shards == 1
    store = opened(campaign.root)
    assert rows(store) == before
    assert "whose rows count already" in store.bad_shards()["reason"].item()


def test_a_shard_that_the_engine_refuses_does_not_take_its_batch_along(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = campaign.layout.shards()[0]
    data, times = gone.read_bytes(), (gone.stat().st_atime_ns, gone.stat().st_mtime_ns)

    def verified_then_gone(self: ShardIngest, path: Path, known: set[str]) -> ShardInfo | None:
        info = original(self, path, known)
        if path == gone:
            path.unlink()
        return info

    original = ShardIngest._verify
    with monkeypatch.context() as patched:
        patched.setattr(ShardIngest, "_verify", verified_then_gone)
        found = ingest(campaign.root)
    assert (found.shards, found.bad_shards) == (3, 1)
    assert "the engine cannot read it" in opened(campaign.root, refresh=False).bad_shards()["reason"].item()
    gone.write_bytes(data)
    os.utime(gone, ns=times)
    found = ingest(campaign.root)
    assert (found.shards, found.bad_shards) == (1, 0)


@pytest.mark.parametrize(
    "error",
    [
        duckdb.IOException("IO Error: Corrupt database file: computed checksum 7 does not match stored checksum 8"),
        duckdb.FatalException("FATAL Error: database has been invalidated"),
        duckdb.InternalException("INTERNAL Error: Failed to load metadata pointer"),
    ],
)
def test_a_damaged_database_is_named_and_no_shard_is_blamed_for_it(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch, error: duckdb.Error
) -> None:
    def fails(*_: Any) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ShardIngest, "_insert_together", fails)
        with pytest.raises(StoreError, match=r"live\.duckdb cannot be used .*`ablate check --rebuild`"):
            ingest(campaign.root)
    found = ingest(campaign.root)
    assert (found.shards, found.bad_shards) == (4, 0)
    assert opened(campaign.root, refresh=False).bad_shards().is_empty()


ABOUT_TO_DIE = """
import json, os, signal, sys
from pathlib import Path
import ablate.store.ingest.ingest_shards
from ablate.store.database.connection import _empty
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import rebuild

_empty()    # made once in a process, so that kills meet what comes after it
summarise = ablate.store.ingest.ingest_shards.ShardIngest._summarise

def dies_inside(root, batch):
    calls = 0
    def dying(self, table, first):
        nonlocal calls
        calls += 1
        if calls == batch:
            os.kill(os.getpid(), signal.SIGKILL)    # rows are inserted, the ledger is not
        summarise(self, table, first)
    ablate.store.ingest.ingest_shards.BATCH_ROWS = 1
    ablate.store.ingest.ingest_shards.ShardIngest._summarise = dying
    ingest(Path(root))

def rebuilds_for_ever(root):
    while True:
        rebuild(Path(root))

for line in sys.stdin:
    does, *arguments = json.loads(line)
    pid = os.fork()
    if pid == 0:
        try:
            globals()[does](*arguments)
        finally:
            os._exit(1)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
"""A process that forks one after another that will be killed, so that no interpreter has to start for each."""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", ABOUT_TO_DIE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as found:
        yield found
        found.kill()


def begin(forks: subprocess.Popen[str], *what: object) -> int:
    """The pid of the next process, which does that."""
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(f"{json.dumps(what, default=str)}\n")
    forks.stdin.flush()
    return int(forks.stdout.readline())


def ended(forks: subprocess.Popen[str]) -> int:
    """The exit code of the last one, once it has ended."""
    assert forks.stdout is not None
    return int(forks.stdout.readline())


@pytest.mark.parametrize("batch", [3])
def test_a_kill_inside_a_transaction_loses_and_doubles_nothing(
    campaign: Campaign, opened: OpenStore, forks: subprocess.Popen[str], batch: int
) -> None:
    begin(forks, "dies_inside", campaign.root, batch)
    assert ended(forks) == -signal.SIGKILL
    assert ingest(campaign.root).shards == 4 - (batch - 1)
    interrupted = opened(campaign.root).content_hash()
    rebuild(campaign.root)
    assert opened(campaign.root).content_hash() == interrupted


def test_a_kill_at_any_moment_of_a_rebuild_leaves_a_store_that_goes_on(
    campaign: Campaign, opened: OpenStore, forks: subprocess.Popen[str]
) -> None:
    whole = opened(campaign.root).content_hash()
    for delay in (0.0, 0.05, 0.1, 0.15, 0.2):
        pid = begin(forks, "rebuilds_for_ever", campaign.root)
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
        assert ended(forks) == -signal.SIGKILL
        assert opened(campaign.root).content_hash() == whole
        assert not [path for path in campaign.layout.store.iterdir() if ".tmp." in path.name]


def test_an_ingest_that_ends_between_attempts_and_states_is_made_up_for(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(connection: duckdb.DuckDBPyConnection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ablate.store.ingest.ingest_records.derive_trials", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest(campaign.root)
    ingest(campaign.root)
    with Store.open(campaign.root, refresh=False) as opened:
        found = opened.sql("SELECT state, count(*) FROM trial GROUP BY ALL ORDER BY ALL").rows()
    rebuild(campaign.root)
    with Store.open(campaign.root, refresh=False) as opened:
        assert found == opened.sql("SELECT state, count(*) FROM trial GROUP BY ALL ORDER BY ALL").rows()
    assert "done" in dict(found)
