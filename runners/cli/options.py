"""Parameters that several commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, dataclass_transform

from cyclopts import Group, Parameter

from ablate.grid.docstrings import docstring
from ablate.grid.errors import SpecError
from ablate.grid.paper import PaperScale

if TYPE_CHECKING:
    from ablate.runners.slurm.spec import Slurm

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def flag_group(cls: type[T]) -> type[T]:
    """Make a class a frozen group of options, which a command takes as one parameter."""
    cls.__doc__ = docstring(cls)  # the help of its options, also with -OO
    return Parameter(name="*")(dataclass(frozen=True)(cls))


Flag = Annotated[bool, Parameter(negative="")]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
Csv = Annotated[bool, Parameter(name="--csv", negative="", help="Print CSV.")]
Campaign = Annotated[Path | None, Parameter(help="The campaign directory; default the only one below campaigns/.")]
Campaigns = Annotated[
    tuple[Path, ...],
    Parameter(help="The campaign directory; repeat it for more. Default the only one below campaigns/.", negative=""),
]
OneGrid = Annotated[str | None, Parameter(help="One of its grids, when it has several.")]
AnyGrid = Annotated[str | None, Parameter(help="One of its grids; default all.")]
WholeGrid = Annotated[str | None, Parameter(help="A grid as a whole, instead of a query.")]
Cells = Annotated[str, Parameter(help="Only these cells: operator=SSA, lr=0.001, or a label.")]
OneTrial = Annotated[
    str, Parameter(help="Which trial: the beginning of its key, or conditions that fit it alone: operator=SSA seed=1.")
]
Trials = Annotated[
    str,
    Parameter(
        help="Which trials: the beginning of a key, a label, or conditions such as operator=SSA seed<3 state=failed; "
        "an axis and reason are fields too, and label~head means contains. All conditions must hold; of several with "
        "= on one field, either."
    ),
]
SpecFile = Annotated[
    Path, Parameter(help="A Python file that defines grids, or an item of a paper, such as ssa:table1.")
]
Overrides = Annotated[
    str,
    Parameter(help="Seeds, as seeds=0..9 or seeds=0,2,5; or training.steps=100, a grid of its own."),
]
Trust = Annotated[
    bool, Parameter(negative="", help="Run the code that a campaign from somebody else names, now and later.")
]


def require_one_format(**given: bool) -> list[str]:
    """Return the flag that was given, if any, such as --csv for `csv`. Raise SpecError for several."""
    names = [f"--{name}" for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise SpecError(f"a result has one format; got {' and '.join(names)}: leave one out")
    return names


@flag_group
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


@flag_group
class Listing:
    """Order and columns of a table.

    Parameters
    ----------
    sort
        By effect, the best first; by p; or in the order of the plan.
    columns
        Headings, or columns of the JSON answer (cell is the key), to show instead: label,n,hedges_g.
    """

    sort: Literal["effect", "p", "plan"] = "effect"
    columns: str | None = None


@flag_group
class SpecFlags:
    """A grid of a spec file, and its campaign.

    Parameters
    ----------
    grid
        One of the file's grids; `plan` takes all by default, and `run` the only one.
    scale
        For an item of a paper, such as ssa:table1: paper, gpu or cpu; default cpu. `ablate papers` lists them.
    campaign
        Directory of the results; default campaigns/FILE.
    replace
        Let finished trials that the file no longer plans leave the tables.
    """

    grid: str | None = None
    scale: PaperScale | None = None
    campaign: Path | None = None
    replace: Flag = False


@flag_group
class Repeat:
    """Which trials that have ended are trained again.

    Parameters
    ----------
    retry
        Try failed trials again.
    again
        Train finished trials again that other code made, such as an edited formula, from the beginning; the latest
        attempt that is ok counts.
    """

    retry: Flag = False
    again: Annotated[bool, Parameter(name=("--rerun-stale", "--again"), negative="")] = False


ON_SLURM = Group(
    "With --on slurm",
    help="Each replaces a field of the file's Slurm(...); Needs(...) of some trials are more specific, and stay.",
    sort_key=1,
)


@flag_group
class SlurmFlags:
    """Request to a cluster.

    Parameters
    ----------
    partition
        Default the cluster's own. SLURM takes the first of gpu,old that has room.
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
        Trials side by side on one GPU.
    max_parallel
        Workers that run at the same time; arrays share it by their sizes once.
    setup
        A shell line before Python starts; repeat it for more.
    signal_s
        Seconds before the time limit at which workers save and leave.
    oom
        A trial out of memory has failed; halve: it goes on with half the micro-batch.
    budget
        Workers take no more trials after so much use: 200gpuh, or 40cpuh of cores.
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
    per_gpu: int | None = None
    max_parallel: int | None = None
    setup: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    signal_s: int | None = None
    oom: Annotated[Literal["fail", "halve"] | None, Parameter(group="Parameters")] = None
    budget: str | None = None
    dry_run: Flag = False
    wait: Flag = False

    def to_dict(self) -> dict[str, Any]:
        """Return the flags that were given."""
        return {name: value for name, value in vars(self).items() if value != getattr(type(self), name)}

    def refuse(self, on: str) -> None:
        """Raise SpecError if a flag of a cluster was given, and trials run `on` this machine."""
        for name in self.to_dict():
            if name != "oom":
                raise SpecError(f"--{name.replace('_', '-')} is for --on slurm, and this is --on {on}")

    def request(self, defaults: "Slurm | None", workers: int | None) -> "Slurm":
        """Combine the flags with the request of the spec file. Raise SpecError if together they have no meaning."""
        from ablate.runners.slurm.spec import Slurm

        given = {name: value for name, value in self.to_dict().items() if name in Slurm.model_fields}
        return (defaults or Slurm()).override(**given, **({} if workers is None else {"workers": workers}))


@flag_group
class MachineFlags:
    """Where trials are trained.

    Parameters
    ----------
    on
        local: warm worker processes of one thread each; inline: in this process; slurm: queued on the cluster. Default
        local; `retry` takes what they were trained on the last time.
    workers
        Worker processes; default one per core. On slurm, array tasks in all; default as many as have work for half of
        their time limit.
    """

    on: Literal["local", "inline", "slurm"] | None = None
    workers: int | None = None

    def check(self, on: str, cluster: SlurmFlags) -> None:
        """Raise SpecError for flags that say nothing to the machine `on`."""
        if on != "slurm":
            cluster.refuse(on)
        if on == "inline" and self.workers is not None:
            raise SpecError("--workers is for --on local and --on slurm; inline trains a trial at a time")


SLURM_FLAGS = Annotated[SlurmFlags, Parameter(name="*", group=ON_SLURM)]
