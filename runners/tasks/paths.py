"""Paths of the user's files."""

from pathlib import Path


def absolute_path(field: str, path: str) -> str:
    """Make `path` absolute, so that a spec means the same files everywhere.

    Raises:
        ValueError: it is empty.
    """
    if not path.strip():
        raise ValueError(f"{field} names a file or a folder; got {path!r}; '.' is the folder you are in")
    return str(Path(path).expanduser().resolve())
