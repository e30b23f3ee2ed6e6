"""Which trials that have ended a command takes up once more, as flags of the command line."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, final

from cyclopts import Parameter

from grid.errors import SpecError
from runners.commands.options import Flag

if TYPE_CHECKING:
    from runners.planning.halving import Halving


@dataclass(frozen=True)
class Repeat:
    """Which trials that have ended are trained once more.

    Parameters
    ----------
    retry
        Try failed trials again.
    again
        Train finished trials again that other code made, such as a formula that was edited since. Training starts from
        the beginning; the latest attempt that is ok counts.
    """

    retry: Flag = False
    again: Flag = False


@final
@dataclass(frozen=True)
class Extent(Repeat):
    """Which trials are trained, and how far.

    Parameters
    ----------
    retry
        Try failed trials again.
    again
        Train finished trials again that other code made, such as a formula that was edited since. Training starts from
        the beginning; the latest attempt that is ok counts.
    halving
        Successive halving: at steps on the way only the best 1/N of the cells, and the baseline, train on. The others
        keep a checkpoint and get no verdict.
    min_steps
        With --halving, the first such step; default the steps of a trial by N twice. The next come at N times as many.
    """

    halving: int | None = None
    min_steps: int | None = None

    def rule(self, on: str) -> "Halving | None":
        """How the grid is halved where it is trained `on` a machine of that name; None: it is not.

        Raises:
            SpecError: the flags do not go together.
        """
        from runners.planning.halving import Halving  # here: `ablate --help` does without

        if self.halving is None:
            if self.min_steps is not None:
                raise SpecError("--min-steps is where the first cells are stopped with --halving N; give both")
            return None
        if on == "slurm":
            raise SpecError(
                "--halving ranks cells in this process, so it works with --on local and inline; leave it out"
            )
        if self.again:
            raise SpecError("--halving ranks what is trained for the first time; leave --again out")
        return Halving(self.halving, self.min_steps)


Extents = Annotated[Extent, Parameter(name="*")]
"""Flattened: `--retry`, `--again`, `--halving` and `--min-steps`."""

WHOLE = Extent()
