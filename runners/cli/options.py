"""Parameters that several commands have."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform

from cyclopts import Parameter

from ablate.grid.docstrings import docstring
from ablate.grid.errors import SpecError
from ablate.grid.paper import PaperScale

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass_transform(frozen_default=True)
def flag_group(cls: type[T]) -> type[T]:
    """Make a class a frozen group of options, which a command takes as one parameter."""
    cls.__doc__ = docstring(cls)  # the help of its options, also with -OO
    return Parameter(name="*")(dataclass(frozen=True)(cls))


def keep_docstring(command: F) -> F:
    """Give a command its docstring also with -OO."""
    command.__doc__ = docstring(command)
    return command


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
    Path,
    Parameter(help="A Python file that defines grids, or grids of a package by name, such as ssa or ssa:table1."),
]
Overrides = Annotated[
    str,
    Parameter(help="Seeds, as seeds=0..9 or seeds=0,2,5; or training.steps=100, a grid of its own."),
]
Trust = Annotated[
    bool, Parameter(negative="", help="Run the code that a campaign from somebody else names, now and later.")
]


def require_one_format(**flags: bool) -> list[str]:
    """Return the flag that was given, if any, such as --csv for `csv`. Raise SpecError for several."""
    names = [f"--{name}" for name, is_given in flags.items() if is_given]
    if len(names) > 1:
        raise SpecError(f"{' and '.join(names)} are different formats of one result; leave one out")
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
    """A grid of a spec file, its campaign, and which of its trials that have ended are trained again.

    Parameters
    ----------
    grid
        One of the file's grids; `plan` takes all by default, and `run` the only one.
    scale
        For an item of a paper, such as ssa:table1: paper, gpu or cpu; default cpu. `ablate papers` lists them.
    campaign
        Directory of the results; default campaigns/FILE or campaigns/NAME.
    replace
        Let finished trials that the file no longer plans leave the tables.
    retry
        Try failed trials again.
    again
        Train finished trials again that other code made, such as an edited formula, from the beginning; the latest
        attempt that is ok counts.
    """

    grid: str | None = None
    scale: PaperScale | None = None
    campaign: Path | None = None
    replace: Flag = False
    retry: Flag = False
    again: Annotated[bool, Parameter(name=("--rerun-stale", "--again"), negative="")] = False
