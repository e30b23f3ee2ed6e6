"""Which trials are trained once more, and with what: never blindly, and on the machine that had them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

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

_AGAIN: tuple[State, ...] = ("failed", "lost", "pending")
"""States in which nobody has a trial or will take it, and it has no result."""


class RetrySelection(NamedTuple):
    """Trials to train once more, and those of the query that are not."""

    keys: frozenset[str]
    left: Mapping[State, int]
    logged: int = 0
    """Trials that a program of the user's would have to be started for."""

    def in_words(self) -> str:
        """Why those that are left are left."""
        why = {
            "done": "done (`ablate run SPEC --rerun-stale` is for those of other code)",
            "running": "being trained",
            "unknown": "unknown: the cluster does not answer",
        }
        counts = ((state, n) for state, n in self.left.items() if n)
        told = [f"{n} {'is' if n == 1 else 'are'} {why.get(state, state)}" for state, n in counts]
        if self.logged:
            told.append(f"{format_count(self.logged, 'run')} logged by a program of your own, to be started by you")
        return "; ".join(told)


def choose(where: TrialLocations, selected: Collection[str] | None, wanted: Sequence[State]) -> RetrySelection:
    """Choose the trials of `selected` (None: all) in a state of `wanted`. Without states: unclaimed trials.

    Raises:
        NotFoundError: some were selected and none of them is to be trained again.
        SpecError: programs of the user's logged all that are.
    """
    states = {key: where.trials[key].state for key in (where.trials if selected is None else selected)}
    meant = frozenset(key for key, state in states.items() if state in (wanted or _AGAIN))
    left = Counter(state for key, state in states.items() if key not in meant)
    keys = frozenset(key for key in meant if not where.trials[key].logged)
    if meant and not keys:
        raise SpecError(
            "these runs were logged by a program of your own, which nothing here can start: start it again, "
            "and what it logs becomes their next attempts"
        )
    found = RetrySelection(keys, left if selected is not None else {}, len(meant) - len(keys))
    if selected is not None and not keys:
        raise NotFoundError(f"none of these trials is to be trained again: {found.in_words()}")
    return found


class Again(NamedTuple):
    """Trials to train once more, the grids that plan them, and the file that defines those."""

    spec: Path
    grids: list[Grid]
    keys: frozenset[str]


@final
class Before(NamedTuple):
    """How trials were trained the last time."""

    record: Submission | None
    """The record of the latest submission that had any of them; None where it is from before there were records."""

    @property
    def machine(self) -> str:
        """slurm, local or inline."""
        return self.record.machine if self.record else "local"

    def spec(self, given: Path | None) -> Path:
        """The spec file: the one given, or the one that was submitted.

        Raises:
            SpecError: nothing says which it was.
        """
        named: list[Any] = list(self.record.job.get("specs") or ()) if self.record else []
        if given is not None:
            return given
        if not named:
            raise SpecError("nothing recorded says which spec file these trials are from; name it with --spec FILE")
        return Path(named[0])

    @property
    def halves(self) -> bool:
        """Whether trials out of memory went on in smaller pieces."""
        return self.record is not None and self.record.job.get("oom") == "halve"

    def slurm(self) -> "Slurm | None":
        """The request to the cluster; None if the trials ran on this machine."""
        from runners.slurm.spec import Slurm

        asked = self.record.slurm if self.record else None
        return None if asked is None else Slurm.model_validate(asked)


def before(layout: Layout, keys: Iterable[str]) -> Before:
    """The latest submission that had any of `keys`: by their attempts, else by the latest manifest."""
    names = {str(found.start["submission"]) for key in keys for found in trial_state(layout, key).attempts[-1:]} or set(
        layout.submission_ids()[-1:]
    )
    for name in sorted(names, reverse=True):
        try:
            return Before(read_submission_record(layout, name))
        except (NotFoundError, StoreError):
            continue
    return Before(None)


def grids_of(store: "Store", keys: Collection[str], known: Mapping[str, Grid], spec: Path) -> list[Grid]:
    """The grids of `known` that plan any of `keys`.

    Raises:
        SpecError: the spec file defines none of their grids any more.
    """
    rows = store.sql("SELECT DISTINCT grid, trial FROM grid_trial ORDER BY grid").rows()
    names = dict.fromkeys(str(grid) for grid, trial in rows if trial in keys)
    found = [known[name] for name in names if name in known]
    if not found:
        raise SpecError(f"{spec} defines {', '.join(known)}, and these trials are of {', '.join(names)}")
    return found
