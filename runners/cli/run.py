"""The command `run`."""

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ablate.grid.errors import SpecError
from ablate.runners.cli.options import SLURM_FLAGS, MachineFlags, Overrides, Repeat, SlurmFlags, SpecFile, SpecFlags
from ablate.runners.cli.resolve import load_grids, locate_spec
from ablate.runners.cli.run_here import run_here
from ablate.runners.output import say, tell
from ablate.store.files.layout import Layout

if TYPE_CHECKING:
    from ablate.grid import Grid


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
    from ablate.grid.overrides import seeds_of

    machine = where.on or "local"
    where.check(machine, cluster)
    spec, grid = locate_spec(spec, of.grid, of.scale)
    root, grids = load_grids(spec, overrides, dataclasses.replace(of, grid=grid), one=True)
    seeds = seeds_of(overrides)
    replaces = of.replace or (not cluster.dry_run and agrees_to_replace(Layout(root), grids))
    if machine == "slurm":
        from ablate.runners.cli.run_on_slurm import draft_or_queue, submit_options
        from ablate.runners.slurm.spec import cluster_of

        request = cluster.request(cluster_of(spec), where.workers)
        asked = dataclasses.replace(submit_options(spec, repeat, cluster), seeds=seeds, replace=replaces)
        return draft_or_queue(root, grids, request, asked, cluster)
    from ablate.runners.execution.run import RunOptions

    oom: Literal["halve", "fail"] = "halve" if cluster.oom == "halve" else "fail"
    files = (spec.resolve(),)
    options = RunOptions(repeat.retry, repeat.again, seeds=seeds, replace=replaces, oom=oom, files=files)
    return run_here(root, grids, machine, where.workers, options)


def agrees_to_replace(layout: Layout, grids: "Sequence[Grid]") -> bool:
    """Return True if the person at the terminal agrees that finished trials leave these grids; False if none would.

    Raises SpecError if nobody agrees.
    """
    from ablate.runners.planning.kept_results import ReplacesResults, require_kept

    try:
        require_kept(layout, grids)
    except ReplacesResults as refusal:
        if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        tell(str(refusal))
        say("Take them out of the grid? [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SpecError("the plan of the grid stays as it was, and nothing was trained") from refusal
        return True
    return False
