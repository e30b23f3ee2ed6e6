"""One flipped bit, or a cut, anywhere in a file: it is found and named, or what the file says is what it said."""

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from synthetic import Campaign, plan_header, plan_lines, write_end, write_shard, write_start

from ablate.grid.errors import AblateError, StoreError
from ablate.runners.attempts.manifest import write_submission
from ablate.store.files.atomic import add_seal, is_broken, parse_object, read_json, write_json
from ablate.store.files.attempt_records import read_attempt, read_evaluation
from ablate.store.files.layout import Layout
from ablate.store.files.plans import PlanFile, read_plan
from ablate.store.files.shards import BadShard, verify_shard
from ablate.store.store import Store

KEY = "ab" * 16
SUBMISSION = "20260102T030405-0a1b2c"


def flipped(data: bytes) -> Iterator[bytes]:
    """`data` with one bit of each of its bytes turned, one byte at a time."""
    for at, byte in enumerate(data):
        yield data[:at] + bytes([byte ^ 1 << at % 8]) + data[at + 1 :]


def shard(root: Path) -> Path:
    columns: dict[str, Any] = {
        "trial": [KEY],
        "attempt": [1],
        "step": [7],
        "name": ["loss"],
        "value": [0.5],
        "wall_s": [0.1],
    }
    return write_shard(Layout(root), "metric", columns, submission=SUBMISSION, worker=0, sequence=0)


def test_every_byte_of_a_shard_and_of_its_name_counts(tmp_path: Path) -> None:
    path = shard(tmp_path)
    good = path.read_bytes()
    for bad in flipped(good):
        path.write_bytes(bad)
        with pytest.raises(BadShard, match="do not have the hash in its name"):
            verify_shard(path)
    path.write_bytes(good)
    about = verify_shard(path)
    for name in {each.decode("latin-1") for each in flipped(path.name.encode())} - {path.name}:
        if "/" in name or "\0" in name:
            continue
        with suppress(BadShard):
            # on whose it was and when nothing hangs but the order of names; the rows say of which attempt they are
            assert verify_shard(path.rename(path.with_name(name)))[1:5] == about[1:5]
        path.with_name(name).rename(path)


@pytest.mark.parametrize("filler", [b"", b"\0"], ids=["cut", "zeros"])
def test_a_beginning_of_a_shard_is_refused_wherever_it_was_cut(tmp_path: Path, filler: bytes) -> None:
    path = shard(tmp_path)
    good = path.read_bytes()
    for kept in range(len(good) - 1, -1, -12):
        torn = good[:kept] + filler * (len(good) - kept)
        if torn == good:
            continue
        path.write_bytes(torn)
        with pytest.raises(BadShard, match=r"do not have the hash in its name.* torn or altered"):
            verify_shard(path)


@pytest.mark.parametrize("record", ["start", "end"])
def test_every_byte_of_an_attempts_records_counts(tmp_path: Path, record: str) -> None:
    layout = Layout(tmp_path)
    write_start(layout, KEY, 1, versions={"torch": "2.13.0"})
    write_end(layout, KEY, 1, cost={"energy_j": 12.5})
    whole, _ = read_attempt(layout, KEY, 1)
    assert whole is not None
    path = getattr(layout, record)(KEY, 1)
    for bad in (*flipped(path.read_bytes()), *beginnings(path.read_bytes())):
        path.write_bytes(bad)
        found, problems = read_attempt(layout, KEY, 1)
        if not problems:
            assert found is not None
            assert found | {"signature": ""} == whole | {"signature": ""}, bad
        else:
            assert [file for file, _ in problems] == [path.relative_to(tmp_path).as_posix()]


def beginnings(data: bytes) -> list[bytes]:
    return [data[:kept] for kept in range(len(data))]


