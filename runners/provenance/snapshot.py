"""Snapshot of the submitted code: workers run it, so later edits do not matter.

A snapshot is an uncompressed tar, named by its hash; equal trees share one file. It contains `files.b2`, a list for
`b2sum --check`, so that workers can detect a damaged copy on a node.
"""

import io
import os
import site
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, final

from runners.provenance.snapshot_contents import SnapshotFile, gather
from runners.slow_notice import slow_notice
from store.files.atomic import environment_problem, write_atomic
from store.files.layout import Layout

CHECKSUMS = "files.b2"
_MOST_NAMES = 50
"""Most file names of each kind in the record."""


@final
@dataclass(frozen=True)
class Snapshot:
    """A snapshot in a submission record; paths are relative to it."""

    tar: str
    """blake2b-128 of the tar, 32 hexadecimal digits."""
    spec: tuple[str, ...]
    """The spec files."""
    paths: tuple[str, ...]
    """Directories for PYTHONPATH, in order."""
    head: str | None = None
    """The commit of the spec file's work tree; None without git, or before the first commit."""
    changed: tuple[str, ...] = ()
    """Tracked files that differ from `head`."""
    untracked: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """User files that are left out, with reasons."""
    user_site: bool = False
    """True if the user site directory was in use."""

    @property
    def dirty(self) -> bool:
        """True if the work tree differs from `head`."""
        return bool(self.changed or self.untracked)

    def data(self) -> dict[str, Any]:
        """Convert to JSON data."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Snapshot":
        """Read JSON data; unknown fields are ignored."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        fields: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in known.items()}
        return cls(**fields)

    def files(self, tree: Path) -> tuple[Path, ...]:
        """List the spec files in the copy `tree`."""
        return tuple(tree / name for name in self.spec)


class Packed(NamedTuple):
    """A snapshot that is not written yet."""

    snapshot: Snapshot
    tar: bytes
    mode: int
    """Permissions of its file: who may not read one of the files in it may not read it either."""


def take(layout: Layout, files: Sequence[Path]) -> Snapshot:
    """Pack what the spec files `files`, loaded before, need, and write it where the campaign does not have it yet.

    Raises:
        EnvironmentProblem: a file cannot be read, git refuses, or the campaign cannot be written.
    """
    packed = pack(files)
    write(layout, packed)
    return packed.snapshot


@slow_notice("packing the snapshot: the tree that is submitted")
def pack(files: Sequence[Path]) -> Packed:
    """The tree as it is now; writes nothing.

    Raises:
        EnvironmentProblem: a file cannot be read, or git refuses.
    """
    contents = gather(files)
    tar = _tar(contents.members)
    tree = contents.tree
    snapshot = Snapshot(
        tar=blake2b(tar, digest_size=16).hexdigest(),
        spec=contents.spec,
        paths=contents.paths,
        head=tree.head if tree else None,
        changed=_first(tree.changed if tree else ()),
        untracked=_first(tree.untracked if tree else ()),
        left_out=_first(contents.left_out),
        user_site=_uses_user_site(),
    )
    mode = 0o444
    for member in contents.members.values():
        mode &= member.mode | 0o400
    return Packed(snapshot, tar, mode)


def write(layout: Layout, packed: Packed) -> Path:
    """Publish the tar under its name; one that is there and whole stays.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
    """
    path = layout.snapshot_tar(packed.snapshot.tar)
    if not _holds(path, packed.tar):
        write_atomic(path, packed.tar, packed.mode)
    _narrow(path, packed.mode)
    return path


def _narrow(path: Path, mode: int) -> None:
    """An equal tree may have been submitted when its files were not private yet."""
    try:
        found = path.stat()
        if found.st_mode & 0o777 & ~mode and found.st_uid == os.getuid():
            path.chmod(found.st_mode & mode)
    except OSError as error:
        raise environment_problem("write", path, error) from error


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False
    except OSError as error:
        raise environment_problem("read", path, error) from error


def _first(names: Sequence[str]) -> tuple[str, ...]:
    more = len(names) - _MOST_NAMES
    return (*names[:_MOST_NAMES], f"... and {more} more") if more > 0 else tuple(names)


def _tar(members: Mapping[str, SnapshotFile]) -> bytes:
    """The same bytes for the same names and contents."""
    found = {**members, CHECKSUMS: SnapshotFile(_checksums(members), 0o444)}
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
        for name in sorted(found):
            tar.addfile(_header(name, found[name]), io.BytesIO(found[name].data))
    return sink.getvalue()


def _header(name: str, member: SnapshotFile) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size = len(member.data)
    header.mode = 0o555 if member.mode & 0o100 else 0o444
    if member.link is not None:
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, member.link, 0o777
    return header


def _checksums(members: Mapping[str, SnapshotFile]) -> bytes:
    lines = [
        f"{blake2b(members[name].data, digest_size=16).hexdigest()}  {name}\n"
        for name in sorted(members)
        if members[name].link is None
    ]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _uses_user_site() -> bool:
    place = site.getusersitepackages()
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return any(file.startswith(f"{place}/") for file in files if file)
