"""Clocks that differ, times that are coarse, listings that are late, and files of another version."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import Campaign

from ablate.store.database.connection import open_live
from ablate.store.files import layout as layouts
from ablate.store.files.atomic import write_atomic
from ablate.store.files.shards import TABLES, encode_shard
from ablate.store.ingest.ingest import ingest, ingest_into
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

OpenStore = Callable[..., Store]


def content(campaign: Campaign, opened: OpenStore) -> str:
    return opened(campaign.root, refresh=False).content_hash()


def test_files_from_the_past_and_from_the_future_are_read_once(campaign: Campaign, opened: OpenStore) -> None:
    ingest(campaign.root)
    whole = content(campaign, opened)
    files = [path for path in campaign.root.rglob("*") if path.is_file() and path.parent != campaign.layout.store]
    for number, path in enumerate(files):
        os.utime(path, (0, 0) if number % 2 else (4e9, 4e9))
    found = ingest(campaign.root)
    assert (found.rows, found.shards, found.bad_shards, found.bad_records) == (0, 0, 0, 0)
    assert content(campaign, opened) == whole
    assert ingest(campaign.root) == Ingested()
    rebuild(campaign.root)
    assert content(campaign, opened) == whole


def test_a_shard_that_came_whole_in_the_second_in_which_it_was_torn_is_served(
    campaign: Campaign, opened: OpenStore
) -> None:
    path = campaign.layout.shards()[0]
    good, second = path.read_bytes(), 1_790_000_000
    path.write_bytes(good[:-1] + b"\0")
    os.utime(path, (second, second))
    before = path.stat()
    assert ingest(campaign.root).bad_shards == 1
    with path.open("r+b") as file:
        file.write(good)
    os.utime(path, (second, second))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert ingest(campaign.root).shards == 1
    assert opened(campaign.root).bad_shards().is_empty()


@pytest.mark.parametrize("shift_s", [-1e6, 1e6])
def test_readers_see_what_landed_whatever_the_time_of_the_last_snapshot(
    campaign: Campaign, opened: OpenStore, shift_s: float
) -> None:
    path = campaign.layout.shards()[0]
    late = path.rename(campaign.root / path.name)
    ingest(campaign.root)
    about = campaign.layout.snapshot.stat()
    late.rename(path)
    with open_live(campaign.layout.live) as connection:  # as if it was killed before it could publish
        assert ingest_into(campaign.layout, connection).shards == 1
    os.utime(campaign.layout.snapshot, ns=(about.st_atime_ns, about.st_mtime_ns + round(shift_s * 1e9)))
    assert ingest(campaign.root).published
    assert opened(campaign.root, refresh=False).sql("SELECT count(*) AS n FROM shard")["n"].item() == 4
    assert ingest(campaign.root) == Ingested()


def test_a_shard_that_cannot_be_read_for_a_while_is_said_once_and_tried_again(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, plain = campaign.layout.shards()[0], Path.read_bytes

    def refused(self: Path) -> bytes:
        if self == away:
            raise OSError(5, "Input/output error")
        return plain(self)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refused)
        assert ingest(campaign.root).bad_shards == 1
        assert "it cannot be read (Input/output error)" in opened(campaign.root).bad_shards()["reason"].item()
        assert ingest(campaign.root) == Ingested()
    assert ingest(campaign.root).shards == 1
    assert opened(campaign.root).bad_shards().is_empty()


def test_whatever_a_late_listing_leaves_out_is_in_once_it_is_listed(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, chance = layouts._names, random.Random(3)

    def late(directory: Path, *unlisted: object) -> list[str]:
        return [name for name in plain(directory, *unlisted) if chance.random() < 0.7]

    for _ in range(4):
        with monkeypatch.context() as patched:
            patched.setattr(layouts, "_names", late)
            ingest(campaign.root)
        with Store.open(campaign.root, refresh=False) as store:
            promised = "SELECT (SELECT sum(rows) FROM shard) AS promised"
            counted = " + ".join(f"(SELECT count(*) FROM {table})" for table in TABLES)
            row = store.sql(f"{promised}, {counted} AS n").row(0)
            assert (row[0] or 0) == row[1]
    ingest(campaign.root)
    found = content(campaign, opened)
    rebuild(campaign.root)
    assert content(campaign, opened) == found


def test_what_is_listed_and_gone_stops_nothing(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(campaign.root)
    plain, gone = layouts._names, "20260102T030405-0a1b2c"
    ghosts = {
        "spool": f"{gone}-0000-000000-metric.{'ab' * 16}.parquet",
        "grids": "ghost.json",
        "submissions": gone,
        "trials": "ab",
        "ab": "ab" * 16,
        "ab" * 16: "001",
    }

    def stale(directory: Path | str, *unlisted: object) -> list[str]:
        name = Path(directory).name
        return [*plain(directory, *unlisted), *([ghosts[name]] if name in ghosts else [])]

    before = content(campaign, opened)
    with monkeypatch.context() as patched:
        patched.setattr(layouts, "_names", stale)
        ingest(campaign.root)
        found = opened(campaign.root)
        assert found.bad_shards()["file"].to_list() == [ghosts["spool"]]
        assert {file.split(".")[0] for file in found.bad_records()["file"]} == {"grids/ghost"}
    ingest(campaign.root)
    assert content(campaign, opened) == before


def test_what_is_listed_twice_and_what_lies_at_two_places_counts_once(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(campaign.root)
    before, plain = content(campaign, opened), layouts._names
    key = next(campaign.layout.trial_keys())
    shutil.copytree(campaign.layout.attempt(key, 1), campaign.layout.trial(key) / "0001")
    elsewhere = "00" if key[:2] != "00" else "01"
    shutil.copytree(campaign.layout.trial(key), campaign.layout.trials / elsewhere / key)
    end = campaign.layout.end(key, 1)
    os.utime(end, (end.stat().st_mtime - 5,) * 2)  # it is read again
    with monkeypatch.context() as patched:
        patched.setattr(layouts, "_names", lambda *given: [*plain(*given)] * 2)
        assert len(list(campaign.layout.every_attempt())) == len(set(campaign.layout.every_attempt()))
        assert ingest(campaign.root).attempts == 1
        assert ingest(campaign.root) == Ingested()
    assert content(campaign, opened) == before
    rebuild(campaign.root)
    assert content(campaign, opened) == before


@pytest.mark.parametrize(("version", "remedy"), [(2, "upgrade ablate"), (0, "read it with the ablate that wrote it")])
def test_a_shard_of_another_version_is_named_with_what_helps_and_served_by_its_own_version(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch, version: int, remedy: str
) -> None:
    columns: dict[str, Any] = {"trial": ["ab" * 16], "attempt": [1], "step": [7], "name": ["loss"], "value": [0.5]}
    with monkeypatch.context() as patched:
        patched.setattr("ablate.store.files.shards.FILE_SCHEMA", version)
        shard = encode_shard("metric", {**columns, "wall_s": [0.1]}, "20260102T030405-0a1b2c-0000-000000")
    path = write_atomic(campaign.layout.spool / shard.name, shard.data)
    assert ingest(campaign.root).bad_shards == 1
    reason = f"it has schema version {version}, and this ablate reads 1; {remedy}"
    assert opened(campaign.root).bad_shards().rows() == [(path.name, reason)]
    assert ingest(campaign.root) == Ingested()
    monkeypatch.setattr("ablate.store.files.shards.FILE_SCHEMA", version)
    monkeypatch.setattr("ablate.store.ingest.ingest_shards.file_signature", lambda _: "of another version")
    ingest(campaign.root)  # by a program of that version
    with Store.open(campaign.root, refresh=False) as store:
        assert path.name not in store.bad_shards()["file"].to_list()
        assert store.sql("SELECT count(*) AS n FROM metric WHERE trial = $key", {"key": "ab" * 16})["n"].item() == 1
