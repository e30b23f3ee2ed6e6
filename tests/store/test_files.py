import errno
import json
import os
from pathlib import Path

import pytest

from grid.errors import EnvironmentProblem, NotFoundError, StoreError
from store.files import is_temporary, make_directory, read_json, temporary_name, write_atomic, write_json


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    record = {"a": 1, "b": [1.5, None, True], "c": {"ü": "\udcff lone surrogate"}}
    assert read_json(write_json(tmp_path / "deep" / "er" / "r.json", record)) == record


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomic(path, b"long " * 1000)
    write_atomic(path, b"short")
    assert path.read_bytes() == b"short"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["fsync", "rename"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
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


def test_unfinished_files_are_told_from_finished_ones() -> None:
    assert is_temporary(Path("spool") / temporary_name("a.parquet"))
    assert not is_temporary(Path("spool/a.tmp/a.parquet"))
    assert temporary_name("a") != temporary_name("a")


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


@pytest.mark.parametrize("cut", range(0, 45, 5))
def test_no_beginning_of_a_record_passes_for_the_record(tmp_path: Path, cut: int) -> None:
    text = json.dumps({"trial": "a" * 20, "n": 12}).encode()
    (tmp_path / "r.json").write_bytes(text[:cut])
    with pytest.raises(StoreError):
        read_json(tmp_path / "r.json")


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no file .*r\.json"):
        read_json(tmp_path / "r.json")
