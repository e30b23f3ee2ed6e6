"""Runs without a scheduler that are on, by their records; they may not have begun a trial yet."""

from runners.attempts.submission import Submission, submission_records
from store.layout import Layout


def runs_here(layout: Layout) -> list[Submission]:
    """The runs of this campaign whose process is on this host, oldest first; who reads the crews is told of records
    that cannot be read."""
    found = submission_records(layout)
    return [record for record in found if isinstance(record, Submission) and record.process is not None]
