"""Which trials that have ended a command takes up once more, as flags of the command line."""

from dataclasses import dataclass
from typing import Annotated, final

from cyclopts import Parameter

from runners.commands.options import Flag


@final
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


Repeats = Annotated[Repeat, Parameter(name="*")]
"""Flattened: `--retry` and `--again`."""

NO_REPEAT = Repeat()
