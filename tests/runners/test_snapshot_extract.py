"""Extraction on a node: whole or refused, by several jobs at once, and before any code of the project runs."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pytest
from user_work_tree import TAKE, copied_rooms, dirty_repository, of, take

from grid.errors import NotFoundError, StoreError
from runners.provenance.snapshot import UNUSABLE, Snapshot, extract, shell_lines
from store.files.layout import Layout


class Submitted(NamedTuple):
    told: dict[str, object]
    snapshot: Snapshot
    tar: Path
    rooms: Path
    repository: Path


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """A snapshot of a dirty work tree."""
    place = tmp_path_factory.mktemp("submitted")
    rooms, repository = copied_rooms(place / "installed"), dirty_repository(place / "repository")
    told = take(place / "c", repository / "specs" / "my.py", path=f"{rooms}:{repository / 'lib'}")
    return Submitted(told, of(told), Layout(place / "c").snapshot_tar(of(told).tar), rooms, repository)


@pytest.fixture
def submitted(snapshot: Submitted, tmp_path: Path) -> Submitted:
    """A copy of the tar file that a test may damage."""
    return snapshot._replace(tar=Path(shutil.copy2(snapshot.tar, tmp_path)))


def job(found: Submitted, then: str, *, shell: str = "sh", **env: str) -> tuple[list[str], dict[str, str]]:
    """Run the shell lines and `then` as a node does, without this process's environment for Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ABLATE"))}
    script = "\n".join([*shell_lines(found.tar, found.snapshot), then])
    kept["ABLATE_LATE_S"] = "0.05"
    return [*shell.split(), "-c", script], {**kept, "PYTHONPATH": f"{found.rooms}:{found.repository / 'lib'}", **env}


def run(found: Submitted, then: str, *, shell: str = "sh", **env: str) -> "subprocess.CompletedProcess[str]":
    command, variables = job(found, then, shell=shell, **env)
    return subprocess.run(command, cwd=found.rooms, env=variables, capture_output=True, text=True, check=False)


def test_a_job_runs_the_tree_that_was_submitted(submitted: Submitted, tmp_path: Path) -> None:
    """The edited rooms are the working directory and on the PYTHONPATH of the job; an editable install has others."""
    rooms, repository = tmp_path / "rooms", tmp_path / "repository"
    for edited, names in ((rooms, ("grid", "runners")), (repository / "lib", ("helper", "package"))):
        for name in names:
            (edited / name).mkdir(parents=True)
            (edited / name / "__init__.py").write_text("raise ValueError('edited')")
    changed = submitted._replace(rooms=rooms, repository=repository)
    plain = [sys.executable, "-c", "import grid"]
    assert "edited" in subprocess.run(plain, cwd=rooms, capture_output=True, text=True, check=False).stderr
    then = f'"{sys.executable}" -c "$TAKE" "" "$ABLATE_TREE/{submitted.snapshot.spec[0]}"'
    for shell in ("sh", "bash -eu"):
        done = run(changed, then, shell=shell, TAKE=TAKE, ABLATE_TREES=str(tmp_path / "trees"))
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert len(told["trials"]) == 4
        assert told["trials"] == submitted.told["trials"]
        tree = tmp_path / "trees" / submitted.snapshot.tar
        assert all(file.startswith(f"{tree}/") for file in told["modules"].values())
    assert tree.parent.stat().st_mode & 0o777 == 0o700
    assert not any(path.stat().st_mode & 0o222 for path in (tree, *tree.rglob("*")))


def test_an_earlier_path_comes_after_and_user_packages_stay(submitted: Submitted, tmp_path: Path) -> None:
    trees = str(tmp_path / "trees")
    then = 'echo "$PYTHONPATH $PYTHONNOUSERSITE $PYTHONSAFEPATH $PYTHONDONTWRITEBYTECODE"'
    tree = tmp_path / "trees" / submitted.snapshot.tar
    mine = f"{tree}/code:{tree}/user/lib"
    assert run(submitted, then, ABLATE_TREES=trees, PYTHONPATH="/m").stdout == f"{mine}:/m 1 1 1\n"
    assert run(submitted, then, ABLATE_TREES=trees, PYTHONPATH="").stdout == f"{mine} 1 1 1\n"
    user = Snapshot.of({**submitted.snapshot.data(), "user_site": True})
    assert run(submitted._replace(snapshot=user), then, ABLATE_TREES=trees, PYTHONPATH="").stdout == f"{mine}  1 1\n"