@pytest.fixture
def planned(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    lines = plan_lines(("softmax", "SSA"), range(1), "g", {"sigma_f": (1, 5)})[:2]
    write_submission(layout, SUBMISSION, lines)
    write_json(layout.grid_header("g"), plan_header(lines, "g", {"sigma_f": (1, 5)}, ("softmax", "SSA")))
    shutil.copy(layout.manifest(SUBMISSION), layout.grid_trials("g"))
    return layout


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("grids/g", "grids/g.json"),
        ("grids/g", "grids/g.trials.jsonl"),
        (f"submissions/{SUBMISSION}", f"submissions/{SUBMISSION}/manifest.jsonl"),
        (f"submissions/{SUBMISSION}", f"submissions/{SUBMISSION}/manifest.idx"),
    ],
)
def test_every_byte_of_a_plan_counts(planned: Layout, source: str, file: str) -> None:
    whole = read_plan(planned, source)
    path = planned.root / file
    good = path.read_bytes()
    for bad in (*flipped(good), *beginnings(good)[::4]):
        path.write_bytes(bad)
        found = read_plan(planned, source)
        assert all(without_new(line, whole.lines[0]) in whole.lines for line in found.lines), bad
        assert found.header is None or without_new(found.header, whole.header or {}) == whole.header, bad
        sound = (found.header is None, len(found.lines)) == (whole.header is None, len(whole.lines))
        assert names(found, path.parent, planned) or (sound and not found.problems), bad


def without_new(found: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """The members that are known: a bit of the word "seal" makes the seal a member that nobody reads."""
    return {name: value for name, value in found.items() if name in whole}


def names(plan: PlanFile, directory: Path, layout: Layout) -> bool:
    """Whether what is wrong is said of a file of the plan."""
    place = directory.relative_to(layout.root).as_posix()
    return bool(plan.problems) and all(file.startswith(place) for file, _ in plan.problems)


def test_every_byte_of_the_record_of_a_later_evaluation_counts(tmp_path: Path) -> None:
    layout, key = Layout(tmp_path), "cd" * 16
    about: dict[str, Any] = {"schema": 1, "trial": KEY, "attempt": 1, "evaluation": key, "kind": "mse"}
    made: dict[str, Any] = {"spec": {"kind": "mse", "n": 10}, "step": 7, "shards": [shard(tmp_path).name], "ended": 1.5}
    where: dict[str, Any] = {"wall_s": 1.0, "host": "h", "device": "cpu", "threads": 1, "versions": {}, "changed": []}
    path = write_json(layout.evaluation(KEY, 1, key), about | made | where)
    whole = read_evaluation(layout, (KEY, 1, key))
    for bad in (*flipped(path.read_bytes()), *beginnings(path.read_bytes())):
        path.write_bytes(bad)
        with suppress(StoreError):
            assert read_evaluation(layout, (KEY, 1, key)) == whole, bad


@pytest.mark.parametrize("record", [b"{}", b'{"a": 1}', b'{"trial":"x","b":[1.5,null]}', b'{"a": {"seal": "x"}}\n'])
def test_a_seal_is_read_over_and_an_altered_record_is_named(tmp_path: Path, record: bytes) -> None:
    whole = add_seal(record)
    assert not is_broken(whole)
    assert not is_broken(record)
    assert parse_object(whole + b"\n", "here") == parse_object(record, "here")
    path = tmp_path / "r.json"
    path.write_bytes(whole.replace(b"1", b"2", 1) if b"1" in record else b'{"new": 0, ' + whole.lstrip(b"{, "))
    with pytest.raises(StoreError, match=r"r\.json does not have the hash .* it was torn or altered"):
        read_json(path)


def test_a_flipped_bit_in_the_snapshot_is_named_or_touches_nothing(
    tmp_path: Path, shared: Campaign, reading: Store
) -> None:
    sound = reading.content_hash()
    good = shared.layout.snapshot.read_bytes()
    (tmp_path / "store").mkdir()
    (tmp_path / "grids").mkdir()  # a store alone is no campaign
    copy = Layout(tmp_path).snapshot
    named: list[str] = []
    for at in random.Random(0).sample(range(len(good)), 25):
        copy.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            with Store.open(tmp_path, refresh=False) as found:
                assert found.content_hash() == sound
        except AblateError as error:
            named.append(str(error))
    assert len(named) > 5
    assert all("snapshot.duckdb" in text and "ablate check --rebuild" in text for text in named), named
