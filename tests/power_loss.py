"""Possible states of a file system after a power cut, at any step of a program.

    with recorded(root) as disk:
        write(...)
        disk.acknowledge()
    for left in disk.states():
        left.make(elsewhere)

The rules are those of POSIX and no more. Bytes of a file survive from its fsync on; before, any beginning of
them may. A name that was made, changed or removed survives from the fsync of its directory on; before, each such
change may have happened or not, whatever came after it. Files are seen from their fsync or rename on.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

DIRECTORY = None
Tree = dict[str, bytes | None]
"""By path below the root what a file holds; `DIRECTORY` of a directory."""
Step = tuple[str, str, Any]
"""An operation, its path, and its argument: bytes, a new path, or nothing."""


class Left(NamedTuple):
    """One state that the disk may be in after the power went."""

    steps: int
    """Operations before the power cut."""
    acknowledged: int
    """How often the program had said that its work is done."""
    tree: Tree

    def make(self, place: Path) -> Path:
        """The state as files in `place`, which holds nothing else afterwards."""
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for path in sorted(self.tree):
            content = self.tree[path]
            place.joinpath(path).mkdir() if content is DIRECTORY else place.joinpath(path).write_bytes(content)
        return place


class Disk:
    """The steps that a program took below a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._first = {
            self._inside(path): DIRECTORY if path.is_dir() else path.read_bytes() for path in self._root.rglob("*")
        }
        self._known = set(self._first)
        self._steps: list[Step] = []
        self._acknowledged: list[int] = []

    def acknowledge(self) -> None:
        """From here on the program counts on what it has written."""
        self._acknowledged.append(len(self._steps))

    def states(self) -> Iterator[Left]:
        """Every state that the power may leave, cut after each step."""
        for cut in range(len(self._steps) + 1):
            model = _Model(self._first)
            for step in self._steps[:cut]:
                model.do(*step)
            acknowledged = sum(at <= cut for at in self._acknowledged)
            for tree in model.after_a_crash():
                yield Left(cut, acknowledged, tree)

    def saw(self, what: str, path: Any, other: Any = None) -> None:
        """Note one step, where it is below the root."""
        place = Path(path).absolute()
        if not place.is_relative_to(self._root):
            return
        name = self._inside(place)
        if what in ("sync", "rename") and name not in self._known and place.is_file():
            self._steps.append(("create", name, place.read_bytes()))
        if what == "rename":
            other = self._inside(Path(other).absolute())
        self._known.add(other if what == "rename" else name)
        self._steps.append((what, name, place.read_bytes() if what == "sync" else other))

    def _inside(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


@contextmanager
def recorded(root: Path) -> Iterator[Disk]:
    """Record the operations of this process below `root`. Everything that is there already survives."""
    disk = Disk(root)

    def noted(what: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def done(path: Any, *more: Any, **named: Any) -> Any:
            if what == "rename":
                disk.saw(what, path, more[0])
                return plain(path, *more, **named)
            found = plain(path, *more, **named)
            if not named.get("dir_fd"):
                disk.saw(what, path)
            return found

        return done

    plain = os.fsync

    def fsync(descriptor: int) -> None:
        plain(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        disk.saw("sync names" if path.is_dir() else "sync", path)

    named = {name: patch.object(os, name, noted(name, getattr(os, name))) for name in ("mkdir", "rename", "unlink")}
    with named["mkdir"], named["rename"], named["unlink"], patch.object(os, "fsync", fsync):
        yield disk


class _Model:
    """Files and directories by number; a directory's names as they are, as they are for good, and what may happen."""

    def __init__(self, tree: Tree) -> None:
        self._names: dict[int, dict[str, int]] = {0: {}}
        self._durable: dict[int, dict[str, int]] = {0: {}}
        self._pending: dict[int, list[dict[str, int | None]]] = {0: []}
        self._written: dict[int, bytes] = {}
        self._synced: dict[int, bytes] = {}
        for path in sorted(tree):
            content = tree[path]
            self.do("mkdir", path, None) if content is DIRECTORY else self.do("create", path, content)
        self._synced = dict(self._written)
        for directory in self._names:
            self._settle(directory)

    def do(self, what: str, path: str, other: Any) -> None:
        """One step."""
        above, _, name = path.rpartition("/")
        if what == "sync names":
            self._settle(self._number(path))
        elif what == "sync":
            self._synced[self._number(path)] = self._written[self._number(path)] = other
        elif what in ("mkdir", "create"):
            number = len(self._names) + len(self._written)
            if what == "mkdir":
                self._names[number], self._durable[number], self._pending[number] = {}, {}, []
            else:
                self._written[number] = other
            self._change(self._number(above), {name: number})
        elif what == "unlink":
            self._change(self._number(above), {name: None})
        else:
            to, _, new = other.rpartition("/")
            assert to == above, "a rename from one directory to another is not modelled"
            self._change(self._number(above), {name: None, new: self._number(path)})

    def after_a_crash(self) -> Iterator[Tree]:
        """Every state once."""
        pending = [(at, change) for at, changes in self._pending.items() for change in changes]
        found: list[Tree] = []
        for happened in product((False, True), repeat=len(pending)):
            names = {at: dict(durable) for at, durable in self._durable.items()}
            for (at, change), done in zip(pending, happened, strict=True):
                for name, number in change.items() if done else ():
                    _set(names[at], name, number)
            for torn in (0.0, 0.5, 1.0):
                tree: Tree = {}
                self._walk(0, "", names, torn, tree)
                if tree not in found:
                    found.append(tree)
                    yield tree

    def _walk(self, at: int, above: str, names: dict[int, dict[str, int]], torn: float, tree: Tree) -> None:
        for name, number in names[at].items():
            path = f"{above}{name}"
            if number in names:
                tree[path] = DIRECTORY
                self._walk(number, f"{path}/", names, torn, tree)
            else:
                written = self._written[number]
                tree[path] = self._synced.get(number, written[: round(torn * len(written))])

    def _number(self, path: str) -> int:
        at = 0
        for name in path.split("/") if path not in ("", ".") else ():
            at = self._names[at][name]
        return at

    def _change(self, at: int, change: dict[str, int | None]) -> None:
        for name, number in change.items():
            _set(self._names[at], name, number)
        self._pending[at].append(change)

    def _settle(self, at: int) -> None:
        self._durable[at], self._pending[at] = dict(self._names[at]), []


def _set(names: dict[str, int], name: str, number: int | None) -> None:
    if number is None:
        names.pop(name, None)
    else:
        names[name] = number
