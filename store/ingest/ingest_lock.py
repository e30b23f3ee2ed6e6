"""The lock of the ingester: a flock on `store/ingest.lock`. The kernel frees it when the process dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ablate.store.files.atomic import disk_errors, make_directory
from ablate.store.files.layout import Layout


@contextmanager
def ingest_lock(layout: Layout, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of the campaign's one ingester; yield False if another process holds it and `wait` is off."""
    layout.check_store()
    make_directory(layout.store)
    with disk_errors("open", layout.ingest_lock):
        descriptor = os.open(layout.ingest_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    held = False
    try:
        with disk_errors("lock", layout.ingest_lock), suppress(BlockingIOError):  # or the file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        yield held
    finally:
        os.close(descriptor)
