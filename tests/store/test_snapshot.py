import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest
from synthetic import Campaign, write_shard

from ablate.grid.errors import NotFoundError
from ablate.store.files.layout import Layout
from ablate.store.ingest.content_hash import content_hash
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_lock import ingest_lock
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

OpenStore = Callable[..., Store]

COUNT = "SELECT count(*) AS n FROM metric"


def deliver(layout: Layout, sequence: int, rows: int = 10) -> None:
    """One more shard of one trial."""
    columns: dict[str, Sequence[object]] = {
        "trial": ["ab" * 16] * rows,
        "attempt": [1] * rows,
        "step": [sequence * rows + i for i in range(rows)],
        "name": ["loss"] * rows,
        "value": [0.5] * rows,
        "wall_s": [0.0] * rows,
    }
    write_shard(layout, "metric", columns, submission="20270101T000000-aaaaaa", worker=1, sequence=sequence)


def test_a_reader_keeps_the_snapshot_it_opened_and_the_next_one_sees_the_news(
    campaign: Campaign, opened: OpenStore
) -> None:
    old = opened(campaign.root)
    before = old.sql(COUNT)["n"].item()
    deliver(campaign.layout, 0)
    new = opened(campaign.root)
    assert (old.sql(COUNT)["n"].item(), new.sql(COUNT)["n"].item()) == (before, before + 10)


def test_while_another_ingests_a_reader_is_served_at_once_and_told(campaign: Campaign, opened: OpenStore) -> None:
    assert opened(campaign.root).stale is None
    with ingest_lock(campaign.layout, wait=True):
        store = opened(campaign.root)
    assert store.stale == "another process is ingesting; its next snapshot has the newest files"
    assert store.sql(COUNT)["n"].item() > 0


def test_what_a_killed_ingester_left_is_swept_away(campaign: Campaign) -> None:
    ingest(campaign.root)
    left = campaign.layout.store / "snapshot.duckdb.tmp.host.1.aa"
    left.write_bytes(b"half")
    ingest(campaign.root)
    assert not left.exists()


def test_nothing_there_is_not_found(tmp_path: Path, campaign: Campaign) -> None:
    for refresh in (True, False):
        with pytest.raises(NotFoundError, match=r"there is no campaign in .*nowhere; `ablate run` makes one"):
            Store.open(tmp_path / "nowhere", refresh=refresh)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(NotFoundError, match="has no snapshot yet"):
        Store.open(campaign.root, refresh=False)
    with pytest.raises(NotFoundError, match="there is no campaign"):
        rebuild(tmp_path / "nowhere")


def test_rebuilding_gives_the_store_that_ingesting_gave(campaign: Campaign, opened: OpenStore) -> None:
    ingest(campaign.root)
    deliver(campaign.layout, 0)
    ingest(campaign.root)
    store = opened(campaign.root)
    before = store.content_hash()
    campaign.layout.live.write_bytes(b"whatever was there")
    Path(f"{campaign.layout.live}.wal").write_bytes(b"and its log")
    found = rebuild(campaign.root)
    assert found.rows == store.sql("SELECT sum(rows) AS n FROM shard")["n"].item()
    assert opened(campaign.root).content_hash() == before
    assert store.content_hash() == before  # the old reader is still served


def test_the_content_hash_notices_one_row(tmp_path: Path, reading: Store) -> None:
    copy = shutil.copy(reading.layout.snapshot, tmp_path / "snapshot.duckdb")
    with duckdb.connect(str(copy)) as connection:
        assert content_hash(connection) == reading.content_hash()
        for table in ("metric", "evaluation", "item", "probe", "grid_trial", "attempt", "trial", "axis"):
            for change in ("DELETE FROM {} WHERE rowid = 0", "INSERT INTO {} FROM {} LIMIT 1"):
                connection.execute("BEGIN")
                connection.execute(change.format(table, table))
                assert content_hash(connection) != reading.content_hash(), (table, change)
                connection.execute("ROLLBACK")


def test_a_path_may_have_a_question_mark(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "better?")
    for delivered in (1, 2):
        deliver(layout, delivered)
        ingest(layout)
        with Store.open(layout.root) as store:
            assert store.sql(COUNT).item() == 10 * delivered
    assert [path.name for path in tmp_path.iterdir()] == ["better?"]
