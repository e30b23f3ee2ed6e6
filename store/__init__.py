"""Results: files with one writer, a database rebuilt from them at any time, SQL, statistics.

Names are imported when they are first used, so that a trial's process, which needs `store.files.atomic`,
`store.files.layout`, `store.files.shards` and `store.files.trial_status` only, loads neither duckdb nor polars. Two
functions share the name of their module and are imported from there: `from store.ingest.ingest import ingest` and `from
store.ingest.rebuild import rebuild`.
"""

from typing import TYPE_CHECKING

from grid.lazily import lazily

if TYPE_CHECKING:
    from store.campaign import Campaign as Campaign
    from store.files.layout import Layout as Layout
    from store.files.shards import BadShard as BadShard
    from store.files.shards import ShardBuffer as ShardBuffer
    from store.files.shards import verify_shard as verify_shard
    from store.files.shards import write_shard as write_shard
    from store.files.trial_status import TrialState as TrialState
    from store.files.trial_status import trial_state as trial_state
    from store.ingest.ingest import Ingested as Ingested
    from store.ingest.snapshot import publish as publish
    from store.store import Store as Store

_HOMES = {
    "BadShard": "store.files.shards",
    "Campaign": "store.campaign",
    "Ingested": "store.ingest.ingest",
    "Layout": "store.files.layout",
    "ShardBuffer": "store.files.shards",
    "Store": "store.store",
    "TrialState": "store.files.trial_status",
    "publish": "store.ingest.snapshot",
    "trial_state": "store.files.trial_status",
    "verify_shard": "store.files.shards",
    "write_shard": "store.files.shards",
}


__all__ = list(_HOMES)
__getattr__, __dir__ = lazily(__name__, _HOMES)
