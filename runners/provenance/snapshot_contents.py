"""Contents of a snapshot: the project's code and the user's files that a spec file may need.

    code/     the package ablate, wherever it is installed; no assets
    user/     the git work tree of the spec file, as it is on disk; without git, the file and its imports
    user2/... the same for modules and further spec files in other directories

Large files and campaigns of a work tree are left out; spec files and imported modules never are. The project's packages
are only in `code/`, even if the user's work tree is that of the project.
"""

import ast
import os
import posixpath
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, final

from ablate import ROOMS
from ablate.grid.errors import EnvironmentProblem
from ablate.runners.provenance.code import SOURCE, has_source, source_text
from ablate.runners.provenance.origin import PACKAGE, PLACES, is_installed, is_project
from ablate.runners.provenance.source import statements
from ablate.runners.provenance.specfile import SPEC_FOLDERS
from ablate.store.files.atomic import environment_problem

MOST_BYTES_OF_A_FILE = 5 << 20
MOST_BYTES = 64 << 20
"""Limit for all user files together."""

_GIT_TIMEOUT_S = 60.0
GIT_KNOWN_S = 10.0
_LINE_BREAKS = re.compile(r"[\n\r\\]")
"""Files with these in their names are left out: a list of checksums would have to escape them."""


class SnapshotFile(NamedTuple):
    """A file of a snapshot, or a link to a directory of it."""

    data: bytes
    mode: int
    """Permissions of the original file."""
    link: str | None = None


class WorkTree(NamedTuple):
    """Files of a git work tree, relative to `top`, without ignored files."""

    top: Path
    head: str | None
    """Commit; None before the first one."""
    files: tuple[str, ...]
    """Files in the index, also deleted ones, and untracked files."""
    untracked: tuple[str, ...]
    changed: tuple[str, ...]
    """Tracked files that differ from `head`."""


def project_files() -> dict[str, SnapshotFile]:
    """Read the project's code, by path in a snapshot."""
    own = (path for path in PACKAGE.iterdir() if path.is_file())
    below = (path for room in ROOMS for path in _files_below(PACKAGE / room) if "assets" not in path.parts)
    read = {path.relative_to(PACKAGE): _read(path) for path in (*own, *below)}
    return {f"code/ablate/{path.as_posix()}": each for path, each in read.items() if each is not None}


