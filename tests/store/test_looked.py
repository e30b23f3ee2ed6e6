"""A look that is not thorough finds all that the program itself changes, and reads no directory that is as it was."""

import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from synthetic import SUBMISSION, Campaign, write_campaign, write_end

from ablate.store.database import connection
from ablate.store.files import attempts, change_tracker
from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.store import Store
from ablate.training.posthoc.evaluation_records import forget

OpenStore = Callable[..., Store]


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories count as settled at once, as those of a campaign do that has lain for a while."""
    monkeypatch.setattr(change_tracker, "SETTLED_S", -1)


def look(campaign: Campaign) -> Ingested:
    return ingest(campaign.root, thorough=False)


def finished(campaign: Campaign) -> tuple[str, int]:
    """A trial that is ok, and its attempt, the first."""
    asked = "SELECT trial FROM attempt WHERE status = 'ok' AND attempt = 1 ORDER BY trial"
    with Store.open(campaign.root) as store:
        return str(store.sql(asked)["trial"][0]), 1


def begin(layout: Layout, trial: str, attempt: int) -> None:
    here = {"submission": SUBMISSION, "worker": 0, "path": "eager", "device": "cpu", "threads": 1}
    assert attempts.begin(layout, {**attempts.start_record(trial, attempt), **here})


def remove_by_hand(layout: Layout, trial: str) -> None:
    """As nobody does who knows that the directory above tells."""
    before = layout.trial(trial).parent.stat().st_ctime_ns
    shutil.rmtree(layout.attempt(trial, 1))
    assert layout.trial(trial).parent.stat().st_ctime_ns == before


def test_only_what_has_changed_is_looked_at(campaign: Campaign) -> None:
    key, _ = finished(campaign)
    assert look(campaign) == Ingested()
    remove_by_hand(campaign.layout, key)
    assert look(campaign) == Ingested()
    change_tracker.touch_trial(campaign.layout, key)
    assert look(campaign).attempts == 1


def test_a_database_that_an_older_version_wrote_is_filled_again_wholly(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(campaign)
    look(campaign)
    assert look(campaign) == Ingested()
    with monkeypatch.context() as newer:
        newer.setattr(connection, "STORE_SCHEMA", connection.STORE_SCHEMA + 1)
        connection._empty.cache_clear()
        found = look(campaign)
    connection._empty.cache_clear()
    assert found.attempts == sum(1 for _ in campaign.layout.trials.rglob("start.json"))


@pytest.mark.parametrize("hours", [1, -1], ids=["later", "the clock was put back"])
def test_what_was_looked_at_at_another_time_is_looked_at_again(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    key, _ = finished(campaign)
    remove_by_hand(campaign.layout, key)
    assert look(campaign) == Ingested()
    now_ns = time.time_ns() + hours * 3600 * 10**9
    monkeypatch.setattr(change_tracker, "_now_ns", lambda _: now_ns)
    assert look(campaign).attempts == 1


def test_what_has_changed_just_now_is_looked_at_again(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told before it was done, and a listing may be old: the look between must not be the last."""
    monkeypatch.setattr(change_tracker, "SETTLED_S", 90)
    key, _ = finished(campaign)
    change_tracker.touch_trial(campaign.layout, key)
    assert look(campaign) == Ingested()
    remove_by_hand(campaign.layout, key)
    assert look(campaign).attempts == 1


def test_beginning_ending_and_judging_tell(campaign: Campaign) -> None:
    layout = campaign.layout
    key, attempt = finished(campaign)
    assert look(campaign) == Ingested()
    begin(layout, key, attempt + 1)
    assert look(campaign).attempts == 1
    attempts.write_end(layout, {**attempts.end_record(key, attempt + 1, 3, 1.0), "reason": "error", "message": "no"})
    assert look(campaign).attempts == 1
    assert look(campaign) == Ingested()
    attempts.write_end(layout, {**attempts.end_record(key, attempt + 1, 3, 1.0), "reason": "error", "message": "late"})
    assert look(campaign).attempts == 1
    before = change_tracker.DirectoryCache(layout, thorough=False).same
    forget(layout, (key, attempt, "ab" * 16))
    assert before - change_tracker.DirectoryCache(layout, thorough=False).same == {key[:2]}


