"""Finished trials whose results cannot be read, or are in doubt: given back, so that a run trains them again."""

from collections.abc import Iterable
from pathlib import Path

from store.files.attempts import write_end
from store.files.layout import Layout
from store.files.trial_status import trial_state

WHY = "its result cannot be read, or another attempt disagrees with it"


def give_back_unreadable(root: Path, grids: Iterable[str]) -> int:
    """Turn the ok attempts of such trials into stopped ones; returns how many trials that were.

    Raises:
        EnvironmentProblem: the campaign cannot be written.
        StoreError: the store cannot be read.
    """
    from store.store import Store

    layout = Layout(root)
    if not layout.exists():
        return 0
    with Store.open(root) as store:
        planned = set(store.grids())
        lost = {key for name in grids if name in planned for key in store.unreadable(name)}
    for key in sorted(lost):
        for attempt in trial_state(layout, key).attempts:
            if attempt.end is not None and attempt.end["status"] == "ok":
                end = {**attempt.end, "status": "stopped", "message": WHY}
                write_end(layout, end)
    return len(lost)
