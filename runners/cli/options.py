"""Flags that several commands have."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, final

from cyclopts import Group, Parameter

from grid.errors import SpecError
from grid.paper import PaperScale
from runners.output import say

if TYPE_CHECKING:
    from runners.slurm.spec import Slurm
    from store.store import Store

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
Csv = Annotated[bool, Parameter(name="--csv", negative="", help="Print CSV.")]
Campaign = Annotated[Path | None, Parameter(help="The campaign directory; default the only one below campaigns/.")]
OneGrid = Annotated[str | None, Parameter(help="One of its grids, when it has several.")]
AnyGrid = Annotated[str | None, Parameter(help="One of its grids; default all.")]
Flag = Annotated[bool, Parameter(negative="")]


def say_warnings(store: "Store", grid: str | None = None) -> list[str]:
    """Write on stderr what readers of these results must know, and return it."""
    warnings = store.warnings(grid)
    for warning in warnings:
        say(f"ablate: {warning}")
    return warnings


@final
@dataclass(frozen=True)
class GridFlags:
    """A grid of a campaign, and the format of the answer."""

    campaign: Campaign = None
    grid: OneGrid = None
    as_json: Json = False
    as_csv: Csv = False

    @property
    def as_text(self) -> bool:
        """True if a person reads the answer."""
        return not (self.as_json or self.as_csv)

    @contextmanager
    def open(self) -> "Iterator[OpenGrid]":
        """Open the store, and collect what a reader of the grid's results must know.

        Raises:
            NotFoundError: there is no such campaign or grid.
        """
        from runners.cli.resolve import choose_grid, find_campaign
        from store.store import Store

        with Store.open(find_campaign(self.campaign)) as store:
            name = choose_grid(store, self.grid)
            warnings = store.warnings(name) if self.as_json else say_warnings(store, name)
            yield OpenGrid(store, name, warnings)


class OpenGrid(NamedTuple):
    """A grid of an open store, with the warnings about its results."""

    store: "Store"
    name: str
    warnings: list[str]


Campaigns = Annotated[
    tuple[Path, ...],
    Parameter(help="The campaign directory; repeat it for more. Default the only one below campaigns/.", negative=""),
]


@final
@dataclass(frozen=True)
class ManyFlags:
    """A grid of each of some campaigns, and the format of the answer."""

    campaign: Campaigns = ()
    grid: OneGrid = None
    as_json: Json = False
    as_csv: Csv = False

    def each(self) -> list[GridFlags]:
        """The flags of each campaign."""
        return [GridFlags(path, self.grid, self.as_json, self.as_csv) for path in self.campaign or (None,)]


MANY_FLAGS = Annotated[ManyFlags, Parameter(name="*")]
"""Flattened: `--campaign`, also several times, `--grid`, `--json`, `--csv`."""

ONE_OR_MORE = ManyFlags()

GRID_FLAGS = Annotated[GridFlags, Parameter(name="*")]
"""Flattened: `--campaign`, `--grid`, `--json`, `--csv`."""

ONE_GRID = GridFlags()


@final
@dataclass(frozen=True)
class SpecFlags:
    """Which grid of a spec file, and its campaign.

    Parameters
    ----------
    grid
        One of the file's grids; `plan` takes all by default, and `run` the only one.
    scale
        For an item of a paper, such as ssa:table1: paper, gpu or cpu; default cpu. `ablate papers` lists them.
    campaign
        Directory of the results; default campaigns/FILE.
    """

    grid: str | None = None
    scale: PaperScale | None = None
    campaign: Path | None = None

    def locate(self, spec: Path) -> tuple[Path, str | None]:
        """Return the file and the grid that are meant, as `locate_spec` does."""
        from runners.cli.papers import locate_spec

        return locate_spec(spec, self.grid, self.scale)


SPEC_FLAGS = Annotated[SpecFlags, Parameter(name="*")]
"""Flattened: `--grid`, `--scale` and `--campaign`."""

ANY_SPEC = SpecFlags()


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


MACHINE_FLAGS = Annotated[MachineFlags, Parameter(name="*")]
"""Flattened: `--on` and `--workers`."""

LOCAL = MachineFlags()


@final
@dataclass(frozen=True)
class Repeat:
    """Which trials that have ended are trained again.

    Parameters
    ----------
    retry
        Try failed trials again.
    again
        Train finished trials again that other code made, such as a formula that was edited since. Training starts from
        the beginning; the latest attempt that is ok counts.
    """

    retry: Flag = False
    again: Annotated[bool, Parameter(name=("--rerun-stale", "--again"), negative="")] = False


Repeats = Annotated[Repeat, Parameter(name="*")]
"""Flattened: `--retry` and `--rerun-stale`."""

ONCE = Repeat()

ON_SLURM = Group(
    "With --on slurm",
    help="Each replaces a field of the file's Slurm(...); Needs(...) of some trials are more specific, and stay.",
    sort_key=1,
)


@final
@dataclass(frozen=True)
class SlurmFlags:
    """Request to a cluster.

    Parameters
    ----------
    partition
        Default the cluster's own. Of several, gpu,old, SLURM takes the first that has room.
    account
        Account that is charged.
    qos
        Quality of service.
    constraint
        Features that nodes must have.
    exclude
        Nodes that no worker is sent to.
    time
        Time limit of a worker: 90m, 8h, 1d12h. One that reaches it saves, is queued again and goes on.
    gpus
        Per worker; 0 trains on the CPU.
    gpu_type
        Such as h100.
    cpus
        Per worker; default one per trial and one more.
    mem
        Per worker: 16G.
    per_gpu
        Trials side by side on one GPU; auto: as many as fit by the memory of the first.
    max_parallel
        Workers that run at the same time; arrays share it by their sizes once.
    setup
        A shell line before Python starts; repeat it for more.
    signal_s
        Seconds before the time limit at which workers save and leave.
    oom
        A trial out of memory has failed; halve: it goes on with half the micro-batch; bigger, with --on slurm: when it
        is tried again it is given twice the memory.
    budget
        Workers take no more trials when so much was used: 200gpuh of their GPUs, or 40cpuh of their cores.
    dry_run
        Show what would be queued, with its scripts, and write nothing.
    wait
        Follow it until nothing is queued or running, with the exit code of a run on this machine.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    time: str | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    cpus: int | None = None
    mem: str | None = None
    per_gpu: int | Literal["auto"] | None = None
    max_parallel: int | None = None
    setup: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    signal_s: int | None = None
    oom: Annotated[Literal["fail", "halve", "bigger"] | None, Parameter(group="Parameters")] = None
    budget: str | None = None
    dry_run: Flag = False
    wait: Flag = False

    def to_dict(self) -> dict[str, Any]:
        """The flags that were given."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value for name, value in every.items() if value is not None and value is not False and value != ()
        }

    def refuse(self, on: str) -> None:
        """Refuse flags of a cluster where there is none.

        Raises:
            SpecError: one was given.
        """
        for name in self.to_dict():
            if name != "oom":
                raise SpecError(f"--{name.replace('_', '-')} is for --on slurm, and this is --on {on}")
        if self.oom == "bigger":
            raise SpecError(
                f"--oom bigger asks --on slurm for more memory, and this is --on {on}; --oom halve needs less"
            )

    def request(self, kept: "Slurm | None", workers: int | None) -> "Slurm":
        """Combine the flags with the request of the spec file.

        Raises:
            SpecError: together they have no meaning.
        """
        from runners.slurm.spec import Slurm

        own = {name: value for name, value in self.to_dict().items() if name in Slurm.model_fields}
        asked = {**own, **({} if workers is None else {"workers": workers})}
        return (kept or Slurm()).override(**asked)


def check_machine(on: str, workers: int | None, cluster: SlurmFlags) -> None:
    """Refuse flags that say nothing to the machine.

    Raises:
        SpecError: one was given.
    """
    if on != "slurm":
        cluster.refuse(on)
    if on == "inline" and workers is not None:
        raise SpecError("--workers is for --on local and --on slurm; inline trains in this process, a trial at a time")


SLURM_FLAGS = Annotated[SlurmFlags, Parameter(name="*", group=ON_SLURM)]
"""Flattened."""

NO_CLUSTER = SlurmFlags()
