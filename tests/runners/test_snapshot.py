"""The tree that was submitted: what is in it, that equal trees are one file, and that nodes extract it whole or not."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pytest
from user_work_tree import ROOT, SPEC, TAKE, copied_rooms, dirty_repository, git, members, of, run, take, users

from ablate import ROOMS
from ablate.grid.errors import EnvironmentProblem, NotFoundError, StoreError
from ablate.runners.provenance.code_snapshot import UNUSABLE, Packed, Snapshot, extract, shell_lines, write
from ablate.runners.provenance.snapshot_contents import MOST_BYTES_OF_A_FILE, work_tree
from ablate.store.files.layout import Layout

HELPER = "def factor():\n    return 2.0\n"


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copied_rooms(tmp_path_factory.mktemp("rooms") / "installed")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return dirty_repository(tmp_path / "repository")


def take_here(campaign: Path, repository: Path, rooms: Path) -> Snapshot:
    return of(take(campaign, repository / "specs" / "my.py", path=f"{rooms}:{repository / 'lib'}"))


def write_files(place: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def test_the_record_names_dirty_files_and_the_tree_has_them(repository: Path, rooms: Path, tmp_path: Path) -> None:
    snapshot = take_here(tmp_path / "c", repository, rooms)
    assert Snapshot.of(json.loads(json.dumps({**asdict(snapshot), "later": 1}))) == snapshot
    assert snapshot.head == git(repository, "rev-parse", "HEAD")
    assert snapshot.changed == ("gone.txt", "lib/helper.py")
    assert (snapshot.untracked, snapshot.left_out) == (("lib/extra.py", "notes.txt"), ())
    assert snapshot.dirty
    assert (snapshot.spec, snapshot.paths) == (("user/specs/my.py",), ("code", "user/lib"))
    names = members(tmp_path / "c", snapshot, tmp_path / "tree")
    files = (".gitignore", "notes.txt", "specs/my.py", "tool.sh", "lib/extra.py", "lib/helper.py")
    packages = ("lib/package/__init__.py", "lib/package/later.py")
    assert users(names) == {f"user/{name}" for name in (*files, *packages)}
    assert {"code/ablate/grid/key.py", "code/ablate/store/database/schema.sql", "code/ablate/py.typed"} <= names
    assert not any("__pycache__" in name for name in names)
    assert os.access(tmp_path / "tree" / "user" / "tool.sh", os.X_OK)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    assert not take_here(tmp_path / "c", repository, rooms).dirty


def test_equal_trees_are_one_private_file_wherever_they_lie(repository: Path, rooms: Path, tmp_path: Path) -> None:
    campaign, other = tmp_path / "c", tmp_path / "elsewhere"
    first = take_here(campaign, repository, rooms)
    path = Layout(campaign).snapshot_tar(first.tar)
    before = path.stat()
    shutil.copytree(repository, other)
    for file in other.rglob("*.py"):
        os.utime(file, (1, 1))
    assert take_here(campaign, other, rooms).tar == first.tar
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert before.st_mode & 0o777 == 0o444
    with tarfile.open(path) as tar:
        assert tar.getnames() == sorted(tar.getnames())
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:-1] + b"x")
    (other / ".gitignore").chmod(0o600)  # private files make a private snapshot
    take_here(campaign, other, rooms)
    assert path.read_bytes() == whole
    assert path.stat().st_mode & 0o777 == 0o400
    (other / "lib" / "extra.py").write_text("value = 4.0\n")
    assert take_here(campaign, other, rooms).tar != first.tar
    assert len(list(Layout(campaign).snapshots.iterdir())) == 2


def test_without_git_the_spec_file_and_what_it_imports_go_along_by_their_names(rooms: Path, tmp_path: Path) -> None:
    package = {"lib/package/__init__.py": "", "lib/package/later.py": "late = 1\n", "lib/unrelated.py": ""}
    write_files(tmp_path, {"plain/my.py": SPEC, "plain/unrelated.py": "", "more/helper.py": HELPER, **package})
    told = take(tmp_path / "c", tmp_path / "plain" / "my.py", path=f"{rooms}:{tmp_path / 'lib'}:{tmp_path / 'more'}")
    snapshot = of(told)
    assert (snapshot.head, snapshot.dirty) == (None, False)
    found = users(members(tmp_path / "c", snapshot, tmp_path / "tree"))
    names = {name.rpartition("user")[2].partition("/")[2] for name in found}
    assert names == {"my.py", "helper.py", "package/__init__.py", "package/later.py"}
    shutil.rmtree(tmp_path / "lib")
    shutil.rmtree(tmp_path / "more")
    path = ":".join(str(tmp_path / "tree" / each) for each in snapshot.paths)
    command = (sys.executable, "-P", "-c", TAKE, "", *snapshot.files(tmp_path / "tree"))
    assert json.loads(run(*command, cwd=tmp_path, PYTHONPATH=path))["trials"] == told["trials"]


def test_a_large_file_of_a_package_without_git_is_left_out_and_told(rooms: Path, tmp_path: Path) -> None:
    package = {"lib/package/__init__.py": "", "lib/package/inner.py": ""}
    write_files(tmp_path, {"plain/my.py": SPEC, "lib/helper.py": f"import package.inner\n{HELPER}", **package})
    with (tmp_path / "lib" / "package" / "weights.bin").open("wb") as file:
        file.truncate(MOST_BYTES_OF_A_FILE + 1)
    snapshot = of(take(tmp_path / "c", tmp_path / "plain" / "my.py", path=f"{rooms}:{tmp_path / 'lib'}"))
    assert snapshot.left_out == ("package/weights.bin: 5.0 MB, and the most is 5",)
    found = users(members(tmp_path / "c", snapshot, tmp_path / "tree"))
    assert {name.rpartition("/")[2] for name in found} == {"my.py", "helper.py", "__init__.py", "inner.py"}


def test_a_spec_file_in_the_project_s_own_work_tree_has_the_rooms_once(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for name in ("src", *ROOMS):
        shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    write_files(clone, {"specs/my.py": SPEC, "helper.py": HELPER, "package.py": ""})
    git(clone, "init", "-q")
    git(clone, "add", ".")
    snapshot = of(take(tmp_path / "c", clone / "specs" / "my.py", path=f"{clone / 'src'}:{clone}"))
    assert snapshot.paths == ("code", "user")
    found = members(tmp_path / "c", snapshot, tmp_path / "tree")
    assert users(found) == {"user/specs/my.py", "user/helper.py", "user/package.py"}
    assert "code/ablate/grid/key.py" in found


def test_what_is_large_odd_or_a_campaign_is_left_out_and_told(repository: Path, rooms: Path, tmp_path: Path) -> None:
    campaign, lib = repository / "campaigns" / "c", repository / "lib"
    (repository / "big.bin").write_bytes(b"x" * (MOST_BYTES_OF_A_FILE + 1))
    lib.joinpath("extra.py").write_text("value = 3.0\n#" + "x" * MOST_BYTES_OF_A_FILE)  # large, and imported
    outside = tmp_path / "outside"
    write_files(outside, {"data.txt": "data"})
    (repository / "inner").symlink_to("lib/package")
    (repository / "away").symlink_to(outside)
    (repository / "data.txt").symlink_to(outside / "data.txt")
    (repository / "dangling").symlink_to("nowhere")
    (repository / "two\nlines").write_text("")
    os.mkfifo(repository / "pipe")
    git(repository, "init", "-q", "nested")
    write_files(repository, {"nested/deep.py": "", "campaigns/c/grids/g.trials.jsonl": ""})
    snapshot = take_here(campaign, repository, rooms)
    found = members(campaign, snapshot, tmp_path / "tree")
    added = {"user/lib/extra.py", "user/inner", "user/data.txt", "user/nested/deep.py"}
    assert added <= found
    assert not {"user/big.bin", "user/away", "user/dangling", "user/pipe"} & found
    assert not any("campaigns/" in name or "\n" in name for name in found)
    assert (tmp_path / "tree" / "user" / "data.txt").read_text() == "data"
    assert (tmp_path / "tree" / "user" / "inner" / "later.py").is_file()
    reasons = dict(each.rsplit(": ", 1) for each in snapshot.left_out)
    assert reasons == {
        "big.bin": "5.0 MB, and the most is 5",
        "away": "a link to a directory elsewhere",
        "two\nlines": "a line break or backslash in its name",
        "campaigns/c": "a campaign",
    }


def test_a_git_that_refuses_is_told(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = work_tree(repository / "lib")
    assert tree.top == repository
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))  # as in a hook; it is not asked for
    assert work_tree(repository / "lib") == tree
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert work_tree(repository) is None
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\necho 'fatal: dubious ownership' >&2\nexit 128\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    with pytest.raises(EnvironmentProblem, match=r"git cannot say which files .* \(fatal: dubious ownership\); make"):
        work_tree(repository)


def test_a_work_tree_without_a_commit_has_no_head(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a b.py").write_text("")
    for untracked, changed in ((("a b.py",), ()), ((), ("a b.py",))):
        tree = work_tree(tmp_path)
        assert (tree.head, tree.files, tree.untracked, tree.changed) == (None, ("a b.py",), untracked, changed)
        git(tmp_path, "add", ".")


def test_a_private_tree_is_private_whenever_the_shell_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tar = b"secret"
    name = blake2b(tar, digest_size=16).hexdigest()
    packed, layout = Packed(Snapshot(name, (), ()), tar, 0o400), Layout(tmp_path)
    plain = Path.rename

    def killed_after(self: Path, target: Path) -> Path:
        plain(self, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed_after)
        with pytest.raises(KeyboardInterrupt):
            write(layout, packed)
    assert layout.snapshot_tar(name).stat().st_mode & 0o777 == 0o400
    layout.snapshot_tar(name).chmod(0o444)  # as left by a version that changed permissions afterwards
    assert write(layout, packed).stat().st_mode & 0o777 == 0o400


class Submitted(NamedTuple):
    told: dict[str, object]
    snapshot: Snapshot
    tar: Path
    rooms: Path
    repository: Path


@pytest.fixture(scope="module")
def snapshot(rooms: Path, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    place = tmp_path_factory.mktemp("submitted")
    repository = dirty_repository(place / "repository")
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


def run_job(found: Submitted, then: str, *, shell: str = "sh", **env: str) -> "subprocess.CompletedProcess[str]":
    command, variables = job(found, then, shell=shell, **env)
    return subprocess.run(command, cwd=found.rooms, env=variables, capture_output=True, text=True, check=False)


def test_a_job_runs_the_tree_that_was_submitted(submitted: Submitted, tmp_path: Path) -> None:
    """The edited rooms are the working directory and on the PYTHONPATH of the job; an editable install has others."""
    rooms, repository = tmp_path / "rooms", tmp_path / "repository"
    for edited, names in ((rooms, ("ablate",)), (repository / "lib", ("helper", "package"))):
        for name in names:
            (edited / name).mkdir(parents=True)
            (edited / name / "__init__.py").write_text("raise ValueError('edited')")
    changed = submitted._replace(rooms=rooms, repository=repository)
    plain = [sys.executable, "-c", "import ablate"]
    assert "edited" in subprocess.run(plain, cwd=rooms, capture_output=True, text=True, check=False).stderr
    then = f'"{sys.executable}" -c "$TAKE" "" "$ABLATE_TREE/{submitted.snapshot.spec[0]}"'
    for shell in ("sh", "bash -eu"):
        done = run_job(changed, then, shell=shell, TAKE=TAKE, ABLATE_TREES=str(tmp_path / "trees"))
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
    assert run_job(submitted, then, ABLATE_TREES=trees, PYTHONPATH="/m").stdout == f"{mine}:/m 1 1 1\n"
    assert run_job(submitted, then, ABLATE_TREES=trees, PYTHONPATH="").stdout == f"{mine} 1 1 1\n"
    user = Snapshot.of({**asdict(submitted.snapshot), "user_site": True})
    assert (
        run_job(submitted._replace(snapshot=user), then, ABLATE_TREES=trees, PYTHONPATH="").stdout == f"{mine}  1 1\n"
    )


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


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_damaged_snapshot_is_refused_with_a_sentence(submitted: Submitted, tmp_path: Path, damage: str) -> None:
    whole = submitted.tar.read_bytes()
    submitted.tar.unlink()
    if damage != "gone":
        submitted.tar.write_bytes(flipped(whole))
    done = run_job(submitted, "echo started", ABLATE_TREES=str(tmp_path / "trees"))
    assert (done.returncode, done.stdout) == (UNUSABLE, "")
    assert str(submitted.tar) in done.stderr
    assert not (tmp_path / "trees").exists()
    with pytest.raises(NotFoundError if damage == "gone" else StoreError):
        extract(submitted.tar, tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_snapshot_that_appears_late_is_waited_for(submitted: Submitted, tmp_path: Path) -> None:
    away = submitted.tar.rename(tmp_path / "away")
    appear = threading.Timer(0.5, away.rename, [submitted.tar])
    appear.start()
    done = run_job(submitted, "echo started", ABLATE_TREES=str(tmp_path / "trees"), ABLATE_LATE_S="1")
    appear.join()
    assert (done.returncode, done.stdout) == (0, "started\n")


def test_a_tree_that_was_damaged_on_the_node_is_passed_over_for_a_new_one(submitted: Submitted, tmp_path: Path) -> None:
    trees, then = tmp_path / "trees", 'echo "${ABLATE_TREE##*/}"'
    for number, damage in enumerate(("delete", "edit", "delete")):
        name = f"{submitted.snapshot.tar}{f'.{number}' if number else ''}"
        for _ in range(2):
            assert run_job(submitted, then, ABLATE_TREES=str(trees)).stdout == f"{name}\n"
        victim = trees / name / "code" / "ablate" / "grid" / "key.py"
        victim.parent.chmod(0o755)
        text = victim.read_text()
        victim.unlink()  # as a cleaner of old files does
        if damage == "edit":
            victim.write_text(f"{text}\n")
    done = run_job(submitted, then, ABLATE_TREES=str(trees))
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
        done = run_job(submitted, "echo started", ABLATE_TREES=str(trees))
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
