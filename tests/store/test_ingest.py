import errno
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from synthetic import Campaign, plan_header, plan_lines, publish_grid, write_campaign, write_end, write_start

from ablate.grid.errors import EnvironmentProblem, StoreError
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.ingest_lock import ingest_lock
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

OpenStore = Callable[..., Store]


def test_ingest_brings_everything_once(campaign: Campaign, opened: OpenStore) -> None:
    first = ingest(campaign.root)
    assert first.shards == len(campaign.layout.shards())
    assert (first.bad_shards, first.bad_records, first.published) == (0, 0, True)
    before = opened(campaign.root, refresh=False).content_hash()
    assert ingest(campaign.root) == Ingested()
    store = opened(campaign.root, refresh=False)
    assert store.content_hash() == before
    assert store.sql("SELECT sum(rows) AS n FROM shard")["n"].item() == first.rows
    tables = " UNION ALL ".join(
        f"SELECT count(*) AS n FROM {table}" for table in ("metric", "evaluation", "item", "probe")
    )
    assert store.sql(f"SELECT sum(n) AS n FROM ({tables})")["n"].item() == first.rows


def test_the_database_says_what_the_files_say(campaign: Campaign, opened: OpenStore) -> None:
    store = opened(campaign.root)
    planned = store.sql("SELECT * FROM grid_trial ORDER BY position")
    assert planned["trial"].to_list() == [line["trial"] for line in campaign.lines]
    assert [json.loads(axes) for axes in planned["axes"]] == [line["axes"] for line in campaign.lines]
    specs = dict(store.sql("SELECT trial, spec FROM trial").iter_rows())
    assert {key: json.loads(spec) for key, spec in specs.items()} == {
        line["trial"]: line["spec"] for line in campaign.lines
    }
    assert set(store.sql("SELECT task FROM trial")["task"]) == {"linear_functions"}
    failed = store.sql("SELECT * FROM attempt WHERE reason = 'diverged'").row(0, named=True)
    end = json.loads(campaign.layout.end(failed["trial"], failed["attempt"]).read_text())
    start = json.loads(campaign.layout.start(failed["trial"], failed["attempt"]).read_text())
    for record, names in ((start, ("host", "pid", "device", "code")), (end, ("message", "step", "ended", "wall_s"))):
        assert {name: failed[name] for name in names} == {name: record[name] for name in names}
    assert json.loads(failed["versions"]) == start["versions"]
    resumed = store.sql("SELECT trial, resumed_attempt, resumed_step FROM attempt WHERE resumed_step IS NOT NULL")
    assert resumed.rows() == [(campaign.line("softmax · 16", 0)["trial"], 1, 6)]


def test_states_of_trials_follow_their_attempts(campaign: Campaign, opened: OpenStore) -> None:
    query = "SELECT label, seed, state, reason FROM grid_trial JOIN trial USING (trial, seed) WHERE state <> 'done'"
    assert set(opened(campaign.root).sql(query).rows()) == {
        ("SSA · 8", 1, "failed", "diverged"),
        ("SSA · 16", 2, "failed", "error"),
        ("softmax · 16", 2, "pending", None),
        ("softmax · 8", 2, "running", None),
    }
    key = campaign.line("softmax · 8", 2)["trial"]
    write_end(campaign.layout, key, 1, step=12)
    key = campaign.line("SSA · 8", 1)["trial"]
    write_start(campaign.layout, key, 2)
    assert ingest(campaign.root).attempts == 2
    assert set(opened(campaign.root).sql(query).rows()) == {
        ("SSA · 8", 1, "running", None),
        ("SSA · 16", 2, "failed", "error"),
        ("softmax · 16", 2, "pending", None),
    }


