"""Lists the files of a git work tree: committed, edited and untracked."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from grid.errors import EnvironmentProblem

_PATIENCE_S = 60.0


class WorkTree(NamedTuple):
    """Files of a work tree, relative to `top`, without ignored files."""

    top: Path
    head: str | None
    """Commit; None before the first one."""
    tracked: tuple[str, ...]
    """Files in the index; some may be deleted."""
    untracked: tuple[str, ...]
    changed: tuple[str, ...]
    """Tracked files that differ from `head`."""


def work_tree(place: Path) -> WorkTree | None:
    """Read the work tree around `place`; None without a work tree or without git.

    Raises:
        EnvironmentProblem: git refuses, or takes longer than a minute.
    """
    above = (place, *place.parents)
    if not any((each / ".git").exists() for each in above) or shutil.which("git") is None:
        return None
    top = Path(os.fsdecode(_git(place, "rev-parse", "--show-toplevel").rstrip(b"\n"))).resolve()
    head, changed = _status(top)
    tracked = _list_files(top, "--cached")
    return WorkTree(top, head, tracked, _list_files(top, "--others", "--exclude-standard"), changed)


def _list_files(top: Path, *options: str) -> tuple[str, ...]:
    """List files below `top`, including submodules and nested work trees."""
    found: set[str] = set()
    for name in _names(_git(top, "ls-files", "-z", *options)):
        path = top / name
        if path.is_symlink() or not path.is_dir():
            found.add(name)
        elif (path / ".git").exists():
            inner = _list_files(path, "--cached") + _list_files(path, "--others", "--exclude-standard")
            found.update(f"{name.rstrip('/')}/{each}" for each in inner)
    return tuple(sorted(found))


def _status(top: Path) -> tuple[str | None, tuple[str, ...]]:
    """Read the commit and the tracked files that differ from it."""
    head: str | None = None
    changed: list[str] = []
    for line in _names(_git(top, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--no-renames")):
        if line.startswith("# branch.oid "):
            oid = line.removeprefix("# branch.oid ")
            head = None if oid == "(initial)" else oid
        elif line.startswith(("1 ", "u ")):
            changed.append(line.split(" ", 8 if line[0] == "1" else 10)[-1])
    return head, tuple(sorted(changed))


def _names(answer: bytes) -> list[str]:
    return [os.fsdecode(each) for each in answer.split(b"\0") if each]


def _git(place: Path, *arguments: str) -> bytes:
    """Run git in `place` without the caller's GIT_* variables and without locks."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"git takes longer than {_PATIENCE_S:.0f} s to list {place}; put the spec file into a work tree of its own"
        ) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise EnvironmentProblem(
            f"git cannot say which files {place} has ({said}); make `git -C {place} status` work, or move the spec "
            "file out of the work tree"
        )
    return done.stdout
