"""Files of a campaign: written whole or not at all, on any file system; every path of the wire format."""

import errno
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ablate.grid.errors import EnvironmentProblem, SpecError, StoreError
from ablate.store.files.atomic import PAUSES_S, make_directory, read_json, set_retry_timeout, write_atomic, write_json
from ablate.store.files.layout import Layout


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"long " * 1000)
    write_atomic(path, b"short")
    assert path.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, number: int
) -> None:
    path = write_atomic(tmp_path / "f", b"old")

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr({"fsync": "os.fsync", "rename": "pathlib.Path.rename"}[failing], refuse)
    with pytest.raises(EnvironmentProblem, match=r"cannot write .*f: .*; \w+"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between tries, which take no time."""
    found: list[float] = []
    monkeypatch.setattr("ablate.store.files.atomic.time.sleep", found.append)
    return found


class Failing:
    """A function that raises `number` at its first `times` calls."""

    def __init__(self, plain: Callable[..., Any], number: int, times: int) -> None:
        self.plain, self.number, self.left = plain, number, times

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number))
        return self.plain(*arguments, **named)

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else partial(self, instance)


MOMENTARY = [errno.ESTALE, errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.ENOTCONN]
PLACES = [(os, "fsync"), (Path, "rename"), (Path, "mkdir"), (Path, "open"), (Path, "read_bytes"), (os, "open")]
Place = tuple[Any, str]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0].__name__}.{place[1]}")
def test_what_a_network_file_system_refuses_for_a_moment_is_done_after_some_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], place: Place
) -> None:
    for number in MOMENTARY:
        pauses.clear()
        faulty = Failing(getattr(*place), number, len(PAUSES_S))
        with monkeypatch.context() as patched:
            patched.setattr(*place, faulty)
            assert read_json(write_json(tmp_path / str(number) / "r.json", {"a": 1})) == {"a": 1}
        assert faulty.left == 0
        assert pauses == list(PAUSES_S)
        assert [path.name for path in (tmp_path / str(number)).iterdir()] == ["r.json"]


@pytest.mark.parametrize("name", ["rename", "read_bytes", "mkdir"])
def test_a_handle_that_stays_stale_is_an_environment_problem_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], name: str
) -> None:
    path = write_json(tmp_path / "r.json", {"a": 1})
    monkeypatch.setattr(Path, name, Failing(getattr(Path, name), errno.ESTALE, 10**6))
    with pytest.raises(EnvironmentProblem, match=r"cannot \w+ .*: Stale file handle; .*mounted here"):
        read_json(path) if name == "read_bytes" else write_json(path, {"a": 2})
    assert pauses == list(PAUSES_S)
    monkeypatch.undo()
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_that_is_patient_waits_for_a_file_system_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    told: list[str] = []
    over = [False]
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    set_retry_timeout(100.0, told.append, lambda: over[0])
    try:
        monkeypatch.setattr(os, "fsync", Failing(os.fsync, errno.ESTALE, 20))
        write_atomic(tmp_path / "f", b"new")
        waits = len(pauses)
        assert waits == 20
        assert [word in text for text, word in zip(told, ("away", "back"), strict=True)] == [True, True]
        faulty = Failing(os.fsync, errno.ESTALE, 10**6)
        monkeypatch.setattr(os, "fsync", faulty)
        with pytest.raises(EnvironmentProblem, match="Stale file handle"):
            write_atomic(tmp_path / "f", b"newer")
        assert 100.0 <= sum(pauses[waits:]) <= 110.0
        over[0] = True
        waits = len(pauses)
        with pytest.raises(EnvironmentProblem, match="Stale file handle"):
            write_atomic(tmp_path / "f", b"newer")
        assert pauses[waits:] == list(PAUSES_S)
    finally:
        set_retry_timeout(0.0, lambda _: None)
    monkeypatch.undo()
    assert (tmp_path / "f").read_bytes() == b"new"


def test_a_rename_that_was_done_and_reported_as_failed_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Path.rename

    def twice(self: Path, target: Path) -> Path:
        plain(self, target)
        return plain(self, target)

    monkeypatch.setattr(Path, "rename", twice)
    assert write_atomic(tmp_path / "f", b"new").read_bytes() == b"new"


def test_a_rename_that_lost_its_file_is_not_taken_for_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_atomic(tmp_path / "f", b"old")
    plain = Path.rename

    def lost(self: Path, target: Path) -> Path:
        self.unlink()
        return plain(self, target)

    monkeypatch.setattr(Path, "rename", lost)
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_directory_below_a_file_cannot_be_made_and_the_error_says_so(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", b"")
    with pytest.raises(EnvironmentProblem, match=r"cannot create .*file/below: .*a file stands where a directory"):
        make_directory(tmp_path / "file" / "below")
    with pytest.raises(EnvironmentProblem, match="a file stands where a directory"):
        make_directory(tmp_path / "file")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_place_one_may_not_write_to_is_an_environment_problem(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(EnvironmentProblem, match="choose a directory you may write to"):
        write_atomic(tmp_path / "f", b"")


def test_a_record_with_a_nan_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "r.json", {"loss": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a": 1',
        b"[1]",
        b"null",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\xff"}',
        b"{} {}",
        b"\0" * 9,
        b"[" * 100_000,
    ],
)
def test_torn_or_altered_json_is_a_store_error_that_names_the_file(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "r.json").write_bytes(text)
    with pytest.raises(StoreError, match=r"r\.json .*torn or altered"):
        read_json(tmp_path / "r.json")


def test_a_private_file_is_private_before_anything_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    plain = os.fchmod

    def changed(descriptor: int, mode: int) -> None:
        plain(descriptor, mode)
        found = os.fstat(descriptor)
        seen.append((found.st_size, found.st_mode & 0o777))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", changed)
        patch.setattr(Path, "chmod", lambda *_: None)
        path = write_atomic(tmp_path / "f", b"secret", 0o400)
    assert seen == [(0, 0o400)]
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"secret", 0o400)


KEY = "0123456789abcdef" * 2


def test_every_path_of_the_wire_format(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    expected = {
        "grids/g.json": layout.grid_header("g"),
        "grids/g.trials.jsonl": layout.grid_trials("g"),
        "submissions/20260102T030405-0a1b2c/manifest.jsonl": layout.manifest("20260102T030405-0a1b2c"),
        "submissions/20260102T030405-0a1b2c/manifest.idx": layout.manifest_index("20260102T030405-0a1b2c"),
        f"trials/01/{KEY}/001/start.json": layout.start(KEY, 1),
        f"trials/01/{KEY}/012/end.json": layout.end(KEY, 12),
        f"trials/01/{KEY}/1000/heartbeat": layout.heartbeat(KEY, 1000),
        f"trials/01/{KEY}/001/log": layout.log(KEY, 1),
        f"trials/01/{KEY}/001/checkpoint": layout.checkpoint(KEY, 1),
        "spool": layout.spool,
        "store/live.duckdb": layout.live,
        "store/snapshot.duckdb": layout.snapshot,
        "store/ingest.lock": layout.ingest_lock,
    }
    assert {path.relative_to(tmp_path).as_posix() for path in expected.values()} == set(expected)


@pytest.mark.parametrize("name", ["", "../g", "a/b", ".hidden", "a\n", "ü"])
def test_a_name_cannot_leave_its_directory(tmp_path: Path, name: str) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(SpecError, match="a grid is named by"):
        layout.grid_header(name)
    with pytest.raises(SpecError, match="32 hexadecimal digits"):
        layout.trial(name)
    with pytest.raises(SpecError, match="a submission is named"):
        layout.submission(name)


def test_listings_hold_what_is_published_and_nothing_else(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for path in [
        layout.grid_header("b"),
        layout.grid_header("a.b"),
        layout.grid_trials("a.b"),
        layout.grids / "c.json.tmp.host.1.aa",
        layout.grids / "d.tmp.host.1.json",
        layout.manifest("20260102T030405-0a1b2c"),
        layout.submission("20260102T030406-0a1b2c") / "manifest.jsonl.tmp.host.1.aa",
        layout.start(KEY, 2),
        layout.start(KEY, 1000),
        layout.trial(KEY) / "notes" / "x",
        layout.trials / "01" / "readme" / "x",
        layout.spool / "a.parquet",
        layout.spool / "a.parquet.tmp.host.1.aa",
        layout.spool / "b.tmp.host.1.parquet",
    ]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert layout.grid_names() == ["a.b", "b"]
    assert layout.submission_ids() == ["20260102T030405-0a1b2c"]
    assert list(layout.trial_keys()) == [KEY]
    assert layout.attempts(KEY) == [2, 1000]
    assert layout.shards() == [layout.spool / "a.parquet"]


def test_a_file_system_that_does_not_answer_is_a_problem_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    monkeypatch.setattr("ablate.store.files.atomic.PAUSES_S", (0,))
    monkeypatch.setattr(os, "scandir", stale)
    layout = Layout(tmp_path)
    lists = (layout.grid_names, layout.submission_ids, lambda: [*layout.trial_keys()], layout.shards)
    for listed in (*lists, lambda: layout.attempts(KEY)):
        with pytest.raises(EnvironmentProblem, match=r"cannot list .*Stale file handle"):
            listed()
