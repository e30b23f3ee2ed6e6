"""Making the submitted tree out of its tar: by shell lines before Python starts, or by Python for a repetition.

The shell does it on nodes, because code of the harness that runs before the tree is there would be the edited one.
"""

import io
import shlex
import tarfile
from hashlib import blake2b
from pathlib import Path

from grid.errors import NotFoundError, StoreError
from runners.provenance.snapshot import CHECKSUMS, Snapshot
from store.files.atomic import environment_problem, make_directory

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
    """Lines for `sh` that make the tree on a node's own disk and put it first on Python's path.

    They go after the user's own set-up, which may set PYTHONPATH, and before Python. The tree is shared by jobs of one
    node, at once or later; `$ABLATE_TREE` is where it lies: `${ABLATE_TREES:-${TMPDIR:-/tmp}/ablate-$(id -u)}/<hash>`.
    A damaged copy is passed over for a new one beside it, for a job may be running from it. Where no sound tree can be
    made, the job ends with a sentence on stderr and the exit status `UNUSABLE`.
    """
    paths = ":".join(f'"$ablate_tree"/{shlex.quote(path)}' for path in snapshot.paths)
    values = {"TAR": shlex.quote(str(tar)), "HASH": snapshot.tar, "PATHS": paths}
    script = _SCRIPT
    for name, value in {**values, "CHECKSUMS": CHECKSUMS, "UNUSABLE": str(UNUSABLE)}.items():
        script = script.replace(f"@{name}@", value)
    return [*script.splitlines(), *([] if snapshot.user_site else ["export PYTHONNOUSERSITE=1"])]


def extract(tar: Path, place: Path) -> Path:
    """Make the tree of `tar` in the directory `place`; its bytes must have the hash in its name.

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
        with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as found:
            found.extractall(place, filter="data")
    except tarfile.TarError as error:
        raise StoreError(f"{tar} is no tree that was submitted ({error}); it was altered") from error
    except OSError as error:
        raise environment_problem("extract a tree to", place, error) from error
    return place
