"""Needle at a depth: a key and its value at one place of a long context of filler; its last token, the key, asks.

    .  .  .  k' v'  .  .  .  k v  .  .  .  .  k'' v''  .  k          at the last token: v

Source: the needle-in-a-haystack test of long contexts with distracting needles (Kamradt 2023; RULER, Hsieh et al. 2024,
section 3), over tokens. The depth is the share of the context before the needle, which begins at position round(depth
(length - 3)). Depth 0 is the beginning and depth 1 is right before the question. In training every place is equally
likely. Without distractors the only value is the answer.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, final

import torch
from pydantic import Field, NonNegativeInt, PositiveInt

from ablate.grid.validation import INCREASING
from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.synthetic.query_task import AskedLengths, KeyValues, Point, asking
from ablate.training.tasks.task import Batch

Share = Annotated[float, Field(ge=0, le=1)]


@final
class Needle(KeyValues):
    """Tokens are keys, then values, then filler. Points are {length, depth}."""

    kind: Literal["needle"] = "needle"
    context: PositiveInt = 128
    distractors: NonNegativeInt = 3
    """Number of further pairs with other keys and values."""
    depths: Annotated[tuple[Share, ...], Field(min_length=1), INCREASING] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Depths of the evaluation, each with each length."""
    evaluation: AskedLengths = AskedLengths(lengths=(128, 256))

    def points(self) -> Sequence[Point]:
        return [{"length": length, "depth": depth} for length in self.evaluation.lengths for depth in self.depths]

    def pairs_at(self, point: Point) -> int:
        del point
        return 1 + self.distractors

    def check(self, point: Point) -> None:
        super().check(point)
        pairs = self.pairs_at(point)
        last = self.tokens(point) - 2  # pairs lie before it, at even distances from the needle
        room = min((len(range(first, last, 2)) for first in range(min(2, last))), default=0)
        if pairs > room:
            raise ValueError(
                f"{self.tokens(point)} tokens have no room for {pairs} pairs, wherever the needle is, and the "
                "question; lengthen the sequence or lower distractors"
            )

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        """Draw sequences; distractors lie at even distances from the needle, all such places equally likely."""
        length, pairs = self.tokens(point), self.pairs_at(point)
        keys, values, inputs = self.draw_pairs(draws, sequences, point)
        needle = draws.below(length - 2, sequences, 1)
        if "depth" in point:
            needle = torch.full_like(needle, round(point["depth"] * (length - 3)))
        order = draws.uniform(sequences, (length - 1) // 2)
        places = needle % 2 + 2 * torch.arange(order.shape[1], device=order.device)
        order = order.masked_fill(places == needle, -1.0).masked_fill(places > length - 3, 2.0)  # the needle is first
        places = places.gather(1, order.argsort(-1))[:, :pairs]
        inputs.scatter_(1, places, keys).scatter_(1, places + 1, values)
        inputs[:, -1] = keys[:, 0]
        return asking(inputs, torch.full_like(needle, length - 1), values[:, :1])
