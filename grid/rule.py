"""Rules: cells a grid leaves out, each with its reason."""

from dataclasses import dataclass
from pathlib import Path
from typing import final

from ablate.grid.errors import SpecError
from ablate.grid.path import Predicate
from ablate.grid.spec import Spec


@final
@dataclass(frozen=True)
class CellRule:
    """Leaves out cells; a cell counts for the first rule that forbids it."""

    predicate: Predicate
    reason: str


def forbid(predicate: Predicate, *, reason: str) -> CellRule:
    """Leave out the cells whose `predicate(trial)` is True. `reason` is shown with the number of pruned cells.

    The predicate gets each cell's trial with the first seed. It also gets unchecked trials of cells that cannot be
    built, so a rule may forbid combinations that the specs refuse.
    """
    if not reason.strip():
        raise SpecError("forbid(...) got an empty reason; write reason='...', which says why")
    return CellRule(predicate, reason)


def verdict(predicate: Predicate, trial: Spec, who: str) -> bool:
    """Return `predicate(trial)`; raise `SpecError` with `who` and its line if it raises or returns no bool."""
    try:
        answer = predicate(trial)
    except Exception as error:  # a user's function may raise anything
        told = f"{type(error).__name__}: {error}"
        raise SpecError(f"{who} raised {told}{_place(predicate)}; a predicate answers for every cell") from error
    if not isinstance(answer, bool):
        raise SpecError(f"{who} answered {answer!r}{_place(predicate)}; a predicate answers True or False")
    return answer


def _place(predicate: Predicate) -> str:
    """Return where a function begins: ` (spec.py:7)`; nothing for another callable."""
    code = getattr(predicate, "__code__", None)
    return f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
