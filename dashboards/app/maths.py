"""What the dashboard asks of the operators themselves; whoever starts it hands it in, so nothing here needs torch.

An operator is the name of a named one, or a spec as data. Whatever cannot be answered is raised as an error that a
reader can act on.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Operator = str | Mapping[str, Any]


class Listed(Protocol):
    """A named operator in a list."""

    @property
    def name(self) -> str:
        """What it is called in addresses."""

    @property
    def label(self) -> str:
        """What it is called in charts."""

    @property
    def paper(self) -> str:
        """Where it is from, in words."""


class Part(Protocol):
    """A stage that is not softmax's."""

    @property
    def stage(self) -> str:
        """Of the equation."""

    @property
    def kind(self) -> str:
        """What is chosen there."""

    @property
    def formula(self) -> str:
        """Its formula with its symbols and limits, as plain text in lines."""

    @property
    def source(self) -> str:
        """Paper and equation; empty where it has none."""


class Quantity(Protocol):
    """A number of an operator."""

    @property
    def name(self) -> str:
        """Such as score.n."""

    @property
    def init(self) -> float:
        """Where it starts, as the slider shows it."""

    @property
    def start(self) -> str:
        """Where it starts, in words."""

    @property
    def varies(self) -> str:
        """Along which axes, in words."""

    @property
    def range(self) -> str:
        """Which values it takes, in words."""

    @property
    def what(self) -> str:
        """What it means."""

    @property
    def span(self) -> tuple[float, float, float] | None:
        """Least, greatest and step of a slider; None for what does not act on the weights, or is no single number."""


class Argument(Protocol):
    """A choice that the function of a named operator takes, such as how many signals."""

    @property
    def name(self) -> str:
        """Of the argument."""

    @property
    def default(self) -> str:
        """As it is written in an address."""

    @property
    def values(self) -> Sequence[str]:
        """All it takes, where they are few; else a number is meant."""


class Setting(Protocol):
    """Values of numbers at which something is to be seen."""

    @property
    def words(self) -> str:
        """What there is to see."""

    @property
    def numbers(self) -> Mapping[str, float]:
        """By name; empty where numbers alone do not show it."""

    @property
    def arguments(self) -> Mapping[str, str]:
        """By name."""


class Described(Protocol):
    """What is known about an operator."""

    @property
    def label(self) -> str:
        """What it is called in charts."""

    @property
    def line(self) -> str:
        """What it is, in a sentence."""

    @property
    def paper(self) -> str:
        """Where it is from, in words; empty for one of a grid's own."""

    @property
    def use(self) -> str:
        """Python that makes it; empty for one of a grid's own."""

    @property
    def equation(self) -> str:
        """The equation that every operator fills in, in lines."""

    @property
    def parts(self) -> Sequence[Part]:
        """The stages that are not softmax's, in the order of the equation."""

    @property
    def numbers(self) -> Sequence[Quantity]:
        """In the order of the equation."""

    @property
    def arguments(self) -> Sequence[Argument]:
        """Of the function that makes it."""

    @property
    def options(self) -> Mapping[str, str]:
        """Fields that are no numbers, by "stage.field"."""

    @property
    def settings(self) -> Sequence[Setting]:
        """Where it is another operator, and where it is plainly not softmax."""

    @property
    def notes(self) -> Sequence[str]:
        """Traps, and laws that it does not keep, a sentence each."""

    @property
    def apart(self) -> str:
        """What has the weight of `Row.ground`: the ground state or a sink; empty for nothing."""

    @property
    def unseen(self) -> str:
        """Why its weights say less than there is to say of it, in a sentence; empty where they say all."""


class Row(Protocol):
    """The weights that heads give to a row of keys."""

    @property
    def heads(self) -> str:
        """Which heads; empty where all are alike."""

    @property
    def keys(self) -> Sequence[float]:
        """In the order of the logits."""

    @property
    def ground(self) -> float | None:
        """Weight of the ground state or sink."""

    @property
    def extra(self) -> float | None:
        """Weight of the learned key."""

    @property
    def total(self) -> float:
        """The sum over the keys."""


class Curve(Protocol):
    """A score over the logit."""

    @property
    def heads(self) -> str:
        """As in `Row`."""

    @property
    def values(self) -> Sequence[float | None]:
        """At the logits that were asked for; None where it is not finite."""


class Maths(Protocol):
    """Formulas and weights of operators."""

    def named(self) -> Sequence[Listed]:
        """All named operators, in the order of the papers."""

    def described(self, operator: Operator, arguments: Mapping[str, str]) -> Described:
        """What is known about an operator; `arguments` are of the function of a named one."""

    def weights(
        self,
        operator: Operator,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[Row]:
        """The weights of the last query over keys with these logits; `numbers` replace those at the start."""

    def scores(
        self,
        operator: Operator,
        arguments: Mapping[str, str],
        numbers: Mapping[str, float],
        logits: Sequence[float],
    ) -> Sequence[Curve]:
        """What a key with each of these logits counts before normalisation."""
