"""Views of an operator for the dashboard: descriptions, numbers with slider ranges, weights and scores."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

OperatorName = str | Mapping[str, Any]
"""A named operator by its name, or a spec as data."""


class ListedOperator(NamedTuple):
    """A named operator in a list: its name in addresses, its label in charts, and its paper."""

    name: str
    label: str
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
    """A number of an operator; its start and axes are in words."""

    name: str
    init: float
    start: str
    varies: str
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
    """Numbers or arguments that show an effect."""

    words: str
    numbers: Mapping[str, float]
    arguments: Mapping[str, str]


class OperatorView(NamedTuple):
    """Description of an operator. `paper` and `use` are empty for an operator of a grid."""

    label: str
    line: str
    """Description in one sentence."""
    paper: str
    use: str
    """Python that makes it."""
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
    """A score over the logit; a value is None if it is not finite. `heads` is as in `Profile`."""

    heads: str
    values: tuple[float | None, ...]


Arguments = Mapping[str, str]
Numbers = Mapping[str, float]


class OperatorCatalogue(Protocol):
    """Formulas and weights of operators. The command passes one to the dashboard, which then needs no torch.

    `arguments` belong to a named operator's function; `numbers` replace their start.
    """

    def list_operators(self) -> Sequence[ListedOperator]:
        """List all named operators, in the order of the papers."""

    def describe(self, operator: OperatorName, arguments: Arguments) -> OperatorView:
        """Describe an operator."""

    def weights(
        self, operator: OperatorName, arguments: Arguments, numbers: Numbers, logits: Sequence[float]
    ) -> Sequence[Profile]:
        """Compute the weights of the last query over keys with these logits."""

    def scores(
        self, operator: OperatorName, arguments: Arguments, numbers: Numbers, logits: Sequence[float]
    ) -> Sequence[ScoreCurve]:
        """Compute the score of a key at each of these logits."""
