"""`ablate retry`: trials that failed or were lost, once more."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

from runners.cli.options import NO_CLUSTER, SLURM_FLAGS, Campaign, Flag, Repeat, Trust, check_machine
from runners.cli.resolve import find_campaign, open_campaign, read_warnings, require_trust
from runners.output import format_count, say, write

if TYPE_CHECKING:
    from runners.monitoring.retry import Again, Before
    from runners.monitoring.trial_locations import State
    from store.store import Store


@Parameter(name="*")
@final
@dataclass(frozen=True)
class Which:
    """Which trials are trained once more, by which code.

    Parameters
    ----------
    failed
        Those that failed; with a query, of these.
    lost
        Those that were begun and that nobody will take; with a query, of these.
    spec
        The spec file; default the one that was submitted.
    """

    failed: Flag = False
    lost: Flag = False
    trust: Trust = False
    spec: Path | None = None


@Parameter(name="*")
@final
@dataclass(frozen=True)
class Where:
    """Where they are trained.

    Parameters
    ----------
    on
        local, inline or slurm; default where they were the last time.
    workers
        Worker processes, or array tasks; default as `ablate run` chooses.
    """

    on: Literal["local", "inline", "slurm"] | None = None
    workers: int | None = None


def retry(
    *query: Annotated[
        str,
        Parameter(
            help="Which trials: the beginning of a key, a label, or conditions such as operator=SSA "
            "reason=out_of_memory."
        ),
    ],
    which: Which = Which(),
    where: Where = Where(),
    campaign: Campaign = None,
    cluster: SLURM_FLAGS = NO_CLUSTER,
) -> int:
    """Train trials once more that failed or were lost, on the same machine. Without words, say what failed."""
    from runners.cli.run import run_here
    from runners.cli.run_on_slurm import draft_or_queue, submit_options
    from runners.execution.run import RunOptions
    from runners.slurm.spec import cluster_of

    flags: dict[State, bool] = {"failed": which.failed, "lost": which.lost}
    states = [state for state, is_given in flags.items() if is_given]
    root = find_campaign(campaign)
    with open_campaign(root) as store:
        read_warnings(store)
        if not query and not states:
            return _list_failures(store)
        chosen = _choose(store, query, states, which.spec, trust=which.trust)
    if chosen is None:
        write(" and ".join("nothing failed" if state == "failed" else f"nothing is {state}" for state in states))
        return 0
    again, before = chosen
    machine = where.on or before.machine
    if machine == "slurm":
        options = submit_options(again.spec, Repeat(retry=True), cluster, again.keys)
        request = cluster.request(before.slurm() or cluster_of(again.spec), where.workers)
        return draft_or_queue(root, again.grids, request, options, cluster)
    check_machine(machine, where.workers, cluster)
    halve = before.halves if cluster.oom is None else cluster.oom == "halve"
    local = RunOptions(retry=True, only=again.keys, files=(again.spec.resolve(),), oom="halve" if halve else "fail")
    return run_here(root, again.grids, machine, where.workers, local)


def _choose(
    store: "Store", query: Sequence[str], states: "list[State]", spec: Path | None, *, trust: bool
) -> "tuple[Again, Before] | None":
    """Return the trials to retry and how they were trained; None if there are none."""
    from grid.overrides import override
    from runners.monitoring.retry import Again, before, choose, grids_of
    from runners.monitoring.trial_locations import locate_trials
    from runners.monitoring.trial_query import select
    from runners.provenance.specfile import load_spec_file
    from runners.slurm.scheduler import SlurmScheduler as Scheduler

    locations = locate_trials(store, Scheduler())
    for note in locations.notes:
        say(f"ablate: {note}")
    chosen = choose(locations, select(store, query) if query else None, states)
    if chosen.in_words():
        say(f"ablate: of these trials {chosen.in_words()}")
    if not chosen.keys:
        return None
    last = before(store.layout, chosen.keys)
    path = last.spec(spec)
    require_trust(store.layout, [path] if path != spec or last.machine == "slurm" else [], trust=trust)
    grids = grids_of(store, chosen.keys, load_spec_file(path), path)
    grids = [override(each, store.grid(each.name).get("overrides", ())) for each in grids]
    return Again(path, grids, chosen.keys), last


def _list_failures(store: "Store") -> int:
    """List failures by kind, with advice. The user chooses what to retry."""
    from runners.monitoring.failure_groups import failures, write_groups

    groups = failures(store)
    write_groups(groups)
    trials, ways = format_count(sum(each.n for each in groups), "trial"), format_count(len(groups), "way")
    kinds = f"{trials} failed, in {ways}" if groups else "nothing failed"
    say(f"ablate: {kinds}; say which to train again: a query or key, --failed for all that failed, --lost for the lost")
    return 2