def _files_below(directory: Path) -> Iterator[Path]:
    """Yield files at any depth, sorted, without compiled ones."""
    return (path for path in sorted(directory.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def _read(path: Path) -> SnapshotFile | None:
    """Read the file that `path` leads to; None if it is gone."""
    try:
        with path.open("rb") as file:
            return SnapshotFile(file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise environment_problem("read", path, error) from error


def _read_optional(path: Path, top: Path, total: int) -> SnapshotFile | str | None:
    """Read a file of a work tree, or say why it is left out after `total` bytes of others; None if it is no file."""
    try:
        status = path.stat()
    except OSError:  # gone, or a dangling link
        return None
    if _LINE_BREAKS.search(path.relative_to(top).as_posix()):
        return "a line break or backslash in its name"
    if stat.S_ISDIR(status.st_mode):  # a link, which stays a link unless it leads out of the work tree
        target = path.readlink().as_posix() if path.is_symlink() else "/"
        reached = posixpath.normpath(f"{path.parent.relative_to(top).as_posix()}/{target}")
        outside = target.startswith("/") or reached.startswith("..")
        return "a link to a directory elsewhere" if outside else SnapshotFile(b"", 0o777, target)
    if not stat.S_ISREG(status.st_mode):  # such as a pipe
        return None
    size = f"{status.st_size / (1 << 20):.1f} MB"
    if status.st_size > MOST_BYTES_OF_A_FILE:
        return f"{size}, and the most is {MOST_BYTES_OF_A_FILE >> 20}"
    if total + status.st_size > MOST_BYTES:
        return f"{size}, and all files together would be more than {MOST_BYTES >> 20}"
    try:
        return _read(path)
    except EnvironmentProblem:
        return "it cannot be read"


class _Root(NamedTuple):
    """A user directory and its name in the snapshot."""

    directory: Path
    inside: str
    tree: WorkTree | None

    def name(self, path: Path) -> str:
        below = path.relative_to(self.directory).as_posix()
        return self.inside if below == "." else f"{self.inside}/{below}"


@final
class UserFiles:
    """The user's files that loaded spec files need to run from a copy.

    Raises EnvironmentProblem if a file that is needed cannot be read, or git refuses to list them.
    """

    def __init__(self, specs: Sequence[Path]) -> None:
        self.members: dict[str, SnapshotFile] = {}
        """By path in the snapshot."""
        self.left_out: list[str] = []
        """Files that are left out, with reasons."""
        self._roots: list[_Root] = []
        self._homes: list[Path] = []
        self._packages: dict[Path, None] = {}
        """Directories of packages, in order."""
        self._bytes = 0
        self.spec = tuple(self._require(file.resolve(), file.resolve().parent) for file in specs)
        """The spec files, as paths in the snapshot."""
        for module in sorted(_user_modules(), key=lambda each: str(each.__file__)):
            if SOURCE not in vars(module):
                self._require_module(module)
        self._add_optional()

    @property
    def tree(self) -> WorkTree | None:
        """The work tree of the first spec file."""
        return self._roots[0].tree if self._roots else None

    def _require(self, file: Path, home: Path) -> str:
        """Add a spec file, or a module that is looked up in `home`; return its path inside."""
        root = self._root_of(file, home)
        member = _read(file)
        if member is None:
            raise EnvironmentProblem(
                f"{file} was loaded and has gone since; put it back and run the same command again"
            )
        self._add_member(root.name(file), member)
        return root.name(file)

    def _require_module(self, module: ModuleType) -> None:
        """Add a module; without git, its whole package follows, since more may be imported later.

        Modules loaded by path are left out, since their name does not lead to their file.
        """
        file, names = Path(str(module.__file__)).resolve(), module.__name__.split(".")
        stem = file.name.partition(".")[0]
        at = file.parent if stem == "__init__" else file.with_name(stem)
        if len(names) >= len(at.parts) or at.parts[-len(names) :] != tuple(names):
            return
        home = at.parents[len(names) - 1]  # must be on the import path for the name to mean the file
        self._require(file, home)
        self._homes.append(home)
        self._packages[home / names[0]] = None

    def _root_around(self, path: Path) -> _Root | None:
        return next((root for root in self._roots if path.is_relative_to(root.directory)), None)

    def _root_of(self, path: Path, home: Path) -> _Root:
        root = self._root_around(path)
        if root is None:
            tree, number = work_tree(home), len(self._roots) + 1
            root = _Root(tree.top if tree else home, f"user{number if number > 1 else ''}", tree)
            self._roots.append(root)
        return root

    def _add_member(self, name: str, member: SnapshotFile) -> None:
        if name not in self.members:
            self.members[name] = member
            self._bytes += len(member.data)

    def _add_optional(self) -> None:
        """Add the other files up to the size limits, Python files and small files first."""
        for root in self._roots:
            sizes: dict[Path, int] = {}
            for path in self._list_files(root.tree) if root.tree else self._list_packages(root):
                with suppress(OSError):  # it is gone, or a dangling link
                    sizes[path] = path.stat().st_size
            for path in sorted(sizes, key=lambda path: (path.suffix != ".py", sizes[path], path)):
                name = root.name(path)
                member = None if name in self.members else _read_optional(path, root.directory, self._bytes)
                if isinstance(member, str):
                    self.left_out.append(f"{path.relative_to(root.directory)}: {member}")
                elif member is not None:
                    self._add_member(name, member)

    def _list_packages(self, root: _Root) -> Iterator[Path]:
        """Yield the files of packages in a directory without git."""
        return (path for each in self._packages if each.is_relative_to(root.directory) for path in _files_below(each))

    def _list_files(self, tree: WorkTree) -> Iterator[Path]:
        parents = {parent for name in tree.files for parent in Path(name).parents} - {Path()}
        campaigns = sorted(each for each in parents if any((tree.top / each).glob("grids/*.trials.jsonl")))
        self.left_out += [f"{each}: a campaign" for each in campaigns]
        for name in tree.files:
            path = tree.top / name
            inside = any(map(Path(name).is_relative_to, campaigns)) or any(map(path.is_relative_to, PLACES))
            if not inside and "__pycache__" not in path.parts:
                yield path

    def paths(self) -> list[str]:
        """List import path entries in the snapshot, in order, then directories of other modules.

        Directories of spec files are left out: loading a spec file puts its directory last on the path.
        """
        holding = {str(parent) for name in self.members for parent in Path(name).parents}
        inside: dict[str, None] = {}
        for place in (*(Path(entry).resolve() for entry in sys.path), *self._homes):
            root = None if place in SPEC_FOLDERS else self._root_around(place)
            if root is not None and root.name(place) in holding:
                inside[root.name(place)] = None
        return list(inside)


def work_tree(place: Path) -> WorkTree | None:
    """Read the git work tree around `place`; None without a work tree or without git.

    Raises EnvironmentProblem if git refuses, or takes longer than a minute.
    """
    if not any((each / ".git").exists() for each in (place, *place.parents)) or shutil.which("git") is None:
        return None
    top = Path(_git(place, "rev-parse", "--show-toplevel")[0].removesuffix("\n")).resolve()
    head: str | None = None
    changed: list[str] = []
    for line in _git(top, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--no-renames"):
        if line.startswith("# branch.oid ") and not line.endswith(" (initial)"):
            head = line.removeprefix("# branch.oid ")
        elif line.startswith(("1 ", "u ")):
            changed.append(line.split(" ", 8 if line[0] == "1" else 10)[-1])
    tracked, untracked = _list_files(top, "--cached"), _list_files(top, "--others", "--exclude-standard")
    return WorkTree(top, head, tuple(sorted({*tracked, *untracked})), tuple(untracked), tuple(sorted(changed)))


def git_state(place: Path) -> dict[str, Any] | None:
    """Return the commit of the git work tree around `place`, and whether tracked files differ from it.

    None without a work tree, a commit or a working git. The answer may be `GIT_KNOWN_S` old, since git takes longer
    in a large tree than a short trial.
    """
    return _git_state(place, time.monotonic() // GIT_KNOWN_S)


@lru_cache(maxsize=64)
def _git_state(place: Path, _when: float) -> dict[str, Any] | None:
    if not any((each / ".git").exists() for each in (place, *place.parents)):
        return None
    with suppress(OSError, EnvironmentProblem):
        (told,) = _git(place, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
        commit, _, dirty = told.strip().partition("-")
        return {"commit": commit, "dirty": bool(dirty)}
    return None


def _list_files(top: Path, *options: str) -> list[str]:
    """List files below `top`, including submodules and nested work trees."""
    files: set[str] = set()
    for name in _git(top, "ls-files", "-z", *options):
        path = top / name
        if path.is_symlink() or not path.is_dir():
            files.add(name)
        elif (path / ".git").exists():
            inner = {*_list_files(path, "--cached"), *_list_files(path, "--others", "--exclude-standard")}
            files.update(f"{name.rstrip('/')}/{each}" for each in inner)
    return sorted(files)


def _git(place: Path, *arguments: str) -> list[str]:
    """Run git in `place` without the caller's GIT_* variables and without locks; split its output at NUL."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *arguments],
            env={**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"git takes longer than {_GIT_TIMEOUT_S:.0f} s to list {place}; put the spec file into a work tree of its "
            "own"
        ) from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise EnvironmentProblem(
            f"git cannot say which files {place} has ({said}); make `git -C {place} status` work, or move the spec "
            "file out of the work tree"
        )
    return [os.fsdecode(each) for each in done.stdout.split(b"\0") if each]


def user_imports() -> frozenset[str]:
    """Collect the top-level names that the user's spec files and modules import anywhere."""
    texts = [source_text(each) for each in _user_modules() if has_source(each)]
    return frozenset().union(*map(_find_imports, texts))


def _user_modules() -> list[ModuleType]:
    named = [each for each in list(sys.modules.values()) if getattr(each, "__name__", "__main__") != "__main__"]
    files = [getattr(each, "__file__", None) or "" for each in named]
    return [
        each
        for each, file in zip(named, files, strict=True)
        if SOURCE in vars(each) or not (is_project(file) or is_installed(file))
    ]


@cache  # a notebook submits again and again with the same modules
def _find_imports(text: str) -> frozenset[str]:
    nodes = [node for statement in statements(text) for node in ast.walk(statement)]
    plain = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    origins = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level and node.module}
    return frozenset(name.partition(".")[0] for name in plain | origins)
