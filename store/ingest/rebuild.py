"""Makes the database again from the campaign's files, after a new version or damage to the database itself."""

from pathlib import Path

from ablate.grid.errors import NotFoundError
from ablate.store.database.connection import open_live, remove_log
from ablate.store.files.atomic import disk_errors, sync_directory, temporary_name
from ablate.store.files.layout import Layout
from ablate.store.ingest.database_snapshot import publish, sweep
from ablate.store.ingest.ingest import Conclude, ingest_into
from ablate.store.ingest.ingest_counts import Ingested
from ablate.store.ingest.ingest_lock import ingest_lock


def rebuild(root: Path | Layout, conclude: Conclude | None = None) -> Ingested:
    """Make the database of the campaign `root` from its files alone, put it in place of the old one and publish it.

    Readers have the old snapshot until then. `conclude` is that of `ingest`. Raises NotFoundError: there is no
    campaign; EnvironmentProblem.
    """
    layout = root if isinstance(root, Layout) else Layout(root)
    if not layout.exists():
        raise NotFoundError(f"there is no campaign in {layout.root}; `ablate run` makes one")
    with ingest_lock(layout, wait=True):
        sweep(layout)
        fresh = layout.store / temporary_name("live.duckdb")
        try:
            with open_live(fresh) as connection:
                counts = ingest_into(layout, connection)
                if conclude is not None:
                    conclude(layout, connection)
            _replace(layout, fresh)
        except BaseException:
            sweep(layout)  # on a full disk it would stand in the way of the next try
            raise
        publish(layout)
    counts.published = True
    return counts


def _replace(layout: Layout, fresh: Path) -> None:
    remove_log(layout.live)
    with disk_errors("write", layout.live):
        fresh.rename(layout.live)
        sync_directory(layout.store)
