"""Associative recall: pairs of a key and its value, then some of the keys again; each asks for its value.

    k1 v1 k2 v2 ... kn vn  .  .  k2  .  k1  .  .  .  kn  .          at each later key: what came after it before

Source: multi-query associative recall, Zoology (Arora et al. 2023), section 3 and its released generator. There are n
different keys with n different values. A query may stand at every second place after the pairs. Places are drawn
without repetition, the g-th with probability proportional to g^(power - 1). The value does not follow the query in the
input.

Ours differs between queries. The released code leaves these tokens blank or fills them with any token, even with keys
of the sequence; here they are tokens of their own kind. The order of queries is random here; the released code asks for
early pairs early. `multi_query_recall` is the released definition.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, final

import torch
from pydantic import PositiveFloat, PositiveInt

from ablate.grid.validation import INCREASING
from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.synthetic.query_task import KeyValues, Point, asking
from ablate.training.tasks.task import Batch


@final
class AssociativeRecall(KeyValues):
    """Tokens are keys, then values, then filler, which stands between queries. Points are {length, pairs}."""

    kind: Literal["associative_recall"] = "associative_recall"
    pairs: PositiveInt = 8
    """Pairs of a key and its value in a training sequence."""
    queries: PositiveInt | None = None
    """Number of keys asked for in a sequence; None asks for each."""
    power: PositiveFloat = 0.01
    """1 spreads queries evenly; less puts more of them near the pairs. 0.01 is the released default."""
    evaluated_pairs: Annotated[tuple[PositiveInt, ...], INCREASING] = ()
    """Numbers of pairs in evaluation, each with each length; () for as many as in training."""

    def points(self) -> Sequence[Point]:
        pairs = self.evaluated_pairs or (self.pairs,)
        return [{"length": length, "pairs": count} for length in self.evaluation.lengths for count in pairs]

    def pairs_at(self, point: Point) -> int:
        return int(point.get("pairs", self.pairs))

    def check(self, point: Point) -> None:
        super().check(point)
        pairs, queries, length = self.pairs_at(point), self._queries(point), self.tokens(point)
        if queries > pairs:
            raise ValueError(f"{queries} queries ask for more than {pairs} pairs, each for its own; lower queries")
        if queries > self._places(point):
            raise ValueError(
                f"{pairs} pairs and {queries} queries, two tokens each, do not fit into {length} tokens; lengthen the "
                "sequence or ask for fewer"
            )

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        pairs, queries = self.pairs_at(point), self._queries(point)
        keys, values, inputs = self.draw_pairs(draws, sequences, point)
        inputs[:, : 2 * pairs] = torch.stack((keys, values), -1).flatten(1)
        waits = -torch.log1p(-draws.uniform(sequences, self._places(point)))
        ranks = torch.arange(1, waits.shape[1] + 1, device=waits.device, dtype=torch.float64)
        places = 2 * pairs + 2 * (waits * ranks ** (1 - self.power)).argsort(-1)[:, :queries]
        asked = draws.order(pairs, sequences)[:, :queries]
        return asking(inputs.scatter_(1, places, keys.gather(1, asked)), places, values.gather(1, asked))

    def _queries(self, point: Point) -> int:
        return self.pairs_at(point) if self.queries is None else self.queries

    def _places(self, point: Point) -> int:
        """Count the places of a query: every second one after the pairs."""
        return max(0, self.tokens(point) - 2 * self.pairs_at(point)) // 2
