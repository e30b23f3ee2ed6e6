"""Keys with a value each among filler: what tasks share that ask for the value of a key."""

from abc import abstractmethod
from typing import NamedTuple

from pydantic import PositiveInt
from torch import Tensor

from runners.tasks.counter_rng import Draws
from runners.tasks.synthetic.query_task import Point, QueryTask


class KeyValueSample(NamedTuple):
    """Different keys and different values [B, pairs], and sequences of filler [B, T] to put them into."""

    keys: Tensor
    values: Tensor
    filler: Tensor


class KeyValues(QueryTask):
    """Tokens are keys, then values, then filler."""

    keys: PositiveInt = 64
    """Different keys there are."""
    values: PositiveInt = 64
    """Different values there are."""
    filler: PositiveInt = 16
    """Different tokens there are that are neither."""

    @abstractmethod
    def pairs_at(self, point: Point) -> int:
        """How many pairs a sequence has."""

    @property
    def vocabulary(self) -> int:
        return self.keys + self.values + self.filler

    @property
    def answers(self) -> int:
        return self.values

    def guesses(self, point: Point) -> dict[str, float]:
        """`chance`, and `shown`: one of the values of the sequence, whichever."""
        return {"chance": 1 / self.answers, "shown": 1 / self.pairs_at(point)}

    def check(self, point: Point) -> None:
        pairs = self.pairs_at(point)
        for name, there in (("keys", self.keys), ("values", self.values)):
            if pairs > there:
                raise ValueError(f"pairs have different {name}; got {pairs} pairs of {there} {name}; raise {name}")

    def draw_pairs(self, draws: Draws, sequences: int, point: Point) -> KeyValueSample:
        """What a draw begins with."""
        pairs, length = self.pairs_at(point), self.tokens(point)
        keys = draws.order(self.keys, sequences)[:, :pairs]
        values = self.keys + draws.order(self.values, sequences)[:, :pairs]
        return KeyValueSample(keys, values, self.keys + self.values + draws.below(self.filler, sequences, length))
