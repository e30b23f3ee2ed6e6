"""Snapshot of the submitted code: workers run it, so later edits do not matter.

A snapshot is an uncompressed tar, named by its hash; equal trees share one file. It contains `files.b2`, a list for
`b2sum --check`, so that workers can detect a damaged copy on a node.
"""

import io
import os
import shlex
import site
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, final

from ablate.grid.errors import NotFoundError, StoreError
from ablate.runners.output import slow_notice
from ablate.runners.provenance.snapshot_contents import SnapshotFile, UserFiles, project_files
from ablate.store.files.atomic import environment_problem, make_directory, write_atomic
from ablate.store.files.layout import Layout

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
    """Permissions of the tar: those that all its files grant."""


def take(layout: Layout, files: Sequence[Path]) -> Snapshot:
    """Pack what the spec files `files`, loaded before, need, and write it unless the campaign has it.

    Raises EnvironmentProblem if a file cannot be read, git refuses, or the campaign cannot be written.
    """
    packed = pack(files)
    write(layout, packed)
    return packed.snapshot


@slow_notice("packing the snapshot: the tree that is submitted")
def pack(files: Sequence[Path]) -> Packed:
    """Pack the present tree; write nothing. Raise EnvironmentProblem if a file cannot be read, or git refuses."""
    users = UserFiles(files)
    members, tree = project_files() | users.members, users.tree
    checksums = [
        f"{blake2b(member.data, digest_size=16).hexdigest()}  {name}\n"
        for name, member in sorted(members.items())
        if member.link is None
    ]
    tar = _tar({**members, CHECKSUMS: SnapshotFile("".join(checksums).encode("utf-8", "surrogateescape"), 0o444)})
    user_site = f"{site.getusersitepackages()}/"
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    snapshot = Snapshot(
        tar=blake2b(tar, digest_size=16).hexdigest(),
        spec=users.spec,
        paths=("code", *users.paths()),
        head=tree.head if tree else None,
        changed=_shorten(tree.changed if tree else ()),
        untracked=_shorten(tree.untracked if tree else ()),
        left_out=_shorten(users.left_out),
        user_site=any(file.startswith(user_site) for file in modules),
    )
    mode = 0o444
    for member in members.values():
        mode &= member.mode | 0o400
    return Packed(snapshot, tar, mode)


def write(layout: Layout, packed: Packed) -> Path:
    """Write the tar under its name, unless it is there and whole.

    Raises EnvironmentProblem if the campaign cannot be written.
    """
    path = layout.snapshot_tar(packed.snapshot.tar)
    try:
        if not path.exists() or path.read_bytes() != packed.tar:
            write_atomic(path, packed.tar, packed.mode)
        status = path.stat()
        if status.st_mode & 0o777 & ~packed.mode and status.st_uid == os.getuid():
            path.chmod(status.st_mode & packed.mode)  # an equal tree was submitted when its files were not private yet
    except OSError as error:
        raise environment_problem("write", path, error) from error
    return path


def _shorten(names: Sequence[str]) -> tuple[str, ...]:
    more = len(names) - _MOST_NAMES
    return (*names[:_MOST_NAMES], f"... and {more} more") if more > 0 else tuple(names)


def _tar(members: Mapping[str, SnapshotFile]) -> bytes:
    """Return the same bytes for the same names and contents."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
        for name, member in sorted(members.items()):
            header = tarfile.TarInfo(name)
            header.size, header.mode = len(member.data), 0o555 if member.mode & 0o100 else 0o444
            if member.link is not None:
                header.type, header.linkname, header.mode = tarfile.SYMTYPE, member.link, 0o777
            tar.addfile(header, io.BytesIO(member.data))
    return sink.getvalue()


UNUSABLE = 87
"""Exit status of a job on a node where the tree cannot be made."""

_SCRIPT = """\
ablate_refuse() { printf 'ablate: on %s %s\\n' "$(uname -n)" "$1" >&2; exit @UNUSABLE@; }
ablate_tar=@TAR@
ablate_trees="${ABLATE_TREES:-${TMPDIR:-/tmp}/ablate-$(id -u)}"
case "$ablate_trees" in
*:*) ablate_refuse "the place for trees, $ablate_trees, has a colon in its name; set ABLATE_TREES to another" ;;
esac
for ablate_late in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do  # a network file system may show it late
    [ ! -e "$ablate_tar" ] || break
    sleep "${ABLATE_LATE_S:-3}"
