"""The command that runs a finished trial again."""

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from grid.errors import SpecError
from runners.cli.options import Campaign, OneTrial, Trust
from runners.cli.resolve import find_one, open_campaign, require_trust
from runners.output import say, write, write_table
from runners.slow_notice import slow_notice

if TYPE_CHECKING:
    from runners.execution.progress import ProgressDisplay as Shown, Tally
    from runners.execution.repro import Reproduction
    from store.files.trial_status import TrialProgress

_MOST_SHOWN = 10


def repro(
    *query: OneTrial,
    campaign: Campaign = None,
    spec: Path | None = None,
    keep: Path | None = None,
    trust: Trust = False,
) -> int:
    """Run a finished trial again with the code it was submitted with, and compare every value of its result.

    On the CPU the results are equal bit for bit. The exit code is 4 where they are not.

    Parameters
    ----------
    spec
        The spec file that defines its classes, where its submission kept no snapshot.
    keep
        A new directory for the restored code and the campaign of the repetition; default one that is removed.
    """
    from tempfile import TemporaryDirectory

    from runners.execution.repro import read_recorded, reproduce, submitted_code
    from store.files.atomic import make_directory

    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise SpecError(f"{keep} is not empty; name a new directory with --keep")
    with ExitStack() as stack:
        with slow_notice("reading the campaign"):
            store = stack.enter_context(open_campaign(campaign))
            trial = find_one(store, query)
        require_trust(store.layout, submitted_code(read_recorded(store.layout, trial)), trust=trust)
        temporary = stack.enter_context(TemporaryDirectory(prefix="ablate-repro-"))
        place = Path(temporary) if keep is None else make_directory(keep.resolve())
        found = reproduce(store, trial, place, spec, _Audience())
    return _report(found)


def _tell(text: str) -> None:
    say(f"ablate: {text}")


@final
class _Audience:
    """A person, who is shown training as a run shows it."""

    def tell(self, text: str) -> None:
        """A line."""
        _tell(text)

    @contextmanager
    def training(self, line: Mapping[str, Any]) -> "Iterator[_Watcher]":
        """The display of a run of one trial."""
        from runners.execution.progress import GridMember, ProgressDisplay, tally

        cell = (str(line["grid"]), str(line["label"]))
        counts = tally([cell], [GridMember(cell, int(line["seed"]))])
        counts.begin(0, 0)
        with ProgressDisplay(counts) as shown:
            yield _Watcher(counts, shown)


@final
class _Watcher:
    """Keeps the display of the one trial up to date."""

    def __init__(self, counts: "Tally", shown: "Shown") -> None:
        self._counts = counts
        self._shown = shown

    def show_progress(self, found: "TrialProgress | None") -> None:
        """Where it is; off a terminal a line now and then."""
        if found is not None:
            self._counts.advance(0, found.step, found.steps, math.nan if found.loss is None else found.loss)
        self._shown.tick()

    def show_end(self, status: str | None) -> None:
        """No longer at work."""
        from runners.attempts.worker import Outcome

        self._counts.came_back(Outcome(0, "ok" if status == "ok" else "failed" if status == "failed" else "stopped"))


def _report(found: "Reproduction") -> int:
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
