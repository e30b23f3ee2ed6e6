"""Counts of one ingest."""

from dataclasses import dataclass, field
from typing import final


@final
@dataclass
class Ingested:
    """Counts of what one ingest did, and what it left for the next one."""

    rows: int = 0  # in long tables
    shards: int = 0
    bad_shards: int = 0  # put into quarantine this time
    forgotten: int = 0  # shards that were in quarantine and whose file is gone
    plans: int = 0  # grids and submissions that were read, read again, or are gone; also removals, tags and notes
    attempts: int = 0  # new or changed
    evaluated: int = 0  # later evaluations of finished trials that are new, were made again, or are gone
    bad_records: int = 0  # JSON files and lines that could not be read this time
    unread_fans: set[str] = field(default_factory=set)  # directories of trials that were not read wholly
    unread_plans: bool = False  # new or changed plans are too large for the time; then nothing newer is read
    published: bool = False  # readers have a new snapshot
    busy: bool = False  # nothing was done because another process is ingesting
