"""The command that runs a finished trial again."""

from pathlib import Path
from typing import TYPE_CHECKING

from runners.output import say, write, write_table

if TYPE_CHECKING:
    from runners.attempts.repro import Reproduction

_MOST_SHOWN = 10


def repro(key: str, /, *, campaign: Path | None = None, spec: Path | None = None, keep: Path | None = None) -> int:
    """Run a finished trial again with the code it was submitted with, and compare every value of its result.

    On the CPU the results are equal bit for bit. The exit code is 4 where they are not.

    Parameters
    ----------
    key
        The trial's key, or the beginning of one.
    campaign
        The campaign directory; default the only one below campaigns/.
    spec
        The spec file that defines its classes, where its submission kept no snapshot.
    keep
        A new directory for the restored code and the campaign of the repetition; default one that is removed.
    """
    from tempfile import TemporaryDirectory

    from grid.errors import SpecError
    from runners.attempts.repro import reproduce
    from runners.commands.finding import find_campaign, find_trial
    from store.files import make_directory
    from store.store import Store

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise SpecError(f"{keep} is not empty; name a new directory with --keep")
    with Store.open(find_campaign(campaign)) as store, TemporaryDirectory(prefix="ablate-repro-") as temporary:
        place = Path(temporary) if keep is None else make_directory(keep.resolve())
        found = reproduce(store, find_trial(store, key), place, spec, _tell)
    return _concluded(found)


def _tell(text: str) -> None:
    say(f"ablate: {text}")


def _concluded(found: "Reproduction") -> int:
    """Say what came of it; the exit code."""
    if found.failure is not None:
        _tell(f"the trial failed this time, and nothing can be compared: {found.failure}")
        return 4
    if not found.different:
        write(f"equal: {found.equal} values")
        return 0
    shown = [
        (str(each.where), repr(each.recorded), repr(each.again), each.size) for each in found.different[:_MOST_SHOWN]
    ]
    write_table(["value", "recorded", "again", "difference"], shown)
    count = len(found.different)
    most = f"; the largest {_MOST_SHOWN} are shown" if count > _MOST_SHOWN else ""
    _tell(f"{count} of {count + found.equal} values differ{most}")
    return 4
