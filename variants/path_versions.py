"""Versions of the paths, which every spec of an operator's part stores with results."""

from functools import cache
from pkgutil import resolve_name


@cache
def path_versions() -> dict[str, str]:
    """Return the version of each path by the name under which results store it."""
    return {f"Path {path.name}": str(path.version) for path in resolve_name("ablate.variants.paths.choose:PATHS")}
