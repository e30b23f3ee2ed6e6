"""Which code made a result: versions of the package's classes, hashes of the user's code, and what differs.

Results before release 0.2.0 have a hash of each file of the package instead. `code_versions.json` has a row for each
such file: its name, the names whose versions it stands for, and its hashes by version, each 16 hexadecimal digits.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files

PATH = "Path "
"""Begins the name of an execution path; a trial has the versions of the paths that it ran."""


def current_sources(sources: Mapping[str, str] | None, path: str | None) -> dict[str, str] | None:
    """Return the `sources` of an attempt on `path`, with versions in place of hashes of files; unknown hashes stay.

    `path` names the execution paths that the attempt ran, joined by "+".
    """
    if sources is None:
        return None
    versions: dict[str, str] = {}
    for name, value in sources.items():
        versions |= _versions().get((name, str(value)[:16]), {name: str(value)})
    return of_paths(versions, (path or "").split("+"))


def versions_used(sources: Mapping[str, str] | None, code: str | None, path: str | None) -> dict[str, str]:
    """Return the version of each source of an attempt; results of which one name has two versions do not compare.

    `code` is that of a logged run. A spec file that only binds names has no entry "spec".
    """
    if not sources:
        return {"code": code or "unknown"}
    return {"code": "one version", "spec": "", **(current_sources(sources, path) or {})}


def of_paths(sources: Mapping[str, str] | None, used: Collection[str]) -> dict[str, str] | None:
    """Return `sources` without the paths that an attempt did not use."""
    if sources is None:
        return None
    names = {f"{PATH}{path}" for path in used}
    return {name: each for name, each in sources.items() if name in names or not name.startswith(PATH)}


def differing(recorded: Mapping[str, str], present: Mapping[str, str], path: str | None) -> Iterator[str]:
    """Yield the names in which the code of an attempt on `path` differs from `present`, that of its trial now."""
    before = current_sources(recorded, path) or {}
    for name in sorted(before.keys() | present.keys()):
        unused = name.startswith(PATH) and name not in before
        if not unused and before.get(name, _FIRST) != present.get(name, _FIRST):
            yield name


_FIRST = "1"
"""The version of a class that a result does not name: it was recorded by file, or has been renamed since."""


@cache
def _versions() -> dict[tuple[str, str], dict[str, str]]:
    rows = json.loads(files("ablate.store.files").joinpath("code_versions.json").read_text(encoding="utf-8"))
    return {
        (file, hashed): dict.fromkeys(names, version)
        for file, names, versions in rows
        for version, hashes in versions.items()
        for hashed in hashes
    }
