"""Find the campaign, grids and trials that a command means, and ask before code of others runs."""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.grid.errors import NotFoundError, SpecError, StoreError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.runners.cli.cell_selection import sort_by_plan
from ablate.runners.cli.options import GridFlags, SpecFlags, require_one_format
from ablate.runners.output import slow_notice, tell
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout

if TYPE_CHECKING:
    from ablate.grid import Grid
    from ablate.store.store import Store

CAMPAIGNS = Path("campaigns")
"""Where `run` puts a campaign when no other directory is named."""

MOST_NAMED = 8
"""Most matches that are named if there are several."""


def find_campaign(campaign: Path | None) -> Path:
    """Find the campaign to read: the one named, the working directory, or the only one below campaigns/."""
    if campaign is not None:
        if not Layout(campaign).exists():
            beside = [str(place) for place in campaign.parent.glob("*") if Layout(place).exists()]
            raise NotFoundError(
                f"there is no campaign in {campaign}{'' if campaign.is_dir() else ', which does not exist'}; "
                f"`ablate run SPEC --campaign {campaign}` makes one{suggest_name(str(campaign), beside)}"
            )
        return campaign
    if Layout(Path()).exists():
        return Path()
    campaigns = _campaigns_below()
    if len(campaigns) == 1:
        return campaigns[0]
    if not campaigns:
        raise NotFoundError(f"there is no campaign below {CAMPAIGNS}/; run a spec first, or name one with --campaign")
    raise SpecError(
        f"several campaigns are in {CAMPAIGNS}/: {', '.join(map(str, campaigns))}; name one with --campaign"
    )


def open_campaign(campaign: Path | None, *, thorough: bool = True, most_s: float = math.inf) -> "Store":
    """Open the store of the campaign that `find_campaign` finds; arguments as of `Store.open`."""
    from ablate.store.analysis.judge import conclude
    from ablate.store.store import Store

    place = find_campaign(campaign)
    return Store.open(place, thorough=thorough, most_s=most_s, conclude=conclude if most_s == math.inf else None)


@contextmanager
def open_grid(flags: GridFlags) -> "Iterator[tuple[Store, str, list[str]]]":
    """Open the store, a grid of it, and the warnings about its results, which go to stderr unless JSON has them."""
    require_one_format(json=flags.as_json, csv=flags.as_csv)
    with open_campaign(flags.campaign) as store:
        name = choose_grid(store, flags.grid)
        yield store, name, read_warnings(store, name, quiet=flags.as_json)


def read_warnings(store: "Store", grid: str | None = None, *, quiet: bool = False) -> list[str]:
    """Return what readers of these results must know. Unless `quiet`, write it to stderr."""
    warnings = store.warnings(grid)
    if not quiet:
        tell(*warnings)
    return warnings


def require_trust(layout: Layout, code: Iterable[Path], *, trust: bool) -> None:
    """Raise SpecError, which names the files `code`, unless this user trusts the campaign; `trust` does so for good."""
    from ablate.store.files.trust import trust as remember, trusts

    files = ", ".join(map(str, code))
    if not files or trusts(layout, "code"):
        return
    if not trust:
        raise SpecError(
            f"you did not make the campaign {layout.root} here, and this command would run code that it names: "
            f"{files}; read it first, then add --trust"
        )
    remember(layout, "code")


def find_campaigns(named: Sequence[Path]) -> list[Path]:
    """Find the campaigns to show: those named, the working directory, or all below campaigns/."""
    if named:
        return [find_campaign(campaign) for campaign in named]
    return [Path()] if Layout(Path()).exists() else _campaigns_below() or [find_campaign(None)]


def _campaigns_below() -> list[Path]:
    return sorted(path for path in CAMPAIGNS.glob("*") if Layout(path).exists())


