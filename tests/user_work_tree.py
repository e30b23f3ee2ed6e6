"""A user's dirty work tree, the project where nobody edits it, and processes that take snapshots of both."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ablate.runners.provenance.code_snapshot import Snapshot, extract
from ablate.store.files.layout import Layout

ROOT = Path(__file__).parent.parent

SPEC = """
from typing import Literal
from ablate.grid import Choice, Experiment, Grid, over
from helper import factor
import package

class Toy(Choice):
    pass

class Mine(Toy):
    kind: Literal["mine"] = "mine"
    rate: float = factor()

class Trial(Experiment):
    kind: Literal["tests_work_tree"] = "tests_work_tree"
    operator: Toy = Mine()

grid = Grid(name="g", base=Trial(), axes=[over("operator.rate", [1.0, 2.0])], seeds=range(2))
"""

TAKE = """
import json, sys
from pathlib import Path
from ablate.runners.provenance.code import Codes
from ablate.runners.provenance.code_snapshot import take
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout
campaign, *files = sys.argv[1:]
planned = [each for file in files for grid in load_spec_file(file).values() for each in grid.trials()]
told = {"trials": {each.key: Codes().sources(each.trial) for each in planned}}
if campaign:
    told["snapshot"] = vars(take(Layout(campaign), [Path(file) for file in files]))
names = ("ablate", "ablate.grid", "helper")
told["modules"] = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
print(json.dumps(told))
"""


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def git(top: Path, *arguments: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "commit.gpgsign=false")
    return run("git", *who, *arguments, cwd=top).strip()


def take(campaign: Path, *files: Path, path: str) -> dict[str, Any]:
    """Load the files and take a snapshot in a process whose import path is `path`."""
    told = run(sys.executable, "-P", "-c", TAKE, campaign, *files, cwd=campaign.parent, PYTHONPATH=path)
    found: dict[str, Any] = json.loads(told)
    return found


def of(told: dict[str, Any]) -> Snapshot:
    return Snapshot.of(told["snapshot"])


def members(campaign: Path, snapshot: Snapshot, place: Path) -> set[str]:
    tree = extract(Layout(campaign).snapshot_tar(snapshot.tar), place)
    return {path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir() or path.is_symlink()}


def users(found: set[str]) -> set[str]:
    return {name for name in found if not name.startswith("code/") and name != "files.b2"}


def copied_rooms(place: Path) -> Path:
    """The package, where nobody else edits it, with its compiled modules: compiling takes two seconds."""
    shutil.copytree(
        ROOT / "src" / "ablate", place / "ablate", ignore=shutil.ignore_patterns("*.pyc.*")
    )  # being written
    return place


def dirty_repository(top: Path) -> Path:
    """A dirty work tree: committed, edited, deleted, untracked and ignored files."""
    (top / "specs").mkdir(parents=True)
    (top / "lib" / "package").mkdir(parents=True)
    (top / "specs" / "my.py").write_text(SPEC)
    (top / "lib" / "helper.py").write_text("from extra import value\ndef factor():\n    return 1.0\n")
    (top / "lib" / "package" / "__init__.py").write_text("")
    (top / "lib" / "package" / "later.py").write_text("late = 1\n")
    (top / "gone.txt").write_text("x")
    (top / "tool.sh").write_text("#!/bin/sh\n")
    (top / "tool.sh").chmod(0o755)
    (top / ".gitignore").write_text("*.log\n__pycache__\n")
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    (top / "lib" / "helper.py").write_text("from extra import value\ndef factor():\n    return value\n")
    (top / "lib" / "extra.py").write_text("value = 3.0\n")
    (top / "notes.txt").write_text("not imported, not committed")
    (top / "noise.log").write_text("ignored")
    (top / "gone.txt").unlink()
    return top
