"""Options that say where trials are trained; those of a cluster are the fields of `Slurm`."""

from collections.abc import Iterator
from dataclasses import make_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from cyclopts import Group, Parameter

from ablate.grid.errors import SpecError
from ablate.runners.backends.backend import backend_names
from ablate.runners.backends.slurm.spec import Slurm, WorkerFields, read_budget
from ablate.runners.cli.options import Flag, flag_group
from ablate.runners.cli.run_here import HERE

_NO_OPTIONS = ("workers", "extra", "needs", "python", "gpu_option", "heartbeat_s")
"""Fields of `Slurm` that files say: tables, and what holds for a site. --workers is in `MachineFlags`."""


ON_SLURM = Group(
    "With --on slurm",
    help="Each replaces a field of the file's Slurm(...); Needs(...) of some trials are more specific, and stay.",
    sort_key=1,
)


def _plain(annotation: Any) -> Any:
    """Return a type without constraints and None; `Slurm` checks the values."""
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return _plain(get_args(annotation)[0])
    return annotation


def _fields() -> Iterator[tuple[str, Any, Any]]:
    for name, field in Slurm.model_fields.items():
        if name not in _NO_OPTIONS:
            kind = _plain(field.annotation)
            several = get_origin(kind) is tuple
            words = field.description or WorkerFields.model_fields[name].description
            group = "Parameters" if name == "oom" else ON_SLURM  # it is for local, too
            option = Parameter(help=(words or "").partition("\n\n")[0], negative="", group=group)
            yield name, Annotated[kind if several else kind | None, option], () if several else None


_Fields: Any = make_dataclass("_Fields", _fields(), frozen=True)


@flag_group
class SlurmFlags(_Fields):  # type: ignore[misc]
    """Request to a cluster.

    Parameters
    ----------
    budget
        Workers take no more trials after so much use: 200gpuh, or 40cpuh of cores.
    dry_run
        Show what would be queued, with scripts; here, the plan. Write nothing.
    wait
        Follow it until nothing is queued or running, with the exit code of a run on this machine.
    """

    budget: str | None = None
    dry_run: Flag = False
    wait: Flag = False

    def to_dict(self) -> dict[str, Any]:
        """Return the flags that were given."""
        return {name: value for name, value in vars(self).items() if value != getattr(type(self), name)}

    def refuse(self, on: str) -> None:
        """Raise SpecError if a flag was given that says nothing to the machine `on`, which is not SLURM."""
        known = ("oom", "dry_run") if on in HERE else ("oom", "dry_run", "wait")
        for name in self.to_dict():
            if name not in known:
                flag = f"--{name.replace('_', '-')}"
                raise SpecError(f"{flag} has no effect with --on {on}; leave it out, or use --on slurm")

    def request(self, defaults: Slurm | None, workers: int | None) -> Slurm:
        """Combine the flags with the request of the spec file. Raise SpecError if together they have no meaning."""
        changes = {name: value for name, value in self.to_dict().items() if name in Slurm.model_fields}
        return (defaults or Slurm()).override(**changes, **({} if workers is None else {"workers": workers}))

    def read_budget(self) -> dict[str, Any] | None:
        """Return the budget of a request; raise SpecError if it is none."""
        return None if self.budget is None else read_budget(self.budget)


@flag_group
class MachineFlags:
    """Where trials are trained.

    Parameters
    ----------
    on
        local: warm worker processes of one thread each; inline: in this process; ray: on Ray; slurm, or another backend
        that is installed: queued there. Default local; `retry` takes what they were trained on the last time.
    workers
        Worker processes; default one per GPU, else per core; on ray at most so many. On slurm, array tasks in all;
        default as many as have work for half of their time limit. Other backends choose.
    """

    on: str | None = None
    workers: int | None = None

    def check(self, on: str, cluster: SlurmFlags) -> None:
        """Raise SpecError for flags that say nothing to the machine `on`, or if there is none of that name."""
        if on not in HERE and on not in backend_names():
            known = ", ".join((*HERE, *backend_names()))
            raise SpecError(f"--on {on!r} is no machine to train on; there are {known}")
        if on != "slurm":
            cluster.refuse(on)
        if on == "inline" and self.workers is not None:
            raise SpecError("--workers has no effect with --on inline, which trains a trial at a time; leave it out")


SLURM_FLAGS = Annotated[SlurmFlags, Parameter(name="*", group=ON_SLURM)]
