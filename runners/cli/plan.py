"""The command `plan`."""

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from ablate.grid.errors import SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.machine_flags import SLURM_FLAGS, SlurmFlags
from ablate.runners.cli.named_grids import locate_spec
from ablate.runners.cli.options import Flag, Json, Overrides, SpecFile, SpecFlags, flag_group, keep_docstring
from ablate.runners.cli.resolve import find_campaign, load_grids, local_devices, read_warnings
from ablate.runners.output import slow_notice, tell, write_json, write_prose
from ablate.store.files.layout import Layout
from ablate.store.state import CLAIMED, State


@flag_group
class PlanFlags:
    """Where time is estimated for, and by which noise seeds are counted.

    Parameters
    ----------
    on
        local: worker processes here; slurm: the workers that a cluster would be asked for.
    workers
        How many of them; default one per GPU, else per core. On slurm, as many as have work for half of their time
        limit.
    noise_from
        Another campaign, whose noise of seeds is used if this one has too few finished trials.
    all
        List every cell; default the first ten.
    calibrate
        Measure five steps of each model and operator on this machine, in grids without finished trials.
    """

    on: Literal["local", "slurm"] = "local"
    workers: int | None = None
    cluster: SLURM_FLAGS = SlurmFlags()
    noise_from: Path | None = None
    all: Flag = False
    calibrate: Flag = False

    def check(self) -> None:
        """Raise SpecError for flags that say nothing to a plan."""
        if self.on != "slurm":
            self.cluster.refuse(self.on)
        for flag in ("budget", "dry_run", "wait", *(["oom"] if self.on != "slurm" else [])):
            if flag in self.cluster.to_dict():
                raise SpecError(
                    f"--{flag.replace('_', '-')} has no effect on a plan, which queues nothing; leave it out, or use "
                    "`ablate run`"
                )


@keep_docstring
def plan(
    spec: SpecFile,
    /,
    *overrides: Overrides,
    of: SpecFlags = SpecFlags(),
    where: PlanFlags = PlanFlags(),
    as_json: Json = False,
) -> int:
    """Show what a spec file would run: cells, keys, pruned cells, parameters, time.

    It trains and queues nothing. It ends with 2, and says why, if trials would fail before their first step or, with
    --calibrate, in the steps that it measures.
    """
    from ablate.grid.overrides import seeds_of
    from ablate.runners.backends.slurm.spec import cluster_of
    from ablate.runners.cli.campaign_plan import PlanOptions, plan_campaign, plan_data, plan_lines

    where.check()
    spec, of = locate_spec(spec, of)
    root, grids = load_grids(spec, overrides, of, one=False)
    is_local = where.on == "local"
    states, members = _locate_trials(root, [each.name for each in grids])
    options = PlanOptions(
        workers=len(local_devices(where.workers, grids)) if is_local else 1,
        slurm=None if is_local else where.cluster.request(cluster_of(spec), where.workers),
        states=states,
        parameters=True,
        noise_from=None if where.noise_from is None else Layout(find_campaign(where.noise_from)),
        seconds=_measure if where.calibrate else None,
    )
    request = RunRequest(root, files=(spec,), retry=of.retry, again=of.again, seeds=seeds_of(overrides))
    planned = plan_campaign(request, grids, options)
    leaving = Counter(states.get(key) for key in members - {trial.key for trial in planned.trials})
    counts = {"queued or running": sum(leaving[state] for state in CLAIMED), "finished": leaving[State.DONE]}
    if words := " and ".join(f"{count} {state}" for state, count in counts.items() if count):
        tell(
            f"{words} trials of the campaign are not in this plan; `ablate run` takes them out of the grid if you agree"
        )
    if as_json:
        write_json("plan", plan_data(planned))
    else:
        for line in plan_lines(planned, every_cell=where.all):
            write_prose(line)
    broken = where.calibrate and planned.estimate.broken
    return SpecError.exit_code if planned.refused or broken else 0


def _measure(trial: Any) -> float | None:
    """Return the seconds of a training here, by a few steps."""
    from ablate.runners.attempts.experiments import train_experiment
    from ablate.runners.planning.duration import measure_seconds

    with TemporaryDirectory() as directory, Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        return measure_seconds(trial, lambda each, context: train_experiment(each, context, Path(directory)))


def _locate_trials(root: Path, grids: Sequence[str]) -> "tuple[dict[str, State], set[str]]":
    """Return where the trials of a campaign are, as `ablate status` says, and the keys that it plans in `grids`."""
    from ablate.runners.monitoring.trial_locations import locate_trials
    from ablate.store.store import Store

    if not Layout(root).exists():
        return {}, set()
    with slow_notice("looking where trials are"), Store.open(root) as store:
        read_warnings(store)
        locations = locate_trials(store)
        members = store.sql("SELECT trial FROM grid_trial WHERE list_contains($grids, grid)", {"grids": list(grids)})
    tell(*locations.notes)
    return {key: each.state for key, each in locations.trials.items()}, set(members["trial"])
