"""Commands that plan and run trials."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

from cyclopts import Parameter

from grid.errors import SpecError
from runners.cli.options import (
    ANY_SPEC,
    NO_CLUSTER,
    ONCE,
    SLURM_FLAGS,
    Flag,
    Json,
    Overrides,
    Repeat,
    SpecFile,
    SpecFlags,
    check_machine,
)
from runners.cli.papers import locate_spec
from runners.cli.resolve import find_campaign, load_grids, worker_count
from runners.output import say, write, write_json
from runners.slow_notice import slow_notice

if TYPE_CHECKING:
    from grid import Grid
    from runners.execution.run import RunOptions, RunResult
    from runners.monitoring.trial_locations import State

CODE_CHANGED = "the code or the spec file changed while the run went on; run the same command again"


@Parameter(name="*")
@final
@dataclass(frozen=True)
class PlanFlags:
    """Where time is estimated for, and by which noise seeds are counted.

    Parameters
    ----------
    on
        local: worker processes here; slurm: the workers that would be asked of a cluster, which is not asked for them.
    workers
        How many of them; default one per core, on slurm as many as have work for half of their time limit.
    noise_from
        Another campaign, whose noise of seeds is used if this one has too few finished trials.
    calibrate
        Measure five steps of each model and operator that has no finished trials, on this machine.
    """

    on: Literal["local", "slurm"] = "local"
    workers: int | None = None
    cluster: SLURM_FLAGS = NO_CLUSTER
    noise_from: Path | None = None
    calibrate: Flag = False

    def check(self) -> None:
        """Raise SpecError for flags that say nothing to a plan."""
        if self.on != "slurm":
            self.cluster.refuse(self.on)
        for flag in ("budget", "dry_run", "wait", *(["oom"] if self.on != "slurm" else [])):
            if flag in self.cluster.to_dict():
                raise SpecError(f"--{flag.replace('_', '-')} is for `ablate run`; a plan queues nothing, leave it out")


def plan(
    spec: SpecFile,
    /,
    *overrides: Overrides,
    of: SpecFlags = ANY_SPEC,
    where: PlanFlags = PlanFlags(),
    repeat: Repeat = ONCE,
    as_json: Json = False,
) -> int:
    """Show what a spec file would run: cells, keys, pruned cells, parameters, time. Trains and queues nothing.

    Ends with 2 where trials would fail before their first step, and says why.
    """
    from runners.cli.plan import PlanOptions, plan_campaign, plan_data, plan_lines
    from runners.planning.step_timing import measure_seconds
    from runners.slurm.spec import cluster_of
    from runners.training.loop import train
    from runners.trial import parameters
    from store.files.layout import Layout

    where.check()
    spec, grid = locate_spec(spec, of.grid, of.scale)
    root, grids = load_grids(spec, overrides, grid, of.campaign, one=False)
    is_local = where.on == "local"
    states, members = _locate_trials(root, [each.name for each in grids])
    options = PlanOptions(
        workers=worker_count(where.workers) if is_local else 1,
        slurm=None if is_local else where.cluster.request(cluster_of(spec), where.workers),
        retry=repeat.retry,
        again=repeat.again,
        states=states,
        parameters=parameters,
        noise_from=None if where.noise_from is None else Layout(find_campaign(where.noise_from)),
        files=(spec,),
        seconds=(lambda trial: measure_seconds(trial, train)) if where.calibrate else None,
    )
    planned = plan_campaign(root, grids, options)
    _tell_leaving(states, members - {trial.key for trial in planned.trials})
    if as_json:
        write_json("plan", plan_data(planned))
    else:
        write("\n".join(plan_lines(planned)))
    return SpecError.exit_code if planned.refused else 0


def _locate_trials(root: Path, grids: Sequence[str]) -> "tuple[dict[str, State], set[str]]":
    """Return where the trials of a campaign are, as `ablate status` says, and the keys that it plans in `grids`."""
    from runners.monitoring.trial_locations import locate_trials
    from runners.slurm.scheduler import SlurmScheduler
    from store.files.layout import Layout
    from store.store import Store

    if not Layout(root).exists():
        return {}, set()
    with slow_notice("looking where trials are"), Store.open(root) as store:
        locations = locate_trials(store, SlurmScheduler())
        members = store.sql("SELECT trial FROM grid_trial WHERE list_contains($grids, grid)", {"grids": list(grids)})
    for note in locations.notes:
        say(f"ablate: {note}")
    return {key: each.state for key, each in locations.trials.items()}, set(members["trial"])


def _tell_leaving(states: "Mapping[str, State]", leaving: Collection[str]) -> None:
    """Say how many trials `ablate run` of this plan would take out of its grids."""
    found = Counter(states.get(key) for key in leaving)
    counts = {"queued or running": found["queued"] + found["running"], "finished": found["done"]}
    if words := " and ".join(f"{count} {state}" for state, count in counts.items() if count):
        say(f"ablate: {words} trials of the campaign are not in this plan; `ablate run` takes them out of the grid")


@Parameter(name="*")
@final
@dataclass(frozen=True)
class MachineFlags:
    """Where trials are trained.

    Parameters
    ----------
    on
        local: warm worker processes of one thread each; inline: in this process; slurm: queued on the cluster.
    workers
        Worker processes; default one per core. On slurm, array tasks in all; default as many as have work for half of
        their time limit.
    """

    on: Literal["local", "inline", "slurm"] = "local"
    workers: int | None = None


def run(
    spec: SpecFile,
    /,
    *overrides: Overrides,
    of: SpecFlags = ANY_SPEC,
    where: MachineFlags = MachineFlags(),
    repeat: Repeat = ONCE,
    cluster: SLURM_FLAGS = NO_CLUSTER,
) -> int:
    """Train every trial of a grid that the campaign does not have yet. Safe to repeat."""
    check_machine(where.on, where.workers, cluster)
    spec, grid = locate_spec(spec, of.grid, of.scale)
    root, grids = load_grids(spec, overrides, grid, of.campaign, one=True)
    if where.on == "slurm":
        from runners.cli.run_on_slurm import draft_or_queue, submit_options
        from runners.slurm.spec import cluster_of

        request = cluster.request(cluster_of(spec), where.workers)
        return draft_or_queue(root, grids, request, submit_options(spec, repeat, cluster), cluster)
    from runners.execution.run import RunOptions

    oom: Literal["halve", "fail"] = "halve" if cluster.oom == "halve" else "fail"
    options = RunOptions(retry=repeat.retry, again=repeat.again, files=(spec.resolve(),), oom=oom)
    return run_here(root, grids, where.on, where.workers, options)


def run_here(root: Path, grids: "Sequence[Grid]", on: str, workers: int | None, options: "RunOptions") -> int:
    """Train on this machine, report, and return the exit code."""
    from runners.execution import Inline, Local
    from runners.execution.run import run_campaign

    machine = Inline() if on == "inline" else Local(worker_count(workers))
    return report_outcome(run_campaign(root, grids, machine, options), root)


def report_outcome(result: "RunResult", root: Path, reason: str = CODE_CHANGED, *, called_off: int = 0) -> int:
    """Write the counts of a run, and the reason why trials stopped that nobody called off; return the exit code."""
    for problem in result.problems:
        say(f"ablate: {problem}")
    say(f"{_outcome_words(result)}; results in {root}")
    if result.interrupted:
        return 130
    left = result.stopped - called_off
    if left:
        say(f"ablate: {reason}")
    return 4 if result.failed or result.skipped_failed or left else 0


def _outcome_words(result: "RunResult") -> str:
    counts = (
        (result.ok, "trained", "trained"),
        (result.failed, "failed", "failed"),
        (result.stopped, *(f"not finished, the same command goes on with {each}" for each in ("it", "them"))),
        (result.skipped, "was done before", "were done before"),
        (
            result.skipped_other_code,
            *(f"of these ran other code (--rerun-stale trains {each} again)" for each in ("it", "them")),
        ),
        (
            result.skipped_failed,
            *(f"failed before and {each} not tried again (--retry does)" for each in ("was", "were")),
        ),
    )
    words = [f"{count} {one if count == 1 else more}" for count, one, more in counts if count]
    return "; ".join(words) or "nothing was trained"