done
[ "$({ b2sum -l 128 < "$ablate_tar"; } 2>/dev/null)" = '@HASH@  -' ] ||
    ablate_refuse "the bytes of $ablate_tar do not have the hash in its name: it is not there or damaged; submit again"
mkdir -p -m 700 -- "$ablate_trees" 2>/dev/null || :
[ -d "$ablate_trees" ] && [ ! -h "$ablate_trees" ] && [ -O "$ablate_trees" ] &&
    [ -z "$(find "$ablate_trees" -prune -perm /022)" ] ||
    ablate_refuse "$ablate_trees is no directory of yours that nobody else may write to; set ABLATE_TREES to another"
ablate_whole() { (cd -- "$1" && b2sum --check --status @CHECKSUMS@) 2>/dev/null; }
ablate_moved() { mv -T -- "$1" "$2" 2>/dev/null || [ -d "$2" ]; }
ablate_extract() {
    ablate_draft="$(mktemp -d "$ablate_trees/.@HASH@.XXXXXXXX")" || return 1
    ablate_made=0
    { tar -x -m --no-same-owner -f "$ablate_tar" -C "$ablate_draft" && ablate_whole "$ablate_draft" &&
        chmod -R a-w -- "$ablate_draft" && ablate_moved "$ablate_draft" "$1"; } || ablate_made=1
    if [ -d "$ablate_draft" ]; then chmod -R u+w -- "$ablate_draft" && rm -rf -- "$ablate_draft"; fi
    return "$ablate_made"
}
for ablate_tree in "$ablate_trees/@HASH@" "$ablate_trees/@HASH@.1" "$ablate_trees/@HASH@.2" ''; do
    [ -n "$ablate_tree" ] || ablate_refuse "every copy of the tree in $ablate_trees is damaged; remove them"
    [ -e "$ablate_tree" ] || ablate_extract "$ablate_tree" ||
        ablate_refuse "the tree cannot be made in $ablate_trees; make room there, or set ABLATE_TREES to another place"
    if ablate_whole "$ablate_tree"; then break; fi
done
export ABLATE_TREE="$ablate_tree"
export PYTHONPATH=@PATHS@"${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1"""


def shell_lines(tar: Path, snapshot: Snapshot) -> list[str]:
    """Return lines for `sh` that extract the tree on a node's own disk and put it first on Python's path.

    They go after the user's set-up, which may set PYTHONPATH. Jobs of a node share the tree `$ABLATE_TREE`, which is
    `${ABLATE_TREES:-${TMPDIR:-/tmp}/ablate-$(id -u)}/<hash>`. A damaged copy stays, since a job may run from it, and
    a new one is made beside it. Without a sound tree, the job ends with a sentence and the exit status `UNUSABLE`.
    """
    paths = ":".join(f'"$ablate_tree"/{shlex.quote(path)}' for path in snapshot.paths)
    values = {"TAR": shlex.quote(str(tar)), "HASH": snapshot.tar, "PATHS": paths}
    script = _SCRIPT
    for name, value in {**values, "CHECKSUMS": CHECKSUMS, "UNUSABLE": str(UNUSABLE)}.items():
        script = script.replace(f"@{name}@", value)
    return [*script.splitlines(), *([] if snapshot.user_site else ["export PYTHONNOUSERSITE=1"])]


def extract(tar: Path, place: Path) -> Path:
    """Extract `tar` into the directory `place`; its bytes must have the hash in its name.

    Raises:
        NotFoundError: there is no such tar.
        StoreError: it was altered, or would write outside of `place`.
        EnvironmentProblem: the place cannot be written.
    """
    try:
        data = tar.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no file {tar}, which holds the code that was submitted; put it back") from error
    if blake2b(data, digest_size=16).hexdigest() != tar.stem:
        raise StoreError(f"the bytes of {tar} do not have the hash in its name; it was torn or altered")
    make_directory(place)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as archive:
            archive.extractall(place, filter="data")
    except tarfile.TarError as error:
        raise StoreError(f"{tar} is no tree that was submitted ({error}); it was altered") from error
    except OSError as error:
        raise environment_problem("extract a tree to", place, error) from error
    return place
