"""`ablate retry`: trials that failed or were lost, once more; `run --retry` is in `planning/survey.py`."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, final

from cyclopts import Parameter

from grid.errors import NotFoundError, SpecError, StoreError
from runners.cli.options import ANYWHERE, NO_CLUSTER, SLURM_FLAGS, Campaign, Flag, MachineFlags, Repeat, Trust
from runners.cli.resolve import find_campaign, open_campaign, read_warnings, require_trust
from runners.cli.run import run_here
from runners.output import format_count, tell, write
from store.files.layout import Layout
from store.files.trial_status import trial_state

if TYPE_CHECKING:
    from grid import Grid
    from runners.attempts.submission_record import Submission
    from runners.monitoring.trial_locations import State, TrialLocations
    from store.store import Store

_UNCLAIMED: "tuple[State, ...]" = ("failed", "lost", "pending")
_WHY_LEFT: "Mapping[State, str]" = {
    "done": "done (`ablate run SPEC --rerun-stale` is for those of other code)",
    "running": "being trained",
    "unknown": "unknown: the cluster does not answer",
}


@Parameter(name="*")
@final
@dataclass(frozen=True)
class Which:
    """Which trials are trained once more, by which code.

    Parameters
    ----------
    failed
        Only failed trials, of the query if there is one.
    lost
        Only trials that were begun and that nobody will take, of the query if there is one.
    spec
        The spec file; default the one that was submitted.
    """

    failed: Flag = False
    lost: Flag = False
    trust: Trust = False
    spec: Path | None = None


def retry(
    *query: Annotated[
        str,
        Parameter(
            help="Which trials: the beginning of a key, a label, or conditions such as operator=SSA "
            "reason=out_of_memory."
        ),
    ],
    which: Which = Which(),
    where: MachineFlags = ANYWHERE,
    campaign: Campaign = None,
    cluster: SLURM_FLAGS = NO_CLUSTER,
) -> int:
    """Train trials again that failed, were lost or, with a query, are pending; --on as before. Else say what failed."""
    from runners.cli.run_on_slurm import draft_or_queue, submit_options
    from runners.execution.run import RunOptions
    from runners.slurm.spec import Slurm, cluster_of

    flags: dict[State, bool] = {"failed": which.failed, "lost": which.lost}
    states = [state for state, is_given in flags.items() if is_given]
    root = find_campaign(campaign)
    with open_campaign(root) as store:
        read_warnings(store)
        if not query and not states:
            return _list_failures(store)
        chosen = _choose_here(store, query, states)
        if not chosen.keys:
            write(" and ".join("nothing failed" if state == "failed" else f"nothing is {state}" for state in states))
            return 0
        last = last_submission(store.layout, chosen.keys)
        spec = spec_of(last, which.spec)
        runs_recorded_file = spec != which.spec or (last is not None and last.machine == "slurm")
        require_trust(store.layout, [spec] if runs_recorded_file else [], trust=which.trust)
        grids = _load_grids(store, chosen.keys, spec)
    machine = where.on or (last.machine if last else "local")
    if machine == "slurm":
        request = Slurm.model_validate(last.slurm) if last and last.slurm is not None else cluster_of(spec)
        options = submit_options(spec, Repeat(retry=True), cluster, chosen.keys)
        return draft_or_queue(root, grids, cluster.request(request, where.workers), options, cluster)
    where.check(machine, cluster)
    halves = last is not None and last.job.get("oom") == "halve" if cluster.oom is None else cluster.oom == "halve"
    local = RunOptions(retry=True, only=chosen.keys, files=(spec.resolve(),), oom="halve" if halves else "fail")
    return run_here(root, grids, machine, where.workers, local)


def _choose_here(store: "Store", query: Sequence[str], states: "Sequence[State]") -> "RetrySelection":
    from runners.monitoring.trial_locations import locate_trials
    from runners.monitoring.trial_query import select

    locations = locate_trials(store)
    chosen = choose(locations, select(store, query) if query else None, states)
    words = chosen.in_words()
    tell(*locations.notes, *([f"of these trials {words}"] if words else []))
    return chosen


class RetrySelection(NamedTuple):
    """Trials to retry, and the number of trials of the query that are not retried."""

    keys: frozenset[str]
    left: "Mapping[State, int]"
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


def choose(where: "TrialLocations", selected: Collection[str] | None, wanted: "Sequence[State]") -> RetrySelection:
    """Choose the trials of `selected` (None: all) in a state of `wanted`. Without states: unclaimed trials.

    Raises NotFoundError if none of `selected` is to be retried.
    Raises SpecError if programs of the user's logged all of them.
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


def last_submission(layout: Layout, keys: Iterable[str]) -> "Submission | None":
    """Read the latest submission that had any of `keys`; if none was begun, the latest of all."""
    from runners.attempts.submission_record import read_submission_record

    names = {str(last.start["submission"]) for key in keys for last in trial_state(layout, key).attempts[-1:]}
    for name in sorted(names or layout.submission_ids()[-1:], reverse=True):
        try:
            return read_submission_record(layout, name)
        except (NotFoundError, StoreError):
            continue
    return None


def spec_of(last: "Submission | None", given: Path | None) -> Path:
    """Return the given spec file, else the one that was submitted; raise SpecError if neither is known."""
    recorded = list(last.job.get("specs") or ()) if last else []
    if given is None and not recorded:
        raise SpecError("nothing recorded says which spec file these trials are from; name it with --spec FILE")
    return given or Path(recorded[0])


def _load_grids(store: "Store", keys: Collection[str], spec: Path) -> "list[Grid]":
    """Load the grids that plan any of `keys`, as they were run; raise SpecError if the file defines none of them."""
    from grid.overrides import override
    from runners.provenance.specfile import load_spec_file

    known = load_spec_file(spec)
    rows = store.sql("SELECT DISTINCT grid, trial FROM grid_trial ORDER BY grid").rows()
    names = dict.fromkeys(str(grid) for grid, trial in rows if trial in keys)
    grids = [override(known[name], store.grid(name).get("overrides", ())) for name in names if name in known]
    if not grids:
        raise SpecError(f"{spec} defines {', '.join(known)}, and these trials are of {', '.join(names)}")
    return grids


def _list_failures(store: "Store") -> int:
    """List failures by kind, with advice. The user chooses what to retry."""
    from runners.monitoring.failure_groups import failures, write_groups

    groups = failures(store)
    write_groups(groups)
    trials, ways = format_count(sum(each.n for each in groups), "trial"), format_count(len(groups), "way")
    kinds = f"{trials} failed, in {ways}" if groups else "nothing failed"
    tell(f"{kinds}; say which to train again: a query or key, --failed for all that failed, --lost for the lost")
    return 2
