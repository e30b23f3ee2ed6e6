"""The battery of laws: try every law on an operator and collect the findings."""

import sys
from collections.abc import Iterator
from pathlib import Path
from traceback import walk_tb
from typing import NamedTuple

from ablate.variants.laws import (
    decoding,
    gradients,
    layers,
    limits,
    models,
    paths,
    precision,
    scores,
    starts,
    symmetry,
    values,
    visibility,
)
from ablate.variants.laws.inputs import fit
from ablate.variants.laws.law import Law, LawBroken, NotFinite, NothingStated
from ablate.variants.operator import Operator
from ablate.variants.stages.stage import Stage

LAWS: tuple[Law, ...] = (
    visibility.FINITE,
    *scores.LAWS,
    *visibility.LAWS,
    visibility.LARGE,
    *(
        law
        for file in (values, limits, gradients, symmetry, paths, layers, decoding, starts, models, precision)
        for law in file.LAWS
    ),
)
"""All laws, the most informative first."""

MAY_BREAK = ("causality", "prefix", "heads")
"""The laws that an operator may break if it declares so in `breaks`."""


class LawFinding(NamedTuple):
    """One law, tried on one operator."""

    law: str
    kept: bool
    declared: str | None
    """The reason that the operator declares for breaking the law, if any."""
    words: str
    """Expected and actual values if the law does not hold."""
    stated: bool = True
    """False if the law does not apply to the operator; then it is not broken either."""
    raised: str = ""
    """Place and class of an error in the formula: "N.weights, mine.py:23: RuntimeError"; empty without an error."""
    tried: bool = True
    """False if numbers that the law compares are not finite; the operator fails, and nothing is known of the law."""

    @property
    def proved(self) -> bool:
        """True if the operator keeps or breaks the law as it declares."""
        return self.kept == (self.declared is None)


def find(operator: Operator, law: Law) -> LawFinding:
    """Try one law; an error in a formula breaks the law too."""
    declared = operator.breaks.get(law.name) if law.name in MAY_BREAK else None
    try:
        law.check(operator)
    except NothingStated:
        return LawFinding(law.name, kept=True, declared=declared, words="", stated=False)
    except LawBroken as broken:
        tried = not isinstance(broken, NotFinite)
        return LawFinding(law.name, kept=False, declared=declared if tried else None, words=str(broken), tried=tried)
    except Exception as error:  # noqa: BLE001  # a user's formula raises anything
        place = f"{_place(operator, error)}: {type(error).__name__}"
        return LawFinding(law.name, kept=False, declared=None, words=f"{place}: {error}", raised=place)
    return LawFinding(law.name, kept=True, declared=declared, words="")


def _place(operator: Operator, error: Exception) -> str:
    """Find the innermost line in a file that defines a choice of the operator, else the innermost of all."""
    heads = fit(operator).heads
    choices = [*operator.stages().values(), *(operator.score.of_head(head, heads)[0] for head in range(heads))]
    classes = {each for choice in choices for each in type(choice).__mro__ if issubclass(each, Stage)}
    files = {getattr(sys.modules.get(each.__module__), "__file__", None) for each in classes}
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    code, line = next((each for each in reversed(frames) if each[0].co_filename in files), frames[-1])
    name = code.co_qualname.rpartition("<locals>.")[2]
    return f"{name}, {Path(code.co_filename).name}:{line}"


def prove(operator: Operator) -> Iterator[LawFinding]:
    """Try every law on `operator`."""
    return (find(operator, law) for law in LAWS)
