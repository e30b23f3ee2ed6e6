"""A lock for shells that submit to a campaign or cancel: one at a time."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ablate.store.files.atomic import environment_problem, make_directory
from ablate.store.files.layout import Layout

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF)


@contextmanager
def submit_lock(layout: Layout, told: Callable[[str], None]) -> Iterator[None]:
    """Wait for the lock, if the file system has locks. Raises EnvironmentProblem if the campaign cannot be written."""
    path = layout.submissions / ".lock"
    make_directory(path.parent)
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise environment_problem("write", path, error) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told("another shell is submitting to this campaign, or cancels; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(file)
