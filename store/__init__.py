"""Results: files with one writer, a database rebuilt from them at any time, SQL, statistics.

Names are imported when they are first used, so that a trial's process, which needs `store.files`, `store.layout`,
`store.shards` and `store.status` only, loads neither duckdb nor polars. Two functions share the name of their module
and are imported from there: `from store.ingest import ingest` and `from store.rebuild import rebuild`.
"""

from typing import TYPE_CHECKING

from grid.lazily import lazily

if TYPE_CHECKING:
    from store.campaign import Campaign as Campaign
    from store.ingest import Ingested as Ingested
    from store.layout import Layout as Layout
    from store.shards import BadShard as BadShard
    from store.shards import ShardBuffer as ShardBuffer
    from store.shards import verify_shard as verify_shard
    from store.shards import write_shard as write_shard
    from store.snapshot import publish as publish
    from store.status import TrialState as TrialState
    from store.status import trial_state as trial_state
    from store.store import Store as Store

_HOMES = {
    "BadShard": "store.shards",
    "Campaign": "store.campaign",
    "Ingested": "store.ingest",
    "Layout": "store.layout",
    "ShardBuffer": "store.shards",
    "Store": "store.store",
    "TrialState": "store.status",
    "publish": "store.snapshot",
    "trial_state": "store.status",
    "verify_shard": "store.shards",
    "write_shard": "store.shards",
}


__all__ = list(_HOMES)
__getattr__, __dir__ = lazily(__name__, _HOMES)
