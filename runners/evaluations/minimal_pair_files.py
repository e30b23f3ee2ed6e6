"""Files of minimal pairs in the Zorro format: one sentence per line, two consecutive lines are a pair.

One file is one paradigm, with the name of the file.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from grid.errors import SpecError
from runners.evaluations.item_files import list_files, slug
from runners.tasks.file_cache import cache_by_file
from runners.tasks.text.corpus import content_hash


class Pairs(NamedTuple):
    """The content of one file."""

    content_hash: str
    pairs: tuple[tuple[str, str], ...]
    """The odd line and the following even line."""


def find_paradigms(source: Path) -> dict[str, Path]:
    """Find files by the sorted names of their paradigms: a .txt file, or those of a folder without its subfolders.

    A name is the file's in lower case, with `_` for all that is no letter and no digit.

    Raises:
        SpecError: a file is missing, its name has no letters, or two files have one name.
    """
    files: dict[str, Path] = {}
    for path in list_files(source, ".txt", "minimal pairs"):
        name = slug(path.stem, str(path))
        if name in files:
            raise SpecError(
                f"each paradigm needs its own file name; {files[name]} and {path} are both {name!r}; rename one"
            )
        files[name] = path
    return dict(sorted(files.items()))


@cache_by_file(entries=256)
def read_pairs(path: Path) -> Pairs:
    """Read the pairs of a file; cheap after the first time in a process.

    Raises:
        SpecError: it is not UTF-8, or its lines are no pairs.
        EnvironmentProblem: it cannot be read.
    """
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"minimal pairs are UTF-8; {path} is not, at byte {error.start}; convert it") from error
    lines = [line.strip() for line in text.strip().split("\n")] if text.strip() else []
    if not lines or len(lines) % 2:
        raise SpecError(f"minimal pairs are two lines each; {path} has {len(lines)} lines; complete or remove the last")
    for number, line in enumerate(lines, start=1):
        if not line:
            raise SpecError(f"each line of minimal pairs is a sentence; {path}, line {number} is empty; remove it")
    pairs = tuple(zip(lines[::2], lines[1::2], strict=True))
    for number, (odd, even) in enumerate(pairs, start=1):
        if odd.lower() == even.lower():
            raise SpecError(
                f"the sentences of a pair must differ in more than capitals; {path}, pair {number} has {odd!r} twice; "
                "remove it"
            )
    return Pairs(content_hash(data), pairs)


def hash_of(files: Iterable[Pairs]) -> str:
    """Compute blake2b-128 of several files, in order."""
    return content_hash(*(each.content_hash for each in files))


def read_paradigms(source: Path, names: Iterable[str]) -> Mapping[str, Pairs]:
    """Read the pairs of each paradigm.

    Raises:
        SpecError: as `find_paradigms` and `read_pairs`, or a paradigm is missing.
    """
    files = find_paradigms(source)
    for name in names:
        if name not in files:
            raise SpecError(f"a paradigm is a file of {source}; got {name!r}; there are {', '.join(files)}")
    return {name: read_pairs(files[name]) for name in names}
