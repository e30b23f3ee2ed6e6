"""Small shards become large ones, and nothing else changes: not a row, not a warning, whenever the process dies."""

import shutil
from pathlib import Path

import pytest
from toy_campaign import run_quietly, toy_grid

from ablate.runners.monitoring.integrity import check_campaign
from ablate.store.files.layout import Layout
from ablate.store.ingest import ingest as ingesting
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.ingest_shards import ShardIngest
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of six short trials, with a shard of each of three tables for each."""
    root = tmp_path_factory.mktemp("trained") / "campaign"
    run_quietly(root, toy_grid())
    shutil.rmtree(root / "store", ignore_errors=True)
    return root


@pytest.fixture
def layout(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A copy of the trained campaign; two small shards are enough to be joined."""
    monkeypatch.setattr(ingesting, "LEAST", 2)
    return Layout(shutil.copytree(trained, tmp_path / "campaign"))


@pytest.fixture
def before(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """The content of the store while no shard is joined."""
    with monkeypatch.context() as patched:
        patched.setattr(ingesting, "LEAST", 10**9)
        found = content(layout)
    layout.live.unlink()
    assert len(layout.shards()) == 18
    return found


def content(layout: Layout) -> tuple[str, list[str]]:
    with Store.open(layout.root) as store:
        return store.content_hash(), store.warnings()


def test_joined_shards_say_what_the_small_ones_said(layout: Layout, before: tuple[str, list[str]]) -> None:
    assert content(layout) == before
    assert len(layout.shards()) == 3
    assert ingest(layout) == Ingested()
    assert check_campaign(layout.root) == []
    rebuild(layout.root)
    assert content(layout) == before
    run_quietly(layout.root, toy_grid(seeds=range(6)))
    assert content(layout) != before
    assert len(layout.shards()) == 6
    now = content(layout)
    layout.live.unlink()
    assert content(layout) == now


@pytest.mark.parametrize(
    ("owner", "name"), [(ShardIngest, "insert_joined"), (ShardIngest, "_summarise"), (Path, "unlink")]
)
def test_an_ingest_that_is_killed_while_it_joins_loses_and_doubles_nothing(
    layout: Layout, before: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, die)
        with pytest.raises(KeyboardInterrupt):
            ingest(layout)
    for _ in range(2):
        assert content(layout) == before
    layout.live.unlink()
    assert content(layout) == before
    assert len(layout.shards()) == 3


def test_a_damaged_large_shard_is_told_and_mended_by_the_file(layout: Layout, before: tuple[str, list[str]]) -> None:
    assert content(layout) == before
    large = next(path for path in layout.shards() if "-evaluation." in path.name)
    data = large.read_bytes()
    large.write_bytes(data[:-1] + b"x")
    with Store.open(layout.root) as store:
        assert large.name in store.bad_shards()["file"].to_list()
        assert store.sql("SELECT count(DISTINCT trial) AS n FROM doubt WHERE kind = 'lost'")["n"].item() == 6
        assert store.sql("FROM v_final WHERE name = 'mse'").is_empty()
    assert any(damage.file.endswith(large.name) for damage in check_campaign(layout.root))
    large.write_bytes(data)
    assert content(layout) == before
