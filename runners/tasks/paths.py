"""Where files of the user's lie."""

from pathlib import Path


def absolute_path(field: str, path: str) -> str:
    """`path` from the root, so that a spec means the same files wherever it is read.

    Raises:
        ValueError: it is empty, which would be the folder that a process happens to be in.
    """
    if not path.strip():
        raise ValueError(f"{field} names a file or a folder; got {path!r}; '.' is the folder you are in")
    return str(Path(path).expanduser().resolve())
