"""Two users of one group share a campaign: what one has written, the other can use, and the other way round."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import group_member
import pytest
from pretend_slurm import PretendSlurm

GROUP = 60
MEMBERS = (1, 2)
"""Users that every system has, and a group that is neither's."""
SPEC = """
from ablate.runners import Slurm
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
    for seeds, uid in enumerate((*MEMBERS, *MEMBERS), start=1):
        be_member(shared, uid, seeds)
        for path in (shared / "c").rglob("*"):
            about = path.lstat()
            assert about.st_gid == GROUP, path
            assert about.st_mode & 0o040, path
            assert about.st_mode & 0o020 or path.suffix == ".tar", path  # a submitted tree is never changed
    owners = {path.stat().st_uid for path in (shared / "c" / "trials").rglob("end.json")}
    assert owners == set(MEMBERS)
