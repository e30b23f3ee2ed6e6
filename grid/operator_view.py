"""One operator as the dashboard shows it: its words, its numbers with spans of sliders, its weights and its scores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

OperatorName = str | Mapping[str, Any]
"""A named operator by its name, or a spec as data."""


class ListedOperator(NamedTuple):
    """A named operator in a list."""

    name: str
    """As addresses write it."""
    label: str
    """As charts write it."""
    paper: str


class OperatorPart(NamedTuple):
    """A stage that is not softmax's."""

    stage: str
    kind: str
    formula: str
    """Plain text in lines, with its symbols and limits."""
    source: str
    """Paper and equation; empty if there is none."""


class OperatorNumber(NamedTuple):
    """A number of an operator."""

    name: str
    init: float
    start: str
    """Where it starts, in words."""
    varies: str
    """Along which axes, in words."""
    range: str
    what: str
    span: tuple[float, float, float] | None
    """Least, greatest and step of a slider; None for what does not act on the weights, or is no single number."""


class OperatorArgument(NamedTuple):
    """An argument of the function of a named operator, as it is written in an address."""

    name: str
    default: str
    values: tuple[str, ...]
    """All it takes, if they are few; else a number is meant."""


class OperatorSetting(NamedTuple):
    """Values at which something is to be seen."""

    words: str
    numbers: Mapping[str, float]
    """Empty if numbers alone do not show it."""
    arguments: Mapping[str, str]


class OperatorView(NamedTuple):
    """What is known about an operator."""

    label: str
    line: str
    """What it is, in a sentence."""
    paper: str
    """Empty for an operator of a grid."""
    use: str
    """Python that makes it; empty for an operator of a grid."""
    equation: str
    """The equation that every operator fills in, in lines."""
    parts: tuple[OperatorPart, ...]
    numbers: tuple[OperatorNumber, ...]
    arguments: tuple[OperatorArgument, ...]
    options: Mapping[str, str]
    """Fields that are no numbers, by "stage.field"."""
    settings: tuple[OperatorSetting, ...]
    notes: tuple[str, ...]
    """Traps, and laws that it does not keep, a sentence each."""
    apart: str
    """What has the weight `Profile.ground`: the ground state or a sink; empty for nothing."""
    unseen: str
    """Why its weights do not say all, in a sentence; empty if they do."""


class Profile(NamedTuple):
    """Weights of one query's row, rounded; of the heads that have the same."""

    heads: str
    """Which heads, counted from 1; empty where all are alike."""
    keys: tuple[float, ...]
    ground: float | None
    """Weight of the ground state or sink."""
    extra: float | None
    """Weight of the learned key."""
    total: float
    """The sum over the keys, of weights that are not rounded."""


class ScoreCurve(NamedTuple):
    """A score over the logit."""

    heads: str
    """As in `Profile`."""
    values: tuple[float | None, ...]
    """None where it is not finite."""


class OperatorCatalogue(Protocol):
    """Formulas and weights of operators; the dashboard gets one from the command, so that it needs no torch."""

    def named(self) -> Sequence[ListedOperator]:
        """All named operators, in the order of the papers."""

    def described(self, operator: OperatorName, arguments: Mapping[str, str]) -> OperatorView:
        """What is known about an operator; `arguments` are of the function of a named one."""

    def weights(
        self,
        operator: OperatorName,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[Profile]:
        """The weights of the last query over keys with these logits; `numbers` replace those at the start."""

    def scores(
        self,
        operator: OperatorName,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[ScoreCurve]:
        """What a key with each of these logits counts before normalisation."""
