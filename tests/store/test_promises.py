"""The promises of `end.json` are checked. Two finished attempts of the same code agree, or they are reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import Campaign, write_campaign, write_end, write_start

from ablate.store.analysis.verdicts import verdicts
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

POINT = {"sigma_f": 5.0, "sigma_x": 1.0}
EARLY, LATE = 3.0, 1.0
FINAL = "SELECT step, value FROM v_final WHERE trial = $key AND name = 'mse'"


@pytest.fixture
def written(tmp_path: Path) -> Campaign:
    """A campaign in which the last trial is still to be trained."""
    return write_campaign(
        tmp_path / "c", operators=("softmax", "SSA"), seeds=range(4), pending=[("SSA", 3)], steps=12, sigma_f=(5,)
    )


def train(campaign: Campaign, number: int, late: float = LATE, **start: Any) -> ShardBuffer:
    """Train the pending trial: its measure at step 6 and at step 12, in a shard each."""
    layout, key = campaign.layout, campaign.line("SSA", 3)["trial"]
    write_start(layout, key, number, sources={}, **start)
    buffer = ShardBuffer(layout, submission="20260922T000000-0a1b2c", worker=number)
    for step, value in ((6, EARLY), (12, late)):
        buffer.add("evaluation", (key, number, step, "mse", POINT, value, 4, None))
        buffer.flush()
    return buffer


def last_shard(buffer: ShardBuffer, campaign: Campaign, number: int = 1) -> Path:
    name = buffer.list_written(campaign.line("SSA", 3)["trial"], number)["evaluation"]["shards"][-1]
    return campaign.layout.shard(name)


def damage(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("harm", [Path.unlink, damage], ids=["deleted", "damaged"])
@pytest.mark.parametrize("promised", [True, False], ids=["promised", "earlier release"])
def test_an_earlier_value_never_stands_for_one_that_is_lost(
    written: Campaign, harm: Callable[[Path], None], promised: bool
) -> None:
    key = written.line("SSA", 3)["trial"]
    buffer = train(written, 1)
    wrote = buffer.list_written(key, 1)
    assert wrote == {"evaluation": {"rows": 2, "step": 12, "shards": wrote["evaluation"]["shards"]}}
    write_end(written.layout, key, 1, step=12, **({"wrote": wrote} if promised else {}))
    path = last_shard(buffer, written)
    kept = path.read_bytes()
    harm(path)
    with Store.open(written.root) as store:
        lost = store.sql(FINAL, {"key": key}).rows()
        if not promised and not path.exists():
            assert lost == [(6, EARLY)]  # as its release counted it: nothing says that there was more
            return
        assert lost == []
        assert store.unreadable(written.header["grid"]) == [key]
        assert store.sql("SELECT * FROM v_evaluation WHERE trial = $key", {"key": key}).rows() == [] or not promised
        assert any(path.name in text for text in store.warnings())
        assert any("no readable result" in text for text in store.warnings(written.header["grid"]))
        (row,) = verdicts(store, written.header["grid"]).rows(named=True)
        assert (row["pairs"], "no readable result" in row["reason"]) == (3, True)
    path.write_bytes(kept)
    with Store.open(written.root) as store:
        assert store.sql(FINAL, {"key": key}).rows() == [(12, LATE)]
        assert store.warnings() == []


@pytest.mark.parametrize(
    ("changes", "promised", "counts"),
    [({}, True, False), ({"device": "cuda:0"}, True, True), ({"threads": 2}, True, True), ({}, False, True)],
    ids=["cpu", "gpu", "other threads", "earlier release"],
)
def test_attempts_of_the_same_code_that_disagree_are_reported(
    written: Campaign, changes: dict[str, Any], promised: bool, counts: bool
) -> None:
    key, grid = written.line("SSA", 3)["trial"], written.header["grid"]
    for number, value in ((1, LATE), (2, LATE + 1)):
        start = {**changes, **({"threads": number} if "threads" in changes else {})}
        buffer = train(written, number, value, **start)
        wrote = buffer.list_written(key, number) if promised else None
        write_end(written.layout, key, number, step=12, wrote=wrote)
    with Store.open(written.root) as store:
        (told,) = store.warnings(grid)[-1:]
        assert "SSA seed 3" in told
        assert "mse" in told
        assert ("error in grid" in told) is not counts
        assert store.sql(FINAL, {"key": key}).rows() == ([(12, LATE + 1)] if counts else [])
        assert (store.unreadable(grid) == []) is counts
        before = store.content_hash()
    rebuild(written.root)
    with Store.open(written.root, refresh=False) as store:
        assert store.content_hash() == before


@pytest.mark.parametrize(
    "changes", [{"code": "0" * 40}, {"value": LATE}, {"status": "stopped"}, {"load": True, "value": LATE}]
)
def test_attempts_that_agree_or_ran_other_code_are_not_reported(written: Campaign, changes: dict[str, Any]) -> None:
    key = written.line("SSA", 3)["trial"]
    start = {"code": changes["code"]} if "code" in changes else {}
    for number, value in ((1, changes.get("value", LATE + 1)), (2, LATE)):
        buffer = train(written, number, value, **(start if number == 1 else {}))
        if "load" in changes:
            buffer.add("metric", (key, number, 12, "system.cpu_cores", float(number), 1.0))
            buffer.flush()
        status = changes.get("status", "ok") if number == 1 else "ok"
        write_end(written.layout, key, number, step=12, status=status, wrote=buffer.list_written(key, number))
    with Store.open(written.root) as store:
        assert store.warnings() == []
        assert store.sql(FINAL, {"key": key}).rows() == [(12, LATE)]


def test_records_that_are_gone_are_reported(written: Campaign) -> None:
    layout = Layout(written.root)
    one, other = (written.line("softmax", seed)["trial"] for seed in (0, 1))
    layout.start(one, 1).unlink()
    write_start(layout, other, 1, pid=2**22 - 1, pid_started=1)
    layout.end(other, 1).unlink()
    layout.heartbeat(other, 1).unlink()
    with Store.open(written.root) as store:
        told = store.bad_records()["file"].to_list()
    assert told == sorted(
        path.relative_to(layout.root).as_posix() for path in (layout.start(one, 1), layout.end(other, 1))
    )
