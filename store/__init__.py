"""Results: files with one writer, a database rebuilt from them at any time, SQL, statistics.

Names are imported when they are first used, so that a trial's process loads neither duckdb nor polars. Two functions
share the name of their module: `from ablate.store.ingest.ingest import ingest` and
`from ablate.store.ingest.rebuild import rebuild`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
