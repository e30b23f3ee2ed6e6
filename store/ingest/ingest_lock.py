"""The lock of the ingester: a flock on `store/ingest.lock`. The kernel frees it when the process dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from store.files.atomic import environment_problem, make_directory
from store.files.layout import Layout


@contextmanager
def ingest_lock(layout: Layout, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of the campaign's one ingester; yield False if another process holds it and `wait` is off."""
    layout.check_store()
    make_directory(layout.store)
    try:
        descriptor = os.open(layout.ingest_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise environment_problem("open", layout.ingest_lock, error) from error
    held = True
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = False
        except OSError as error:  # a file system without locks
            raise environment_problem("lock", layout.ingest_lock, error) from error
        yield held
    finally:
        os.close(descriptor)
