"""Runs without a scheduler that are on, by their records; they may not have begun a trial yet."""

from grid.errors import NotFoundError, StoreError
from runners.attempts.submission import Submission, read_submission_record
from store.layout import Layout


def runs_here(layout: Layout) -> list[Submission]:
    """The runs of this campaign whose process is on this host, oldest first."""
    found = []
    for submission in layout.submission_ids():
        try:
            record = read_submission_record(layout, submission)
        except (NotFoundError, StoreError):  # who reads the crews is told of it
            continue
        if record.process is not None:
            found.append(record)
    return found
