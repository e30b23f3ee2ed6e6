"""The command `run`: it finds and loads the spec, then trains here or queues on another backend.

    run > locate_spec (`named_grids.py`), load_grids (`resolve.py`) > run_here > run_campaign, whose module
    `ablate.runners.execution.run` has the rest of the way; with another --on: run_on_backend > Backend.submit

The request is the same for all.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.grid.errors import SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.machine_flags import SLURM_FLAGS, MachineFlags, SlurmFlags
from ablate.runners.cli.named_grids import locate_spec
from ablate.runners.cli.options import Overrides, SpecFile, SpecFlags, keep_docstring
from ablate.runners.cli.plan import PlanFlags, plan
from ablate.runners.cli.resolve import load_grids
from ablate.runners.cli.run_here import HERE, run_here
from ablate.runners.output import say, tell
from ablate.store.files.layout import Layout

if TYPE_CHECKING:
    from ablate.grid import Grid


@keep_docstring
def run(
    spec: SpecFile,
    /,
    *overrides: Overrides,
    of: SpecFlags = SpecFlags(),
    where: MachineFlags = MachineFlags(),
    cluster: SLURM_FLAGS = SlurmFlags(),
) -> int:
    """Train every trial of a grid that the campaign does not have yet. Safe to repeat."""
    from ablate.grid.overrides import seeds_of

    machine = where.on or "local"
    where.check(machine, cluster)
    if cluster.dry_run and machine in HERE:
        return plan(spec, *overrides, of=of, where=PlanFlags(workers=where.workers))
    spec, of = locate_spec(spec, of)
    root, grids = load_grids(spec, overrides, of, one=True)
    request = RunRequest(
        root,
        files=(spec,),
        retry=of.retry,
        again=of.again,
        seeds=seeds_of(overrides),
        replace=of.replace or (not cluster.dry_run and agrees_to_replace(Layout(root), grids)),
        workers=where.workers,
        oom=cluster.oom or "fail",
        budget=cluster.read_budget(),
    )
    if machine in HERE:
        return run_here(request, grids, machine)
    from ablate.runners.backends.slurm.spec import cluster_of
    from ablate.runners.cli.run_on_backend import run_on_backend

    if machine == "slurm":
        request = dataclasses.replace(request, cluster=cluster.request(cluster_of(spec), where.workers))
    return run_on_backend(machine, request, grids, cluster)


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
