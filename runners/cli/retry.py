"""`ablate retry`: trials that failed or were lost, once more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

from runners.cli.options import (
    NO_CLUSTER,
    SLURM_FLAGS,
    Campaign,
    Flag,
    Repeat,
    SlurmFlags,
    check_machine,
    say_warnings,
)
from runners.cli.trust import Trust
from runners.output import format_count, say, write

if TYPE_CHECKING:
    from runners.monitoring.retry import Again, Before
    from runners.monitoring.trial_locations import State
    from runners.slurm.spec import Slurm
    from store.store import Store


@final
@dataclass(frozen=True)
class Which:
    """Which trials are trained once more.

    Parameters
    ----------
    failed
        Those that failed; with a query, of these.
    lost
        Those that were begun and that nobody will take; with a query, of these.
    trust
        Run the code that a campaign from somebody else names, now and later.
    """

    failed: Flag = False
    lost: Flag = False
    trust: Flag = False

    def states(self) -> "list[State]":
        """In these states; none: in whichever nobody has them."""
        found: list[State] = []
        if self.failed:
            found.append("failed")
        if self.lost:
            found.append("lost")
        return found


ANY = Which()


def retry(
    *query: str,
    which: Annotated[Which, Parameter(name="*")] = ANY,
    spec: Path | None = None,
    on: Literal["local", "inline", "slurm"] | None = None,
    workers: int | None = None,
    campaign: Campaign = None,
    cluster: SLURM_FLAGS = NO_CLUSTER,
) -> int:
    """Train trials once more that failed or were lost, on the machine that had them. Without words it says what failed.

    Parameters
    ----------
    query
        Which trials: the beginning of a key, a label, or conditions such as operator=SSA reason=out_of_memory.
    spec
        The spec file; default the one that was submitted.
    on
        local, inline or slurm; default where they were the last time.
    workers
        Worker processes, or array tasks; default as `ablate run` chooses.
    """
    from runners.cli.resolve import find_campaign
    from runners.slurm.spec import cluster_of
    from store.store import Store

    root = find_campaign(campaign)
    with Store.open(root) as store:
        say_warnings(store)
        if not query and not which.states():
            return _ask_back(store)
        found = _chosen(store, query, which, spec)
    if found is None:
        write(
            " and ".join("nothing failed" if state == "failed" else f"nothing is {state}" for state in which.states())
        )
        return 0
    again, had = found
    machine = on or had.machine
    if machine == "slurm":
        return _queue(root, again, cluster.request(had.slurm() or cluster_of(again.spec), workers), cluster)
    check_machine(machine, workers, cluster)
    halve = had.halves if cluster.oom is None else cluster.oom == "halve"
    return _here(root, again, machine, workers, halve=halve)


def _chosen(store: "Store", query: Sequence[str], which: Which, spec: Path | None) -> "tuple[Again, Before] | None":
    """Return the trials to retry and how they were trained; None if there are none."""
    from grid.overrides import override
    from runners.monitoring.retry import Again, before, choose, grids_of
    from runners.monitoring.trial_locations import locate_trials
    from runners.monitoring.trial_query import select
    from runners.provenance.specfile import load_spec_file
    from runners.slurm.scheduler import SlurmScheduler as Scheduler

    where = locate_trials(store, Scheduler())
    for note in where.notes:
        say(f"ablate: {note}")
    chosen = choose(where, select(store, query) if query else None, which.states())
    if chosen.in_words():
        say(f"ablate: of these trials {chosen.in_words()}")
    if not chosen.keys:
        return None
    had = before(store.layout, chosen.keys)
    path = had.spec(spec)
    Trust(which.trust).require(store.layout, [path] if path != spec or had.machine == "slurm" else [])
    found = grids_of(store, chosen.keys, load_spec_file(path), path)
    grids = [override(each, store.grid(each.name).get("overrides", ())) for each in found]
    return Again(path, grids, chosen.keys), had


def _ask_back(store: "Store") -> int:
    """List failures by kind, with advice. The user chooses what to retry."""
    from runners.monitoring.failure_groups import failures, write_groups

    found = failures(store)
    write_groups(found)
    trials, ways = format_count(sum(each.n for each in found), "trial"), format_count(len(found), "way")
    kinds = f"{trials} failed, in {ways}" if found else "nothing failed"
    say(f"ablate: {kinds}; say which to train again: a query or key, --failed for all that failed, --lost for the lost")
    return 2


def _here(root: Path, again: "Again", machine: str, workers: int | None, *, halve: bool) -> int:
    from runners.cli.outcome import report_outcome
    from runners.cli.resolve import worker_count
    from runners.execution import Inline, Local
    from runners.execution.run import RunOptions, run_campaign

    options = RunOptions(retry=True, only=again.keys, files=(again.spec.resolve(),), oom="halve" if halve else "fail")
    on = Inline() if machine == "inline" else Local(worker_count(workers))
    return report_outcome(run_campaign(root, again.grids, on, options), root)


def _queue(root: Path, again: "Again", slurm: "Slurm", cluster: SlurmFlags) -> int:
    from runners.cli.run_on_slurm import looked_at, show_or_queue, submit_options

    options = submit_options(again.spec, Repeat(retry=True), cluster, again.keys)
    return show_or_queue(looked_at(root, again.grids, slurm, options), root, cluster)
