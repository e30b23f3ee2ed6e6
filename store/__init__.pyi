from .campaign import Campaign as Campaign
from .files.layout import Layout as Layout
from .files.shards import BadShard as BadShard, ShardBuffer as ShardBuffer, verify_shard as verify_shard
from .files.trial_state import TrialState as TrialState, trial_state as trial_state
from .ingest.database_snapshot import publish as publish
from .ingest.ingest_counts import Ingested as Ingested
from .state import State as State
from .store import Store as Store