def load_grids(spec: Path, overrides: Sequence[str], of: SpecFlags, *, one: bool) -> "tuple[Path, list[Grid]]":
    """Load the grid `of.grid` of a spec file with the overrides; without a name the only one, or all unless `one`.

    Seeds that an earlier run added to a grid stay, unless `of.replace`.

    Return the campaign's directory, by default campaigns/FILE, and the grids. Raise SpecError for an invalid file,
    override or cell, and NotFoundError if the file or the grid is not there.
    """
    from ablate.grid.overrides import add_seeds, override, seeds_of
    from ablate.runners.planning.longer import choose_longer
    from ablate.runners.provenance.specfile import load_spec_file, place_of

    wanted = of.grid
    grids, root = load_spec_file(spec), of.campaign or CAMPAIGNS / spec.stem
    if wanted is not None and wanted not in grids:
        near = suggest_name(wanted, list(grids))
        raise NotFoundError(f"{spec} has no grid {wanted!r}; it has {', '.join(map(repr, grids))}{near}")
    if wanted is None and one and len(grids) > 1:
        raise SpecError(f"{spec} has several grids: {', '.join(grids)}; choose one with --grid")
    chosen = grids.values() if wanted is None else [grids[wanted]]
    loaded = [override(each, overrides) for each in chosen]
    for at, grid in enumerate(loaded):
        with suppress(NotFoundError, StoreError):  # there is no such grid yet, or it is damaged and written anew
            before = read_json(Layout(root).grid_header(grid.name)).get("overrides") or ()
            if not of.replace and isinstance(before, list) and all(isinstance(each, str) for each in before):
                loaded[at] = add_seeds(grid, seeds_of(before) or ())
    loaded = [choose_longer(Layout(root), grid) for grid in loaded]
    for grid in loaded:
        try:
            with slow_notice("planning: building every cell"):
                _ = grid.enumeration
        except SpecError as error:  # it names the cell, not the file
            raise SpecError(f"{place_of(grid.name, spec)}: {error}") from error
    return root, loaded


def choose_grid(store: "Store", wanted: str | None) -> str:
    """Find the grid called `wanted` in the store, or its only one."""
    names = store.grids()
    if wanted is not None:
        store.grid(wanted)
        return wanted
    if len(names) == 1:
        return names[0]
    if not names:
        damage = "".join(f"; {warning}" for warning in store.damage())
        if damage:
            raise StoreError(f"no grid of {store.layout.root} can be read{damage}; `ablate check` says what repairs it")
        store.require_read(store.layout.grid_names())
        raise NotFoundError(f"{store.layout.root} has no grid yet; `ablate run SPEC` plans one")
    raise SpecError(f"{store.layout.root} has several grids: {', '.join(names)}; choose one with --grid")


def find_one(store: "Store", words: Sequence[str]) -> str:
    """Find the key of the one trial that `words` mean.

    Raises SpecError if there are no words or several trials, NotFoundError if there is no trial.
    """
    if not words:
        raise SpecError("no trial is named; name it by its KEY, or by a query that fits it alone: operator=SSA seed=1")
    keys = find_several(store, words)
    if len(keys) > 1:
        query = "SELECT * FROM grid_trial WHERE list_contains($keys, trial) ORDER BY grid, position"
        listed = sort_by_plan(store, store.sql(query, {"keys": keys})).unique("trial", maintain_order=True)
        rows = listed.select("trial", "label", "seed").rows()
        named = some([f"{key[:8]} {label} seed {seed}" for key, label, seed in rows], MOST_NAMED)
        raise SpecError(f"{len(keys)} trials fit {' '.join(words)!r}: {named}; add words until it is one")
    return keys[0]


def find_several(store: "Store", words: Sequence[str]) -> list[str]:
    """Find the keys of the trials that `words` mean, in the order of the plan. Raise NotFoundError for none."""
    from ablate.store.analysis.trial_query import select

    try:
        return select(store, words)
    except NotFoundError:
        query = "SELECT trial FROM trial WHERE starts_with(trial, $key) LIMIT 2"
        begun = store.sql(query, {"key": words[0].lower()})["trial"].to_list()
        if len(words) > 1 or len(begun) != 1:
            raise
        return begun  # no grid plans this trial any more


def worker_count(workers: int | None) -> int:
    """Return the number of workers; by default one per core that this process may use."""
    if workers is None:
        return len(os.sched_getaffinity(0))
    if workers < 1:
        raise SpecError(f"--workers {workers} is too few; give at least 1")
    return workers


def local_devices(workers: int | None, grids: "Iterable[Grid]") -> list[str | None]:
    """Return the GPUs of each worker on this machine, as CUDA_VISIBLE_DEVICES names them; None: those that are visible.

    If trials may use GPUs, each GPU has a worker by default, or each group of as many as one trial takes. More workers
    share them in turn. Otherwise the count is that of `worker_count`.
    """
    if not (visible := visible_gpus()):
        return [None] * worker_count(workers)
    executions = [planned.trial.execution for grid in grids for planned in grid.cells()]
    each = max((execution.gpus for execution in executions if execution.device != "cpu"), default=len(visible) + 1)
    groups = [",".join(visible[first : first + each]) for first in range(0, len(visible) - each + 1, each)]
    if not groups:
        return [None] * worker_count(workers)
    return [groups[at % len(groups)] for at in range(len(groups) if workers is None else worker_count(workers))]


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that processes of this machine see, as CUDA_VISIBLE_DEVICES names them; loads torch if any."""
    if not Path("/dev/nvidiactl").exists():
        return ()
    import torch

    from ablate.runners.backends.slurm.worker.task_environment import here

    return here().devices(torch.cuda.device_count())
