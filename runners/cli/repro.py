"""The command that runs a finished trial again."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ablate.grid.errors import SpecError
from ablate.runners.cli.options import Campaign, OneTrial, Trust
from ablate.runners.cli.resolve import find_one, open_campaign, read_warnings, require_trust
from ablate.runners.output import slow_notice, tell, write, write_table
from ablate.store.files.atomic import make_directory

if TYPE_CHECKING:
    from ablate.runners.execution.repro import Reproduction

_MOST_SHOWN = 10


def repro(
    *query: OneTrial,
    campaign: Campaign = None,
    spec: Path | None = None,
    keep: Path | None = None,
    trust: Trust = False,
) -> int:
    """Run a finished trial again with its submitted code, and compare every value.

    On the CPU the results are equal bit for bit. The exit code is 4 where they are not.

    Parameters
    ----------
    spec
        The spec file that defines its classes, where its submission kept no snapshot.
    keep
        A new directory for the restored code and the campaign of the repetition; default one that is removed.
    """
    from ablate.runners.execution.repro import read_recorded, reproduce, submitted_code

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise SpecError(f"{keep} is not empty; name a new directory with --keep")
    with ExitStack() as stack:
        with slow_notice("reading the campaign"):
            store = stack.enter_context(open_campaign(campaign))
            read_warnings(store)
            trial = find_one(store, query)
        require_trust(store.layout, submitted_code(read_recorded(store.layout, trial)), trust=trust)
        temporary = stack.enter_context(TemporaryDirectory(prefix="ablate-repro-"))
        place = Path(temporary) if keep is None else make_directory(keep.resolve())
        reproduction = reproduce(store, trial, place, spec, tell)
    return _report(reproduction)


def _report(reproduction: "Reproduction") -> int:
    if reproduction.failure is not None:
        tell(f"the trial failed this time, and nothing can be compared: {reproduction.failure}")
        return 4
    if not reproduction.different:
        write(f"equal: {reproduction.equal} values")
        return 0
    shown = [
        (str(each.where), repr(each.recorded), repr(each.again), each.size)
        for each in reproduction.different[:_MOST_SHOWN]
    ]
    write_table(["value", "recorded", "again", "difference"], shown)
    count = len(reproduction.different)
    most = f"; the largest {_MOST_SHOWN} are shown" if count > _MOST_SHOWN else ""
    tell(f"{count} of {count + reproduction.equal} values differ{most}")
    return 4
