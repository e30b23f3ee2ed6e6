"""The command `run`."""

from typing import Literal

from runners.cli.options import SLURM_FLAGS, MachineFlags, Overrides, Repeat, SlurmFlags, SpecFile, SpecFlags
from runners.cli.resolve import load_grids, locate_spec
from runners.cli.run_here import run_here


def run(
    spec: SpecFile,
    /,
    *overrides: Overrides,
    of: SpecFlags = SpecFlags(),
    where: MachineFlags = MachineFlags(),
    repeat: Repeat = Repeat(),
    cluster: SLURM_FLAGS = SlurmFlags(),
) -> int:
    """Train every trial of a grid that the campaign does not have yet. Safe to repeat."""
    machine = where.on or "local"
    where.check(machine, cluster)
    spec, grid = locate_spec(spec, of.grid, of.scale)
    root, grids = load_grids(spec, overrides, grid, of.campaign, one=True)
    if machine == "slurm":
        from runners.cli.run_on_slurm import draft_or_queue, submit_options
        from runners.slurm.spec import cluster_of

        request = cluster.request(cluster_of(spec), where.workers)
        return draft_or_queue(root, grids, request, submit_options(spec, repeat, cluster), cluster)
    from runners.execution.run import RunOptions

    oom: Literal["halve", "fail"] = "halve" if cluster.oom == "halve" else "fail"
    options = RunOptions(retry=repeat.retry, again=repeat.again, files=(spec.resolve(),), oom=oom)
    return run_here(root, grids, machine, where.workers, options)
