"""Trust in the files of a campaign, and two users of one group who share one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import group_member
import pytest
from pretend_slurm import PretendSlurm
from real_spec import real_spec
from toy_campaign import run_quietly, toy_grid

from ablate.store.database.connection import open_live
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trusts
from ablate.store.store import Store

MARK = """
from pathlib import Path

(Path(__file__).parent / "ran").touch()
"""


def missing_trial(root: Path) -> str:
    with Store.open(root) as store:
        (found,) = store.sql("SELECT trial FROM grid_trial WHERE seed = 1")["trial"]
        return str(found)


@pytest.fixture
def own(tmp_path: Path, ablate: Callable) -> Path:
    """A campaign of this user with weights of trial 0; trial 1 is missing, and its spec file leaves a mark."""
    spec, root = tmp_path / "mine.py", tmp_path / "own"
    spec.write_text(
        real_spec("mine", training="steps=2", execution="keep_weights=True", operators="softmax()", seeds=2)
    )
    ablate("run", spec, "--on", "inline", "--campaign", root)
    shutil.rmtree(Layout(root).trial(missing_trial(root)))
    spec.write_text(spec.read_text() + MARK)
    return root


@pytest.mark.usefixtures("repro_here")
def test_code_of_a_campaign_that_was_sent_runs_after_trust_alone(
    own: Path, tmp_path: Path, ablate: Callable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Trust that cannot be remembered holds for one command."""
    (tmp_path / "more.py").write_text(
        "from ablate import DeviantInputs\n\n"
        "evaluations = DeviantInputs(sigma=(1.0,), functions=2, sequences=2, points=5, prompts=())\n"
    )
    ran = tmp_path / "ran"
    for command, words in (
        ("evaluate", ("evaluate", "seed=0", "--with", tmp_path / "more.py", "--again")),
        ("repro", ("repro", "seed=0")),
        ("retry", ("retry", "seed=1")),
    ):
        sent, moved = tmp_path / f"sent {command}", tmp_path / f"moved {command}"
        shutil.copytree(own, sent)
        ran.unlink(missing_ok=True)
        said = ablate(*words, "--campaign", sent, code=2).err
        assert not ran.exists()
        for expected in ("you did not make", "--trust", "snapshots/" if command == "repro" else "mine.py"):
            assert expected in said
        ablate(*words, "--campaign", sent, "--trust")
        assert ran.exists() == (command != "repro")  # which runs the snapshot
        if command == "evaluate":
            ablate(*words, "--campaign", sent)  # it is remembered
        sent.rename(moved)
        if command != "retry":
            ablate(*words, "--campaign", moved, code=2)
        if command != "repro":
            ablate(*words, "--campaign", own)  # made here
    shutil.rmtree(Layout(own).trial(missing_trial(own)))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    ablate("retry", "seed=1", "--campaign", own, code=2)
    ablate("retry", "seed=1", "--campaign", own, "--trust")
    assert "is not remembered" in caplog.text


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    """Another campaign of this user."""
    run_quietly(tmp_path / "toys", toy_grid(seeds=[0]))
    return tmp_path / "toys"


def test_a_new_campaign_in_the_place_of_ones_own_is_not_trusted(toys: Path, tmp_path: Path) -> None:
    layout, owner = Layout(toys), Layout(toys).owner.read_bytes()
    assert trusts(layout, "code")
    for foreign in (owner[::-1], b"../../x\n", b""):
        layout.owner.write_bytes(foreign)
        assert not trusts(layout, "code")
    layout.owner.unlink()
    layout.owner.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(owner)
    assert not trusts(layout, "code")


def test_the_database_of_others_is_built_again_and_reads_no_file_outside(toys: Path, tmp_path: Path) -> None:
    secret, sent = tmp_path / "secret.txt", tmp_path / "sent"
    secret.write_text("s3cret")
    with Store.open(toys):
        shutil.copytree(toys, sent)
    layout = Layout(sent)
    layout.owner.write_text(f"{'0' * 32}\n")
    with duckdb.connect(str(layout.live)) as connection:
        connection.execute("DROP VIEW v_final")
        connection.execute(f"CREATE VIEW v_final AS SELECT * FROM read_text('{secret}')")
    with open_live(layout.live) as connection, pytest.raises(duckdb.PermissionException, match="disabled"):
        connection.execute("SELECT * FROM v_final")
    with open_live(layout.live) as connection, pytest.raises(duckdb.InvalidInputException, match="locked"):
        connection.execute("SET enable_external_access = true")
    with Store.open(toys) as mine, Store.open(sent) as theirs:
        assert theirs.sql("SELECT count(*) FROM v_final").item() == mine.sql("SELECT count(*) FROM v_final").item()
        assert theirs.content_hash() == mine.content_hash()
    before = layout.live.stat().st_ino
    with Store.open(sent):
        assert layout.live.stat().st_ino == before  # once


GROUP = 60
MEMBERS = (1, 2)
"""Users that every system has, and a group that is neither's."""
SPEC = """
from ablate import Slurm
from toy_campaign import toy_grid

grid = toy_grid("submitted")
slurm = Slurm(gpus=0, time="2h", workers=3, partition="debug")
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory whose files belong to the group and can be changed by it."""
    if os.getuid():
        pytest.fail("it takes root") if os.environ.get("CI") else pytest.skip("only root can be two users")
    place = Path(tempfile.mkdtemp(prefix="ablate-group-", dir="/tmp"))  # below pytest's own only root may look
    os.chown(place, 0, GROUP)
    place.chmod(0o2775)
    yield place
    shutil.rmtree(place)


def be_member(shared: Path, uid: int, seeds: int) -> None:
    """Use the campaign as one of the members."""
    home = shared.parent / f"{shared.name}-{uid}"
    home.mkdir(exist_ok=True)
    os.chown(home, uid, GROUP)
    tests = Path(group_member.__file__).parent
    path = f"{shared / 'slurm' / 'bin'}:{os.environ['PATH']}"
    environ = {"PATH": path, "HOME": str(home), "XDG_STATE_HOME": str(home), "OMP_NUM_THREADS": "1"}
    environ["PYTHONPATH"] = f"{tests}:{tests.parent}/src"
    (home / ".gitconfig").write_text("[safe]\n    directory = *\n")  # the work tree of the tests may be of root
    numbers = ",".join(map(str, range(seeds)))
    command = [sys.executable, group_member.__file__, str(uid), str(GROUP), str(shared / "c"), str(shared / "spec.py")]
    try:
        done = subprocess.run(
            [*command, numbers], check=False, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    finally:
        shutil.rmtree(home)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_member_goes_on_with_what_the_other_has_written(shared: Path) -> None:
    PretendSlurm(shared / "slurm")
    (shared / "spec.py").write_text(SPEC)
    for path in (shared / "slurm").rglob("*"):
        path.chmod(0o777)
    for seeds, uid in enumerate((*MEMBERS, MEMBERS[0]), start=1):
        be_member(shared, uid, seeds)
        for path in (shared / "c").rglob("*"):
            about = path.lstat()
            assert about.st_gid == GROUP, path
            assert about.st_mode & 0o040, path
            assert about.st_mode & 0o020 or path.suffix == ".tar", path  # a submitted tree is never changed
    owners = {path.stat().st_uid for path in (shared / "c" / "trials").rglob("end.json")}
    assert owners == set(MEMBERS)