def test_attempts_that_had_not_ended_are_read_every_time(campaign: Campaign) -> None:
    with Store.open(campaign.root) as store:
        key, attempt = store.sql("SELECT trial, attempt FROM attempt WHERE status IS NULL ORDER BY trial").rows()[0]
    assert look(campaign) == Ingested()
    write_end(campaign.layout, key, attempt, status="ok")  # and the writer was killed before it could tell
    assert look(campaign).attempts == 1


@pytest.mark.parametrize(("record", "status"), [("start.json", "ok"), ("end.json", "ok"), ("start.json", None)])
def test_what_could_not_be_read_is_tried_every_time(campaign: Campaign, record: str, status: str | None) -> None:
    asked = "SELECT trial, attempt, status FROM attempt WHERE status IS NOT DISTINCT FROM $status ORDER BY trial"
    with Store.open(campaign.root) as store:
        key, attempt, _ = store.sql(asked, {"status": status}).rows()[0]
    file = campaign.layout.attempt(key, attempt) / record
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])  # in place: the directories do not change
    assert ingest(campaign.root, thorough=status is not None).bad_records == 1
    look(campaign)
    file.write_bytes(whole)
    look(campaign)
    with Store.open(campaign.root, refresh=False) as store:
        assert store.bad_records().is_empty()
        assert (key, attempt, status) in store.sql(asked, {"status": status}).rows()


def test_without_a_sound_memory_everything_is_looked_at(campaign: Campaign) -> None:
    memory = campaign.layout.stamps
    for damage in (None, b"", b'{"schema": 1, "database": [1, 2, 3], "directories": {"ab": [1]}}', "flip"):
        key, _ = finished(campaign)
        whole = memory.read_bytes()
        remove_by_hand(campaign.layout, key)
        assert look(campaign) == Ingested()
        if damage is None:
            memory.unlink()
        else:
            memory.write_bytes(damage if isinstance(damage, bytes) else whole.replace(b"0", b"1", 1))
        assert look(campaign).attempts == 1, damage


@pytest.mark.parametrize("loss", ["the database", "the way back"])
def test_a_memory_of_another_database_counts_for_nothing(campaign: Campaign, opened: OpenStore, loss: str) -> None:
    whole = opened(campaign.root).content_hash()
    layout = campaign.layout
    if loss == "the database":
        layout.live.unlink()
    else:  # an older database from a backup, which lacks an attempt
        old = layout.live.read_bytes()
        key, attempt = finished(campaign)
        begin(layout, key, attempt + 1)
        assert look(campaign).attempts == 1
        whole = opened(campaign.root, refresh=False).content_hash()
        layout.live.write_bytes(old)
    look(campaign)
    assert opened(campaign.root, refresh=False).content_hash() == whole


def test_looks_of_limited_time_find_everything_in_the_end_and_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = write_campaign(tmp_path / "limited", seeds=range(8))
    shutil.copytree(campaign.root, tmp_path / "whole")
    clock = itertools.count()
    monkeypatch.setattr(
        "ablate.store.ingest.ingest_records.time", SimpleNamespace(monotonic=lambda: next(clock), time=time.time)
    )
    known, left = 0, [len(campaign.lines)]
    while left[-1]:
        found = ingest(campaign.root, thorough=False, most_s=20)
        with Store.open(campaign.root, refresh=False) as store:
            attempts_known = store.sql("SELECT count(*) FROM attempt").item()
        assert attempts_known >= known
        known = attempts_known
        left.append(len(found.unread_fans))
    assert len(left) > 3
    ingest(tmp_path / "whole")
    hashes = []
    for root in (campaign.root, tmp_path / "whole"):
        with Store.open(root, refresh=False) as store:
            hashes.append(store.content_hash())
    assert hashes[0] == hashes[1]
