"""Contents of a snapshot: the project's code and the user's files that a spec file may need.

    code/     ablate.py, grid, variants, runners, store and dashboards, wherever they are installed
    user/     the git work tree of the spec file, as it is on disk; without git, the file and its imports
    user2/... the same for modules and further spec files in other directories

Large files and campaigns of a work tree are left out; spec files and imported modules never are. The project's packages
are only in `code/`, even if the user's work tree is that of the project.
"""

import os
import posixpath
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, final

from grid.errors import EnvironmentProblem
from runners.provenance.origin import FACADE, PROJECT, ROOMS
from runners.provenance.snapshot_git import WorkTree, work_tree
from runners.provenance.snapshot_modules import UserModule, user_modules
from runners.provenance.specfile import SPEC_FOLDERS
from store.files.atomic import environment_problem

MOST_BYTES_OF_A_FILE = 5 << 20
MOST_BYTES = 64 << 20
"""Limit for all user files together."""

_LINE_BREAKS = re.compile(r"[\n\r\\]")
"""A list of checksums would have to escape these in names."""


class SnapshotFile(NamedTuple):
    """A file of a snapshot, or a link to a directory of it."""

    data: bytes
    mode: int
    """Permissions of the file it was read from."""
    link: str | None = None


def files_below(directory: Path) -> Iterator[Path]:
    """Files at any depth, apart from what Python compiled, sorted."""
    return (path for path in sorted(directory.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)


def read_member(path: Path) -> SnapshotFile | None:
    """The file `path`, links followed; None where it has gone since it was listed.

    Raises:
        EnvironmentProblem: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return SnapshotFile(file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise environment_problem("read", path, error) from error


def optional_member(path: Path, top: Path) -> SnapshotFile | str | None:
    """The file `path` below `top` as a member; or why it cannot be one; None where it has gone."""
    if path.is_dir():
        return _link(path, top) or "a link to a directory elsewhere"
    try:
        return read_member(path)
    except EnvironmentProblem:
        return "it cannot be read"


def _link(path: Path, top: Path) -> SnapshotFile | None:
    """A symbolic link to a directory stays a link, unless it leads out of `top`."""
    target = path.readlink().as_posix()
    reached = posixpath.normpath(f"{path.parent.relative_to(top).as_posix()}/{target}")
    return None if target.startswith("/") or reached.startswith("..") else SnapshotFile(b"", 0o777, target)


def size_of(path: Path) -> int | None:
    """Bytes of a file; 0 for a link to a directory; None for what is gone, dangling, or no file, such as a pipe."""
    try:
        about = path.stat()
    except OSError:
        return None
    if stat.S_ISDIR(about.st_mode) and path.is_symlink():
        return 0
    return about.st_size if stat.S_ISREG(about.st_mode) else None


def objection(name: str, size: int, total: int) -> str | None:
    """Why a file that is not needed for sure is left out of a snapshot that has `total` bytes so far."""
    if _LINE_BREAKS.search(name):
        return "a line break or backslash in its name"
    if size > MOST_BYTES_OF_A_FILE:
        return f"{size / (1 << 20):.1f} MB, and the most is {MOST_BYTES_OF_A_FILE >> 20}"
    if total + size > MOST_BYTES:
        return f"{size / (1 << 20):.1f} MB, and all files together would be more than {MOST_BYTES >> 20}"
    return None


class Contents(NamedTuple):
    """Contents of a snapshot, by path inside it."""

    members: dict[str, SnapshotFile]
    spec: tuple[str, ...]
    """The spec files."""
    paths: tuple[str, ...]
    """Import path, in order."""
    tree: WorkTree | None
    """The work tree in `user/`."""
    left_out: tuple[str, ...]
    """User files that are left out, with reasons."""


def gather(files: Sequence[Path]) -> Contents:
    """Read all files that the loaded spec files need to run from a copy.

    Raises:
        EnvironmentProblem: a file that is needed cannot be read, or git refuses to list them.
    """
    users = _Users()
    spec = tuple(users.require(file.resolve(), file.resolve().parent) for file in files)
    for module in user_modules():
        users.require_module(module)
    users.add_work_trees()
    tree = users.roots[0].tree if users.roots else None
    return Contents({**_rooms(), **users.members}, spec, ("code", *users.paths()), tree, tuple(users.left_out))


def _rooms() -> dict[str, SnapshotFile]:
    paths = [PROJECT / name for name in FACADE] + [path for room in ROOMS for path in files_below(PROJECT / room)]
    found = {path: read_member(path) for path in paths}
    return {f"code/{path.relative_to(PROJECT).as_posix()}": each for path, each in found.items() if each is not None}


class _Root(NamedTuple):
    """A user directory and its name in the snapshot."""

    directory: Path
    inside: str
    tree: WorkTree | None

    def name(self, path: Path) -> str:
        below = path.relative_to(self.directory).as_posix()
        return self.inside if below == "." else f"{self.inside}/{below}"


@final
class _Users:
    """Collects the user's files."""

    def __init__(self) -> None:
        self.roots: list[_Root] = []
        self.members: dict[str, SnapshotFile] = {}
        self.left_out: list[str] = []
        self._homes: list[Path] = []
        self._packages: set[Path] = set()
        self._left_where_they_are: set[Path] = set()
        self._bytes = 0

    def require(self, file: Path, home: Path) -> str:
        """Add a spec file, or a module that is looked up in `home`; returns its path inside."""
        root = self._around(file) or self._begin(home)
        member = read_member(file)
        if member is None:
            raise EnvironmentProblem(
                f"{file} was loaded and has gone since; put it back and run the same command again"
            )
        self._add_member(root.name(file), member)
        return root.name(file)

    def require_module(self, module: UserModule) -> None:
        """Add a module; without git, add its whole package, since more may be imported later.

        A package that is too large is left out as a whole: a partial copy would hide the original.
        """
        if module.package in self._left_where_they_are:
            return
        root = self._around(module.file) or self._begin(module.home)
        if root.tree is None and module.package is not None and module.package not in self._packages:
            self._packages.add(module.package)
            files = list(files_below(module.package))
            if self._bytes + sum(size_of(file) or 0 for file in files) > MOST_BYTES:
                self._left_where_they_are.add(module.package)
                self.left_out.append(f"{module.package}: a package of more than {MOST_BYTES >> 20} MB, used as it is")
                return
            for file in files:
                self.require(file, module.home)
        self.require(module.file, module.home)
        self._homes.append(module.home)

    def _around(self, path: Path) -> _Root | None:
        return next((root for root in self.roots if path.is_relative_to(root.directory)), None)

    def _begin(self, home: Path) -> _Root:
        tree = work_tree(home)
        number = len(self.roots) + 1
        self.roots.append(_Root(tree.top if tree else home, f"user{number if number > 1 else ''}", tree))
        return self.roots[-1]

    def _add_member(self, name: str, member: SnapshotFile) -> None:
        if name not in self.members:
            self.members[name] = member
            self._bytes += len(member.data)

    def add_work_trees(self) -> None:
        """Add the files that git lists."""
        for root in self.roots:
            if root.tree is not None:
                self._add(root, self._list_files(root.tree))

    def _list_files(self, tree: WorkTree) -> Iterator[Path]:
        rooms = [PROJECT / name for name in (*ROOMS, *FACADE)]
        campaigns: dict[Path, bool] = {}
        for name in (*tree.tracked, *tree.untracked):
            path = tree.top / name
            if "__pycache__" in path.parts or any(map(path.is_relative_to, rooms)):
                continue
            above = path.parents[: len(Path(name).parts) - 1]
            if not any(_is_campaign(each, campaigns) for each in above):
                yield path
        found = sorted(each.relative_to(tree.top) for each, is_one in campaigns.items() if is_one)
        self.left_out += [f"{each}: a campaign" for each in found]

    def _add(self, root: _Root, paths: Iterable[Path]) -> None:
        """Add files up to the size limits, Python files and small files first."""
        sizes = {path: size for path in paths if (size := size_of(path)) is not None}
        for path, size in sorted(sizes.items(), key=lambda each: (each[0].suffix != ".py", each[1], each[0])):
            name = root.name(path)
            if name in self.members:
                continue
            found = objection(name, size, self._bytes) or optional_member(path, root.directory)
            if isinstance(found, str):
                self.left_out.append(f"{path.relative_to(root.directory)}: {found}")
            elif found is not None:
                self._add_member(name, found)

    def paths(self) -> list[str]:
        """List import path entries in the snapshot, in order, then directories of other modules.

        Directories of spec files are left out: loading a spec file puts its directory last on the path.
        """
        holding = {str(parent) for name in self.members for parent in Path(name).parents}
        found: dict[str, None] = {}
        for place in (*(Path(entry).resolve() for entry in sys.path), *self._homes):
            root = None if place in SPEC_FOLDERS else self._around(place)
            if root is not None and root.name(place) in holding:
                found[root.name(place)] = None
        return list(found)


def _is_campaign(directory: Path, known: dict[Path, bool]) -> bool:
    if directory not in known:
        known[directory] = any(directory.glob("grids/*.trials.jsonl"))
    return known[directory]
