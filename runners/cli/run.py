"""Commands that plan and run trials."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

from cyclopts import Parameter

from runners.cli.options import (
    ANY_SPEC,
    LOCAL,
    MACHINE_FLAGS,
    NO_CLUSTER,
    ONCE,
    SLURM_FLAGS,
    SPEC_FLAGS,
    Flag,
    Json,
    Repeat,
    Repeats,
    check_machine,
)
from runners.cli.outcome import give_back, report_outcome
from runners.output import say, write, write_json
from runners.slow_notice import slow_notice

if TYPE_CHECKING:
    from runners.cli.plan import PlanOptions
    from runners.monitoring.trial_locations import State


@final
@dataclass(frozen=True)
class PlannedFor:
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
        """Refuse flags that say nothing to a plan.

        Raises:
            SpecError: one was given.
        """
        from grid.errors import SpecError

        if self.on != "slurm":
            self.cluster.refuse(self.on)
        for flag in ("budget", "dry_run", "wait", *(["oom"] if self.on != "slurm" else [])):
            if flag in self.cluster.to_dict():
                raise SpecError(f"--{flag.replace('_', '-')} is for `ablate run`; a plan queues nothing, leave it out")


HERE = PlannedFor()


def plan(
    spec: Path,
    /,
    *overrides: str,
    of: SPEC_FLAGS = ANY_SPEC,
    where: Annotated[PlannedFor, Parameter(name="*")] = HERE,
    repeat: Repeats = ONCE,
    as_json: Json = False,
) -> int:
    """Show what a spec file would run: cells, keys, pruned cells, parameters, time. Trains and queues nothing.

    Ends with 2 where trials would fail before their first step, and says why.

    Parameters
    ----------
    spec
        A Python file that defines grids, or an item of a paper, such as ssa:table1.
    overrides
        Changes of every grid: training.steps=100 of its base trial, seeds=0..9 or seeds=0,2,5.
    """
    from grid.errors import SpecError
    from runners.cli.plan import plan_campaign, plan_data, plan_lines
    from runners.cli.resolve import campaign_for, find_campaign, load_grids, note_other_overrides
    from store.files.layout import Layout

    where.check()
    spec, grid = of.locate(spec)
    grids = load_grids(spec, overrides, grid, one=False)
    root = campaign_for(spec, of.campaign)
    note_other_overrides(root, grids)
    other = None if where.noise_from is None else Layout(find_campaign(where.noise_from))
    options = replace(_plan_options(spec, where, repeat), states=_states(root), noise_from=other)
    found = plan_campaign(root, grids, options)
    if as_json:
        write_json("plan", plan_data(found))
    else:
        write("\n".join(plan_lines(found)))
    return SpecError.exit_code if found.refused else 0


def _states(root: Path) -> "dict[str, State]":
    """Where the trials of a campaign are, as `ablate status` says; empty where there is no campaign yet."""
    from runners.monitoring.trial_locations import locate_trials
    from runners.slurm.scheduler import SlurmScheduler
    from store.files.layout import Layout
    from store.store import Store

    if not Layout(root).exists():
        return {}
    with slow_notice("looking where trials are"), Store.open(root) as store:
        found = locate_trials(store, SlurmScheduler())
    for note in found.notes:
        say(f"ablate: {note}")
    return {key: each.state for key, each in found.trials.items()}


def _plan_options(spec: Path, where: PlannedFor, repeat: Repeat) -> "PlanOptions":
    from runners.cli.plan import PlanOptions
    from runners.cli.resolve import worker_count
    from runners.planning.step_timing import measure_seconds
    from runners.slurm.spec import cluster_of
    from runners.training.loop import train
    from runners.trial import parameters

    seconds = (lambda trial: measure_seconds(trial, train)) if where.calibrate else None
    options = PlanOptions(retry=repeat.retry, again=repeat.again, parameters=parameters, seconds=seconds, files=(spec,))
    if where.on == "slurm":
        return replace(options, slurm=where.cluster.request(cluster_of(spec), where.workers))
    return replace(options, workers=worker_count(where.workers))


def run(
    spec: Path,
    /,
    *overrides: str,
    of: SPEC_FLAGS = ANY_SPEC,
    where: MACHINE_FLAGS = LOCAL,
    repeat: Repeats = ONCE,
    cluster: SLURM_FLAGS = NO_CLUSTER,
) -> int:
    """Train every trial of a grid that the campaign does not have yet. Safe to repeat.

    Parameters
    ----------
    spec
        A Python file that defines grids, or an item of a paper, such as ssa:table1.
    overrides
        Changes of every grid: training.steps=100 of its base trial, seeds=0..9 or seeds=0,2,5.
    """
    from runners.cli.resolve import campaign_for, load_grids, note_other_overrides, worker_count

    check_machine(where.on, where.workers, cluster)
    spec, grid = of.locate(spec)
    root = campaign_for(spec, of.campaign)
    grids = load_grids(spec, overrides, grid, one=True)
    note_other_overrides(root, grids)
    if where.on == "slurm":
        from runners.cli.run_on_slurm import run_on_slurm

        return run_on_slurm(spec, root, grids, where.workers, repeat, cluster)
    from runners.execution import Inline, Local, Machine
    from runners.execution.run import RunOptions, run_campaign

    machine: Machine = Inline() if where.on == "inline" else Local(worker_count(where.workers))
    give_back(root, grids, repeat)
    options = RunOptions(
        retry=repeat.retry,
        again=repeat.again,
        files=(spec.resolve(),),
        oom="halve" if cluster.oom == "halve" else "fail",
    )
    return report_outcome(run_campaign(root, grids, machine, options), root)
