"""Which code ran: one hash over the sources that can change a measured number."""

from functools import cache
from hashlib import blake2b
from pathlib import Path

_ROOMS = ("grid", "variants", "runners")


@cache
def code_hash() -> str:
    """blake2b-128 over the names and contents of the Python files of the rooms a trial passes through."""
    top = Path(__file__).resolve().parent.parent
    digest = blake2b(digest_size=16)
    for room in _ROOMS:
        for path in sorted((top / room).rglob("*.py")):
            digest.update(f"{path.relative_to(top).as_posix()}\0".encode())
            digest.update(blake2b(path.read_bytes()).digest())
    return digest.hexdigest()
