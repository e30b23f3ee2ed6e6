"""Base of key-value tasks: keys with a value each among filler, and questions for values."""

from abc import abstractmethod
from typing import NamedTuple

from pydantic import PositiveInt
from torch import Tensor

from runners.tasks.counter_rng import Draws
from runners.tasks.synthetic.query_task import Point, QueryTask


class KeyValueSample(NamedTuple):
    """Distinct keys and values [B, pairs], and sequences of filler [B, T]."""

    keys: Tensor
    values: Tensor
    filler: Tensor


class KeyValues(QueryTask):
    """Tokens are keys, then values, then filler."""

    keys: PositiveInt = 64
    """Number of keys."""
    values: PositiveInt = 64
    """Number of values."""
    filler: PositiveInt = 16
    """Number of filler tokens."""

    @abstractmethod
    def pairs_at(self, point: Point) -> int:
        """Return the number of pairs of a sequence."""

    @property
    def vocabulary(self) -> int:
        return self.keys + self.values + self.filler

    @property
    def answers(self) -> int:
        return self.values

    def guesses(self, point: Point) -> dict[str, float]:
        """Return `chance`, and `shown`, which guesses a value of the sequence."""
        return {"chance": 1 / self.answers, "shown": 1 / self.pairs_at(point)}

    def check(self, point: Point) -> None:
        pairs = self.pairs_at(point)
        for name, there in (("keys", self.keys), ("values", self.values)):
            if pairs > there:
                raise ValueError(f"pairs have different {name}; got {pairs} pairs of {there} {name}; raise {name}")

    def draw_pairs(self, draws: Draws, sequences: int, point: Point) -> KeyValueSample:
        """Draw keys, values and filler."""
        pairs, length = self.pairs_at(point), self.tokens(point)
        keys = draws.order(self.keys, sequences)[:, :pairs]
        values = self.keys + draws.order(self.values, sequences)[:, :pairs]
        return KeyValueSample(keys, values, self.keys + self.values + draws.below(self.filler, sequences, length))
