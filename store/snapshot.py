"""The published copy of the database: whole, never changed, replaced by rename; old readers keep the old file."""

import os
import shutil
from pathlib import Path

from store.files import environment_problem, is_temporary, sync_directory, temporary_name
from store.layout import Layout


def publish(layout: Layout) -> Path:
    """Copy the live database to the snapshot; the caller holds the ingest lock and has closed the database.

    Raises:
        EnvironmentProblem: the disk is full or not writable; the last snapshot stays.
    """
    temporary = layout.snapshot.with_name(temporary_name(layout.snapshot.name))
    try:
        try:
            shutil.copyfile(layout.live, temporary)
            _sync(temporary)
            temporary.rename(layout.snapshot)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(layout.store)
    except OSError as error:
        raise environment_problem("write", layout.snapshot, error) from error
    return layout.snapshot


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def snapshot_is_current(layout: Layout) -> bool:
    """Whether the snapshot was published after the last change of the live database."""
    try:
        return layout.snapshot.stat().st_mtime_ns >= layout.live.stat().st_mtime_ns
    except FileNotFoundError:
        return False


def sweep(layout: Layout) -> None:
    """Remove unfinished files that a killed ingester left in the store; the caller holds the ingest lock."""
    for path in layout.store.iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)
