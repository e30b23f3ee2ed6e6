"""Finished trials whose results cannot be read, or are in doubt: `run --rerun-stale` trains them again."""

from collections.abc import Collection, Iterable
from pathlib import Path

from ablate.runners.output import format_count, say
from ablate.store.files.attempts import write_end
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state


def find_unreadable(root: Path, grids: Iterable[str]) -> frozenset[str]:
    """Return the keys of such trials of the grids. Raises StoreError if the store cannot be read."""
    from ablate.store.store import Store

    if not Layout(root).exists():
        return frozenset()
    with Store.open(root) as store:
        planned = set(store.grids())
        return frozenset(key for name in grids if name in planned for key in store.unreadable(name))


def mark_unreadable(layout: Layout, unreadable: Collection[str]) -> None:
    """Turn ok attempts of the trials `unreadable` into stopped ones, and say so. Nothing may refuse the run after that.

    Raises EnvironmentProblem if the campaign cannot be written.
    """
    why = "its result cannot be read, or another attempt disagrees with it"
    for key in sorted(unreadable):
        for attempt in trial_state(layout, key).attempts:
            if attempt.end is not None and attempt.end["status"] == "ok":
                write_end(layout, {**attempt.end, "status": "stopped", "message": why})
    if unreadable:
        verbs = ("has", "is") if len(unreadable) == 1 else ("have", "are")
        trials = format_count(len(unreadable), "finished trial")
        say(f"ablate: {trials} {verbs[0]} no readable result and {verbs[1]} trained again")
