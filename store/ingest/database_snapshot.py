"""The published copy of the database: whole, never changed, replaced by rename; old readers keep the old file."""

import os
import shutil
from pathlib import Path

from ablate.store.database.connection import remove_log
from ablate.store.files.atomic import disk_errors, is_temporary, sync_directory, temporary_name
from ablate.store.files.layout import Layout


def publish(layout: Layout) -> Path:
    """Copy the live database to the snapshot; the caller holds the ingest lock and has closed the database."""
    temporary = layout.snapshot.with_name(temporary_name(layout.snapshot.name))
    with disk_errors("write", layout.snapshot):
        try:
            shutil.copyfile(layout.live, temporary)
            status = layout.live.stat()
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            remove_log(layout.snapshot)  # a program may have the old file open for writing
            temporary.rename(layout.snapshot)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(layout.store)
    return layout.snapshot


def snapshot_is_current(layout: Layout) -> bool:
    """Whether the snapshot is a copy of the live database as it is: of its size, and with its time of change.

    Which of two times is the later one says nothing: clocks of two machines differ, and one may be put back.
    """
    try:
        copy, live = layout.snapshot.stat(), layout.live.stat()
    except FileNotFoundError:
        return False
    return (copy.st_size, copy.st_mtime_ns) == (live.st_size, live.st_mtime_ns)


def sweep(layout: Layout) -> None:
    """Remove unfinished files that a killed ingester left in the store; the caller holds the ingest lock."""
    for path in layout.store.iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)