def test_files_that_arrive_in_any_order_give_the_same_store(tmp_path: Path, opened: OpenStore) -> None:
    whole = write_campaign(tmp_path / "whole", seeds=range(2), steps=6, failed={("SSA", 1): "error"})
    parts = Layout(tmp_path / "parts")
    files = sorted(path for path in whole.root.rglob("*") if path.is_file())
    for number, path in enumerate(reversed(files)):
        target = parts.root / path.relative_to(whole.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        if number % 5 == 0:
            ingest(parts)
    moved = opened(parts.root).content_hash()
    assert not [path for path in whole.root.rglob("*") if path.is_file()]
    write_campaign(whole.root, seeds=range(2), steps=6, failed={("SSA", 1): "error"})
    assert opened(whole.root).content_hash() == moved


def test_a_grid_planned_again_replaces_its_members(campaign: Campaign, opened: OpenStore) -> None:
    layout = campaign.layout
    ingest(campaign.root)
    lines = plan_lines(("softmax", "Integral"), range(2), "quickstart", {})
    publish_grid(layout, plan_header(lines, "quickstart", {}, ("softmax", "Integral")), lines, "20270101T000000-aaaaaa")
    assert ingest(campaign.root).plans == 2
    store = opened(campaign.root)
    assert store.sql("SELECT trial FROM grid_trial ORDER BY position")["trial"].to_list() == [
        line["trial"] for line in lines
    ]
    assert [axis["name"] for axis in store.grid("quickstart")["axes"]] == ["operator"]
    assert "width" not in store.sql("FROM grid_quickstart").columns
    kept = store.sql("SELECT count(*) AS n FROM trial WHERE state = 'done'")["n"].item()
    assert kept == 8  # trained rows are kept
    incremental = store.content_hash()
    for path in (layout.live, layout.snapshot):
        path.unlink()
    assert opened(campaign.root).content_hash() == incremental


def test_a_grid_and_attempts_that_are_gone_are_forgotten(campaign: Campaign, opened: OpenStore) -> None:
    layout, key = campaign.layout, campaign.line("SSA · 8", 0)["trial"]
    ingest(campaign.root)
    layout.grid_header("quickstart").unlink()
    layout.grid_trials("quickstart").unlink()
    layout.end(key, 1).unlink()
    for path in (layout.start(key, 1), layout.heartbeat(key, 1)):
        path.unlink()
    layout.attempt(key, 1).rmdir()
    ingest(campaign.root)
    store = opened(campaign.root)
    assert store.grids() == []
    assert store.sql("SELECT view_name FROM duckdb_views() WHERE view_name LIKE 'grid%'").is_empty()
    assert store.sql("SELECT state, attempts FROM trial WHERE trial = $key", {"key": key}).rows() == [("pending", 0)]


DAMAGED_RECORDS: list[tuple[tuple[str, int], str, bytes | dict[str, Any], str]] = [
    (("softmax · 8", 0), "end", b'{"schema": 1, "trial"', "torn or altered"),
    (("softmax · 8", 1), "end", {"schema": 2}, "schema version 2"),
    (("softmax · 16", 1), "end", {"status": "splendid"}, "status"),
    (("SSA · 8", 0), "end", {"trial": "cd" * 16}, "but is stored under"),
    (("SSA · 8", 2), "start", {"resumed_from": {"step": 3}}, "resumed_from.attempt"),
    (("SSA · 16", 0), "start", {"pid": True}, "pid"),
]


def test_damaged_records_are_reported_and_stop_nothing(campaign: Campaign, opened: OpenStore) -> None:
    good: dict[Path, bytes] = {}
    reasons, keys = {}, []
    for who, record, damage, reason in DAMAGED_RECORDS:
        keys.append(campaign.line(*who)["trial"])
        path = getattr(campaign.layout, record)(keys[-1], 1)
        good[path] = path.read_bytes()
        path.write_bytes(damage if isinstance(damage, bytes) else json.dumps({**read_json(path), **damage}).encode())
        reasons[path.relative_to(campaign.root).as_posix()] = reason
    found = ingest(campaign.root)
    assert (found.bad_records, found.attempts) == (6, 10)  # an attempt whose start is damaged is none
    store = opened(campaign.root)
    told = dict(store.bad_records().select("file", "reason").iter_rows())
    assert told.keys() == reasons.keys()
    assert all(reason in told[file] for file, reason in reasons.items()), told
    finished = "SELECT trial FROM trial WHERE state = 'done'"
    assert not set(keys) & set(store.sql(finished)["trial"])
    assert ingest(campaign.root) == Ingested()
    for path, data in good.items():
        path.write_bytes(data)
    ingest(campaign.root)
    store = opened(campaign.root)
    assert store.bad_records().is_empty()
    assert set(keys) <= set(store.sql(finished)["trial"])


def test_a_damaged_trial_line_costs_that_trial_only(campaign: Campaign, opened: OpenStore) -> None:
    path = campaign.layout.grid_trials("quickstart")
    lines = path.read_bytes().splitlines()
    other = json.dumps({**json.loads(lines[4]), "grid": "another"}).encode()
    lines[2:6] = [b'{"trial": "', b"{}", other, lines[0]]
    path.write_bytes(b"\n".join(lines) + b"\n")
    ingest(campaign.root)
    store = opened(campaign.root)
    kept = [line["trial"] for place, line in enumerate(campaign.lines) if place not in range(2, 6)]
    assert store.sql("SELECT trial FROM grid_trial ORDER BY position")["trial"].to_list() == kept
    reasons = store.bad_records()["reason"].to_list()
    expected = (
        "line 3: line 3 is not whole JSON",
        "field trial",
        "it belongs to the grid 'another'",
        "stands there twice",
        "its header promises 12 trials; 8 can be read",
    )
    assert len(reasons) == len(expected)
    assert all(any(reason in found for found in reasons) for reason in expected), reasons


@pytest.mark.parametrize("damage", [{"overrides": [3]}, {"overrides": "seeds=0"}, {"of": ["quickstart"]}])
def test_a_header_whose_overrides_are_no_texts_is_damaged(campaign: Campaign, damage: dict[str, Any]) -> None:
    path = campaign.layout.grid_header("quickstart")
    path.write_text(json.dumps({**read_json(path), **damage}))
    assert ingest(campaign.root).bad_records == 1


def test_strange_text_in_a_record_is_kept_as_text(campaign: Campaign, opened: OpenStore) -> None:
    key = campaign.line("SSA · 8", 1)["trial"]
    message = "nul \0, surrogate \udc80, quote ' \" ; DROP TABLE metric; -- 漢字 </script>"
    write_end(campaign.layout, key, 1, status="failed", reason="error", message=message)
    found = opened(campaign.root).sql("SELECT message FROM attempt WHERE trial = $key", {"key": key})["message"].item()
    assert found == message.replace("\udc80", "?")


def test_one_process_ingests_and_another_may_pass_or_wait(campaign: Campaign) -> None:
    with ingest_lock(campaign.layout, wait=True) as held:
        assert held
        assert ingest(campaign.root, wait=False) == Ingested(busy=True)
    assert ingest(campaign.root, wait=False).rows > 0


def test_a_damaged_database_is_refused_with_the_remedy_and_the_remedy_works(
    campaign: Campaign, opened: OpenStore
) -> None:
    whole = opened(campaign.root).content_hash()
    for text in (b"not a database", b""):
        campaign.layout.live.write_bytes(text)
        with pytest.raises(StoreError, match=r"live\.duckdb cannot be used .*`ablate check --rebuild`"):
            ingest(campaign.root)
    assert opened(campaign.root, refresh=False).content_hash() == whole  # readers do not notice
    rebuild(campaign.root)
    assert opened(campaign.root).content_hash() == whole


def test_a_reader_who_may_not_write_is_not_sent_to_rebuild(
    campaign: Campaign, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(campaign.root)
    campaign.layout.live.write_bytes(b"not a database")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != campaign.layout.store)
    with pytest.raises(StoreError, match="ask the owner of the campaign"):
        ingest(campaign.root)


def test_somebody_elses_database_is_refused(campaign: Campaign) -> None:
    campaign.layout.store.mkdir()
    with duckdb.connect(str(campaign.layout.live)) as connection:
        connection.execute("CREATE TABLE holiday (photo BLOB)")
    with pytest.raises(StoreError, match="is not a store of this program"):
        ingest(campaign.root)


def test_a_file_system_without_locks_is_an_environment_problem(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(EnvironmentProblem, match=r"cannot lock .*ingest\.lock: No locks available"):
        ingest(campaign.root)


def test_a_trial_planned_by_several_submissions_takes_its_latest_labels(tmp_path: Path, opened: OpenStore) -> None:
    layout = Layout(tmp_path)
    lines = plan_lines(("softmax",), range(1), "g", {})
    header = plan_header(lines, "g", {}, ("softmax",))
    publish_grid(layout, header, [{**lines[0], "operator": "newest"}], "20270101T000000-aaaaaa")
    publish_grid(layout, header, [{**lines[0], "operator": "oldest"}], "20260101T000000-aaaaaa")
    ingest(tmp_path)
    assert opened(tmp_path).sql("SELECT operator FROM trial")["operator"].item() == "newest"
    publish_grid(layout, header, [{**lines[0], "operator": "middle"}], "20260601T000000-aaaaaa")
    ingest(tmp_path)
    assert opened(tmp_path).sql("SELECT operator FROM trial")["operator"].item() == "newest"


def test_a_campaign_opens_whatever_its_path(campaign: Campaign) -> None:
    name = "a*b[c], this one, 'and' \"that\" [*]"
    with Store.open(campaign.root) as store:
        whole = store.content_hash()
    moved = campaign.root.rename(campaign.root.with_name(name))
    rebuild(moved)
    with Store.open(moved) as store:
        assert store.content_hash() == whole
    before = Layout(moved).snapshot.stat()
    assert not ingest(moved).published  # nothing is new
    assert Layout(moved).snapshot.stat() == before
    assert [path.name for path in moved.parent.iterdir()] == [name]  # no log of the engine lies elsewhere


def test_a_store_that_is_a_link_is_refused(campaign: Campaign, tmp_path: Path) -> None:
    ingest(campaign.root)
    for name in ("live.duckdb", "snapshot.duckdb", "ingest.lock", ""):
        place = campaign.layout.store / name
        elsewhere = place.rename(tmp_path / f"elsewhere {name}")
        place.symlink_to(elsewhere)
        for use in (ingest, rebuild, Store.open, lambda root: Store.open(root, refresh=False)):
            with pytest.raises(StoreError, match="is a link, and a store lies inside its campaign"):
                use(campaign.root)
        place.unlink()
        if name:
            elsewhere.rename(place)
    rebuild(campaign.root)


def test_a_database_that_is_open_elsewhere_is_not_called_damaged(campaign: Campaign) -> None:
    ingest(campaign.root)
    hold = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", hold, str(campaign.layout.live)], **pipes) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(EnvironmentProblem, match=r"is open for writing in another program .*close it there"):
            ingest(campaign.root)


def test_the_log_of_a_database_that_was_removed_is_not_replayed(campaign: Campaign, opened: OpenStore) -> None:
    whole = opened(campaign.root).content_hash()
    live = campaign.layout.live
    log = live.with_name("live.duckdb.wal")
    with duckdb.connect(str(live)) as connection:
        connection.execute("SET wal_autocheckpoint = '1GB'")
        connection.execute("DELETE FROM trial")
        left = log.read_bytes()
    assert len(left) > 100
    live.unlink()
    log.write_bytes(left)
    ingest(campaign.root)
    assert opened(campaign.root, refresh=False).content_hash() == whole


def test_an_ingest_whose_time_is_over_says_what_is_left_and_the_next_goes_on(campaign: Campaign) -> None:
    with Store.open(campaign.root, most_s=0.0) as store:
        assert store.progress(campaign.layout.grid_names()[0])["done"].sum() == 0
        fans = len(campaign.layout.fans())
        assert f"in {fans} of {fans} directories of trials are not read yet" in store.warnings()[0]
    found = ingest(campaign.root, thorough=False)
    assert (found.attempts, found.unread_fans) == (12, set())
    with Store.open(campaign.root) as store:
        assert store.warnings() == []
        whole = store.content_hash()
    shutil.rmtree(campaign.layout.store)
    with Store.open(campaign.root) as store:
        assert store.content_hash() == whole


def test_an_ingest_of_limited_time_leaves_large_plans_and_all_that_is_newer(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.store.ingest.ingest_records.MOST_PLAN_BYTES", 0)
    with Store.open(campaign.root, most_s=60) as store:
        assert store.grids() == []
        (warning,) = store.warnings()
        assert "is not read yet, nor is what came later; `ablate table` reads all" in warning
        with pytest.raises(EnvironmentProblem, match="is not read yet"):
            store.grid(campaign.layout.grid_names()[0])
    with Store.open(campaign.root) as store:
        assert store.progress(campaign.layout.grid_names()[0])["planned"].sum() == len(campaign.lines)
    with Store.open(campaign.root, most_s=60) as store:
        assert store.warnings() == []


def test_a_result_is_known_only_with_its_shards(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = campaign.layout.grid_names()[0]
    with monkeypatch.context() as late:
        late.setattr(
            "ablate.store.ingest.ingest_shards.time", SimpleNamespace(monotonic=lambda: math.inf, time=time.time)
        )
        with Store.open(campaign.root, most_s=60) as store:
            progress = store.progress(grid)
            assert (progress["planned"].sum(), progress["done"].sum()) == (len(campaign.lines), 0)
            (warning,) = store.warnings()
            assert "directories of trials are not read yet" in warning
    with Store.open(campaign.root, most_s=60) as store:
        assert store.warnings() == []
        assert store.progress(grid)["done"].sum() > 0
