"""Views of an operator for the dashboard: descriptions, numbers with slider ranges, weights and scores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

OperatorName = str | Mapping[str, Any]
"""A named operator by its name, or a spec as data."""


class ListedOperator(NamedTuple):
    """A named operator in a list."""

    name: str
    """Name in addresses."""
    label: str
    """Name in charts."""
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
    """Its start, in words."""
    varies: str
    """Its axes, in words."""
    range: str
    what: str
    span: tuple[float, float, float] | None
    """Minimum, maximum and step of a slider; None if it does not act on the weights or is not a scalar."""


class OperatorArgument(NamedTuple):
    """An argument of a named operator's function, as in an address."""

    name: str
    default: str
    values: tuple[str, ...]
    """All its values if they are few; empty for a number."""


class OperatorSetting(NamedTuple):
    """Values that show an effect."""

    words: str
    numbers: Mapping[str, float]
    """Empty if arguments show it."""
    arguments: Mapping[str, str]


class OperatorView(NamedTuple):
    """Description of an operator."""

    label: str
    line: str
    """Description in one sentence."""
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
    """Common mistakes and broken laws, one sentence each."""
    apart: str
    """Name of the holder of `Profile.ground`: the ground state or a sink; empty for none."""
    unseen: str
    """Why its weights do not describe it fully, in one sentence; empty if they do."""


class Profile(NamedTuple):
    """Rounded weights of one query's row, for heads that share them."""

    heads: str
    """Heads, counted from 1; empty if all are alike."""
    keys: tuple[float, ...]
    ground: float | None
    """Weight of the ground state or sink."""
    extra: float | None
    """Weight of the learned key."""
    total: float
    """Sum over the keys of weights before rounding."""


class ScoreCurve(NamedTuple):
    """A score over the logit."""

    heads: str
    """As in `Profile`."""
    values: tuple[float | None, ...]
    """None if it is not finite."""


class OperatorCatalogue(Protocol):
    """Formulas and weights of operators. The command passes one to the dashboard, which then needs no torch."""

    def list_operators(self) -> Sequence[ListedOperator]:
        """List all named operators, in the order of the papers."""

    def describe(self, operator: OperatorName, arguments: Mapping[str, str]) -> OperatorView:
        """Describe an operator; `arguments` belong to a named operator's function."""

    def weights(
        self,
        operator: OperatorName,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[Profile]:
        """Compute the weights of the last query over keys with these logits; `numbers` replace their start."""

    def scores(
        self,
        operator: OperatorName,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[ScoreCurve]:
        """Compute the score of a key at each of these logits."""
