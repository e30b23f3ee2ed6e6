"""Selection of trials to retry, and how they were trained the last time."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from grid import Grid
from grid.errors import NotFoundError, SpecError, StoreError
from runners.attempts.submission_record import Submission, read_submission_record
from runners.monitoring.trial_locations import State, TrialLocations
from runners.output import format_count
from store.files.layout import Layout
from store.files.trial_status import trial_state

if TYPE_CHECKING:
    from runners.slurm.spec import Slurm
    from store.store import Store

_UNCLAIMED: tuple[State, ...] = ("failed", "lost", "pending")
_WHY_LEFT: Mapping[str, str] = {
    "done": "done (`ablate run SPEC --rerun-stale` is for those of other code)",
    "running": "being trained",
    "unknown": "unknown: the cluster does not answer",
}


class RetrySelection(NamedTuple):
    """Trials to retry, and the number of trials of the query that are not retried."""

    keys: frozenset[str]
    left: Mapping[State, int]
    logged: int = 0
    """Trials that only a program of the user's can start."""

    def in_words(self) -> str:
        """Describe why trials are not retried."""
        reasons = [
            f"{n} {'is' if n == 1 else 'are'} {_WHY_LEFT.get(state, state)}" for state, n in self.left.items() if n
        ]
        if self.logged:
            reasons.append(f"{format_count(self.logged, 'run')} logged by a program of your own, to be started by you")
        return "; ".join(reasons)


def choose(where: TrialLocations, selected: Collection[str] | None, wanted: Sequence[State]) -> RetrySelection:
    """Choose the trials of `selected` (None: all) in a state of `wanted`. Without states: unclaimed trials.

    Raises:
        NotFoundError: none of `selected` is to be retried.
        SpecError: programs of the user's logged all of them.
    """
    states = {key: where.trials[key].state for key in (where.trials if selected is None else selected)}
    matching = frozenset(key for key, state in states.items() if state in (wanted or _UNCLAIMED))
    keys = frozenset(key for key in matching if not where.trials[key].logged)
    if matching and not keys:
        raise SpecError(
            "these runs were logged by a program of your own, which nothing here can start: start it again, "
            "and what it logs becomes their next attempts"
        )
    left = Counter(state for key, state in states.items() if key not in matching)
    selection = RetrySelection(keys, left if selected is not None else {}, len(matching) - len(keys))
    if selected is not None and not keys:
        raise NotFoundError(f"none of these trials is to be trained again: {selection.in_words()}")
    return selection


class Again(NamedTuple):
    """Trials to retry, the grids that plan them, and the spec file."""

    spec: Path
    grids: list[Grid]
    keys: frozenset[str]


@final
class Before(NamedTuple):
    """How trials were trained the last time."""

    record: Submission | None
    """The latest submission that had any of them, if it has a record."""

    @property
    def machine(self) -> str:
        """slurm, local or inline."""
        return self.record.machine if self.record else "local"

    def spec(self, given: Path | None) -> Path:
        """Return the given spec file, or the one that was submitted.

        Raises:
            SpecError: neither is known.
        """
        recorded = list(self.record.job.get("specs") or ()) if self.record else []
        if given is None and not recorded:
            raise SpecError("nothing recorded says which spec file these trials are from; name it with --spec FILE")
        return given or Path(recorded[0])

    @property
    def halves(self) -> bool:
        """True if trials out of memory continued with more micro-batches."""
        return self.record is not None and self.record.job.get("oom") == "halve"

    def slurm(self) -> "Slurm | None":
        """Return the request to the cluster; None if the trials ran on this machine."""
        from runners.slurm.spec import Slurm

        request = self.record.slurm if self.record else None
        return None if request is None else Slurm.model_validate(request)


def before(layout: Layout, keys: Iterable[str]) -> Before:
    """Find the latest submission that had any of `keys`: by their attempts, else by the latest manifest."""
    names = {str(last.start["submission"]) for key in keys for last in trial_state(layout, key).attempts[-1:]}
    for name in sorted(names or layout.submission_ids()[-1:], reverse=True):
        try:
            return Before(read_submission_record(layout, name))
        except (NotFoundError, StoreError):
            continue
    return Before(None)


def grids_of(store: "Store", keys: Collection[str], known: Mapping[str, Grid], spec: Path) -> list[Grid]:
    """Return the grids of `known` that plan any of `keys`.

    Raises:
        SpecError: the spec file defines none of their grids any more.
    """
    rows = store.sql("SELECT DISTINCT grid, trial FROM grid_trial ORDER BY grid").rows()
    names = dict.fromkeys(str(grid) for grid, trial in rows if trial in keys)
    grids = [known[name] for name in names if name in known]
    if not grids:
        raise SpecError(f"{spec} defines {', '.join(known)}, and these trials are of {', '.join(names)}")
    return grids
