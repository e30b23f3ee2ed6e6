"""`ablate retry`: trials that failed or were lost, once more; `run --retry` is in `planning/worklist.py`."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.grid.errors import NotFoundError, SpecError, StoreError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.machine_flags import SLURM_FLAGS, MachineFlags, SlurmFlags
from ablate.runners.cli.monitor import show_failures
from ablate.runners.cli.options import Campaign, Flag, Trials, Trust, flag_group, keep_docstring
from ablate.runners.cli.resolve import find_campaign, open_campaign, read_warnings, require_trust
from ablate.runners.cli.run_here import HERE, run_here
from ablate.runners.output import tell, write
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.state import UNCLAIMED, State

if TYPE_CHECKING:
    from ablate.grid import Grid
    from ablate.runners.attempts.submission_record import Submission
    from ablate.runners.monitoring.trial_locations import TrialLocations
    from ablate.store.store import Store


@flag_group
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


@keep_docstring
def retry(
    *query: Trials,
    which: Which = Which(),
    where: MachineFlags = MachineFlags(),
    campaign: Campaign = None,
    cluster: SLURM_FLAGS = SlurmFlags(),
) -> int:
    """Train trials again that failed, were lost or, with a query, are pending or stopped.

    They are trained where they were before, unless --on says another place. Without arguments it says what failed.
    """
    from ablate.runners.backends.slurm.spec import cluster_of, recorded_request
    from ablate.runners.cli.run_on_backend import run_on_backend
    from ablate.runners.monitoring.trial_locations import locate_trials
    from ablate.store.analysis.trial_query import select

    flags = {State.FAILED: which.failed, State.LOST: which.lost}
    states = [state for state, is_given in flags.items() if is_given]
    if not query and not states:
        show_failures(campaign=campaign)
        raise SpecError("no trials are named; give a query, --failed for all that failed, or --lost for the lost")
    root = find_campaign(campaign)
    with open_campaign(root) as store:
        read_warnings(store)
        locations = locate_trials(store)
        tell(*locations.notes)
        keys = choose(locations, select(store, query) if query else None, states)
        if not keys:
            write(f"no trial is {' or '.join(states)}")
            return 0
        last = last_submission(store.layout, keys)
        spec = spec_of(last, which.spec)
        runs_recorded_file = spec != which.spec or (last is not None and last.is_queued)
        require_trust(store.layout, [spec] if runs_recorded_file else [], trust=which.trust)
        grids = _load_grids(store, keys, spec)
    machine = where.on or (last.machine if last else "local")
    oom = cluster.oom or (last.job.get("oom") if last else None) or "fail"
    more: dict[str, Any] = {"oom": oom, "budget": cluster.read_budget(), "workers": where.workers}
    request = RunRequest(root, files=(spec,), retry=True, only=keys, **more)
    where.check(machine, cluster)
    if machine in HERE:
        return run_here(request, grids, machine)
    if machine == "slurm":
        slurm = recorded_request(last.slurm) if last and last.slurm is not None else cluster_of(spec)
        request = replace(request, cluster=cluster.request(slurm, where.workers))
    return run_on_backend(machine, request, grids, cluster)


def choose(where: "TrialLocations", selected: Collection[str] | None, wanted: Sequence[State]) -> frozenset[str]:
    """Choose the trials of `selected` (None: all) in a state of `wanted`. Without states: unclaimed trials.

    Say how many are left out, as they are in another state or logged by a user's own program.

    Raises NotFoundError if all are left out.
    """
    locations = {key: where.trials[key] for key in (where.trials if selected is None else selected)}
    matching = [key for key, each in locations.items() if each.state in (wanted or (State.FAILED, *UNCLAIMED))]
    keys = frozenset(key for key in matching if not locations[key].logged)
    rest = [locations[key] for key in (matching if selected is None else locations) if key not in keys]
    counts = Counter("logged by your program" if each.logged else each.state for each in rest)
    words = ", ".join(f"{count} {state}" for state, count in counts.items())
    words += "; start your program again for what it logged" if any(each.logged for each in rest) else ""
    if words and not keys:
        raise NotFoundError(f"none of these trials is to be trained again: {words}")
    if words:
        tell(f"left out of these trials: {words}")
    return keys


def last_submission(layout: Layout, keys: Iterable[str]) -> "Submission | None":
    """Read the latest submission that had any of `keys`; if none was begun, the latest of all."""
    from ablate.runners.attempts.submission_record import read_submission_record

    names = {str(last.start["submission"]) for key in keys for last in trial_state(layout, key).attempts[-1:]}
    for name in sorted(names or layout.submission_ids()[-1:], reverse=True):
        try:
            return read_submission_record(layout, name)
        except (NotFoundError, StoreError):
            continue
    return None


def spec_of(last: "Submission | None", spec: Path | None) -> Path:
    """Return the given spec file, else the one that was submitted; raise SpecError if neither is known."""
    recorded = list(last.job.get("specs") or ()) if last else []
    if spec is None and not recorded:
        raise SpecError("no record says which spec file these trials are from; name it with --spec FILE")
    return spec or Path(recorded[0])


def _load_grids(store: "Store", keys: Collection[str], spec: Path) -> "list[Grid]":
    """Load the grids that plan any of `keys`, as they were run; raise SpecError if the file defines none of them."""
    from ablate.grid.overrides import override
    from ablate.runners.provenance.specfile import load_spec_file

    known = load_spec_file(spec)
    rows = store.sql("SELECT DISTINCT grid, trial FROM grid_trial ORDER BY grid").rows()
    names = dict.fromkeys(str(grid) for grid, trial in rows if trial in keys)
    headers = {name: store.grid(name) for name in names}
    origins = {name: known.get(header.get("of", name)) for name, header in headers.items()}
    changed = {name: override(grid, headers[name].get("overrides", ())) for name, grid in origins.items() if grid}
    grids = [grid.named(name) for name, grid in changed.items()]  # release 0.1.0 kept the name of a changed grid
    if not grids:
        raise SpecError(
            f"{spec} defines {', '.join(known)}, and these trials are of {', '.join(names)}; name the file that "
            "defines those with --spec"
        )
    return grids
