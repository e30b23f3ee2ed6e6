"""Rules: cells a grid leaves out, each with its reason."""

from dataclasses import dataclass
from typing import final

from grid.errors import SpecError
from grid.path import Predicate
from grid.spec import Spec


@final
@dataclass(frozen=True)
class Rule:
    """What a cell may not be; a cell counts for the first rule of its grid that forbids it."""

    predicate: Predicate
    reason: str

    def forbids(self, trial: Spec) -> bool:
        """Whether `trial` is left out; raises `SpecError` when the predicate cannot say."""
        return verdict(self.predicate, trial, f"rule {self.reason!r}")


def forbid(predicate: Predicate, *, reason: str) -> Rule:
    """Leave out the cells of which `predicate(trial)` is True. `reason` is shown with the number of cells it pruned.

    The predicate sees each cell's trial with the first seed. It is also asked about cells that could not be built, so
    a rule may forbid combinations that the specs refuse.
    """
    if not reason.strip():
        raise SpecError("a rule says why: forbid(predicate, reason='...') got an empty reason")
    return Rule(predicate, reason)


def verdict(predicate: Predicate, trial: Spec, who: str) -> bool:
    """What `predicate` says of `trial`; an exception or an answer that is not a bool is a `SpecError` naming `who`."""
    try:
        answer = predicate(trial)
    except Exception as error:  # whatever a user's function raises is the user's to hear about
        raise SpecError(f"{who} raised {type(error).__name__}: {error}; a predicate answers for every cell") from error
    if not isinstance(answer, bool):
        raise SpecError(f"{who} answered {answer!r}; a predicate answers True or False")
    return answer