def test_jobs_that_extract_at_the_same_time_share_one_tree(submitted: Submitted, tmp_path: Path) -> None:
    trees, gate, programs = tmp_path / "trees", tmp_path / "gate", tmp_path / "bin"
    gate.mkdir()
    programs.mkdir()
    count = 4
    (programs / "tar").write_text(  # nobody begins to extract before everybody has found no tree
        f'#!/bin/sh\ntouch "{gate}/$$"\nwhile [ "$(ls "{gate}" | wc -l)" -lt {count} ]; do sleep 0.01; done\n'
        'PATH="${PATH#*:}" exec tar "$@"\n'
    )
    (programs / "tar").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    command, variables = job(submitted, 'echo "$ABLATE_TREE"', ABLATE_TREES=str(trees), PATH=path)
    racing = [subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    said = [each.communicate()[0] for each in racing]
    assert [each.returncode for each in racing] == [0] * count
    assert said == [f"{trees / submitted.snapshot.tar}\n"] * count
    assert [path.name for path in trees.iterdir()] == [submitted.snapshot.tar]
    assert {path.name for path in (trees / submitted.snapshot.tar).iterdir()} == {"code", "user", "files.b2"}
    assert len(list(gate.iterdir())) == count


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_snapshot_is_refused_with_a_sentence(submitted: Submitted, tmp_path: Path, damage: str) -> None:
    whole = submitted.tar.read_bytes()
    submitted.tar.unlink()
    if damage != "gone":
        submitted.tar.write_bytes(flipped(whole) if damage == "flipped" else whole[:-512])
    done = run(submitted, "echo started", ABLATE_TREES=str(tmp_path / "trees"))
    assert (done.returncode, done.stdout) == (UNUSABLE, "")
    assert done.stderr == (
        f"ablate: on {os.uname().nodename} the bytes of {submitted.tar} do not have the hash in its name: it is not "
        "there or damaged; submit again\n"
    )
    assert not (tmp_path / "trees").exists()
    with pytest.raises(NotFoundError if damage == "gone" else StoreError):
        extract(submitted.tar, tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_tree_that_was_damaged_on_the_node_is_passed_over_for_a_new_one(submitted: Submitted, tmp_path: Path) -> None:
    trees, then = tmp_path / "trees", 'echo "${ABLATE_TREE##*/}"'
    for number, damage in enumerate(("delete", "edit", "delete")):
        name = f"{submitted.snapshot.tar}{f'.{number}' if number else ''}"
        for _ in range(2):
            assert run(submitted, then, ABLATE_TREES=str(trees)).stdout == f"{name}\n"
        victim = trees / name / "code" / "grid" / "key.py"
        victim.parent.chmod(0o755)
        text = victim.read_text()
        victim.unlink()  # as a cleaner of old files does
        if damage == "edit":
            victim.write_text(f"{text}\n")
    done = run(submitted, then, ABLATE_TREES=str(trees))
    assert (done.returncode, done.stdout) == (UNUSABLE, "")
    assert f"every copy of the tree in {trees} is damaged; remove them" in done.stderr


def test_a_place_without_room_is_told_and_nothing_is_left_in_it(submitted: Submitted, tmp_path: Path) -> None:
    trees = tmp_path / "trees"
    command, variables = job(submitted, "echo started", ABLATE_TREES=str(trees))
    limited = ["sh", "-c", f"ulimit -f 8\n{command[-1]}"]  # a file of more than 4 kB cannot be written
    done = subprocess.run(limited, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (UNUSABLE, "")
    assert f"the tree cannot be made in {trees}; make room there, or set ABLATE_TREES" in done.stderr
    assert list(trees.iterdir()) == []


def test_a_place_that_somebody_else_could_fill_is_refused(submitted: Submitted, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    places = [*(tmp_path / name for name in ("open", "link", "file", "a:b")), Path("/proc/trees")]
    for trees in places:
        done = run(submitted, "echo started", ABLATE_TREES=str(trees))
        assert (done.returncode, done.stdout) == (UNUSABLE, ""), trees
        assert "set ABLATE_TREES to another" in done.stderr


def test_a_tar_that_reaches_elsewhere_is_refused(tmp_path: Path) -> None:
    for name, link in (("../evil", None), ("evil", "/etc"), ("evil", "../..")):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w") as tar:
            header = tarfile.TarInfo(name)
            if link is not None:
                header.type, header.linkname = tarfile.SYMTYPE, link
            tar.addfile(header)
        path = tmp_path / f"{blake2b(sink.getvalue(), digest_size=16).hexdigest()}.tar"
        path.write_bytes(sink.getvalue())
        with pytest.raises(StoreError, match="no tree that was submitted"):
            extract(path, tmp_path / "in" / "side")
        assert [path for path in tmp_path.rglob("*") if path.name == "evil"] == []
