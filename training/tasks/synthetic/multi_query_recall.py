"""Multi-query associative recall (MQAR) as released: pairs of a key and its value, then every key once more.

    k1 v1 k2 v2 ... kn vn  .  k1  .  .  .  k3  .  k2  .  .      at each later key: its value

Source: Zoology (Arora et al. 2023), section 3; its released generator `zoology/data/multiquery_ar.py`.

As released: keys are the tokens 1 to V / 2 - 1 and values V / 2 to V - 1, both without repetition in a sequence. A
query may stand at every second place after the pairs. Places are drawn without repetition, the g-th with probability
proportional to g^(power - 1). The i-th drawn place asks for the i-th key, so early keys are asked for early. The other
tokens after the pairs are any of the V tokens, also keys and values of the sequence; with `blanks` they are token 0.
Only queries have a loss, and the value does not follow them in the input.

Ours differs: every step draws new sequences, where the release repeats a fixed set. Training has one length and number
of pairs, where the release mixes several. There is one pass over the pairs. Random numbers are those of this package.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, final

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator

from ablate.grid.spec import Added
from ablate.grid.validation import INCREASING
from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.synthetic.query_task import AskedLengths, Point, QueryTask, asking
from ablate.training.tasks.task import Batch


@final
class MultiQueryRecall(QueryTask):
    """The released definition of MQAR: each key is asked for once. Points are {length}, or {length, pairs}."""

    kind: Literal["multi_query_recall"] = "multi_query_recall"
    symbols: PositiveInt = 8192
    """Number of tokens: V."""
    pairs: PositiveInt = 8
    """Pairs of a key and its value; each key is asked for once."""
    power: PositiveFloat = 0.01
    """1 spreads queries evenly; less puts more of them near the pairs. 0.01 is the released default."""
    blanks: bool = False
    """True: the tokens between queries are 0. False: any token, as released by default."""
    evaluation: AskedLengths = AskedLengths(lengths=(64,))
    evaluated_pairs: Annotated[tuple[PositiveInt, ...], INCREASING, Added()] = ()
    """Numbers of pairs in evaluation, each with each length, as points {length, pairs}; () for as many as in training.
    """

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if (most := max(self.pairs, *self.evaluated_pairs, 1)) > self.symbols // 2 - 1:
            raise ValueError(
                f"{most} pairs need {most} different keys, and {self.symbols // 2 - 1} exist; raise symbols"
            )
        return self

    @property
    def vocabulary(self) -> int:
        return self.symbols

    @property
    def answers(self) -> int:
        return self.symbols - self.symbols // 2

    def points(self) -> Sequence[Point]:
        return [
            {**point, "pairs": pairs} for point in super().points() for pairs in self.evaluated_pairs
        ] or super().points()

    def guesses(self, point: Point) -> dict[str, float]:
        return {"chance": 1 / self.answers, "shown": 1 / self._pairs(point)}  # shown: a value of the pairs

    def check(self, point: Point) -> None:
        length, pairs = self.tokens(point), self._pairs(point)
        if length % 2 or length < 4 * pairs:
            raise ValueError(
                f"{length} tokens are odd or have no room for {pairs} pairs and as many queries, two tokens each; give "
                f"an even number, {4 * pairs} or more"
            )

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        pairs, length, half = self._pairs(point), self.tokens(point), self.symbols // 2
        keys = 1 + draws.order(half - 1, sequences)[:, :pairs]
        values = half + draws.order(self.answers, sequences)[:, :pairs]
        inputs = draws.below(1 if self.blanks else self.symbols, sequences, length)
        inputs[:, : 2 * pairs] = torch.stack((keys, values), -1).flatten(1)
        waits = -torch.log1p(-draws.uniform(sequences, length // 2 - pairs))
        ranks = torch.arange(1, waits.shape[1] + 1, device=waits.device, dtype=torch.float64)
        places = 2 * pairs + 2 * (waits * ranks ** (1 - self.power)).argsort(-1)[:, :pairs]
        return asking(inputs.scatter_(1, places, keys), places, values)

    def _pairs(self, point: Point) -> int:
        return int(point.get("pairs", self.pairs))
