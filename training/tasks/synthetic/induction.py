"""Induction: a stretch of tokens occurs twice; the second time, each token asks for the next one.

    .  a b c d  .  .  .  .  a b c d  .          at the second a, b and c: the token that followed the first

Source: the repeated random tokens of In-context Learning and Induction Heads (Olsson et al. 2022). The two occurrences
do not overlap, and no token of the stretch occurs elsewhere, so there is one right answer. A stretch of two tokens is
the induction heads task of Mamba (Gu and Dao 2023, section 4.1.2). Its trigger is one fixed token there and any token
here.
"""

from typing import Annotated, Literal, final

import torch
from pydantic import Field

from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.synthetic.query_task import Point, QueryTask, asking
from ablate.training.tasks.task import Batch


@final
class Induction(QueryTask):
    """All tokens are of one kind. Points are {length}."""

    kind: Literal["induction"] = "induction"
    symbols: Annotated[int, Field(ge=3)] = 64
    """Number of tokens."""
    span: Annotated[int, Field(ge=2)] = 8
    """Tokens of the repeated stretch, all different; all but the last ask."""

    @property
    def vocabulary(self) -> int:
        return self.symbols

    @property
    def answers(self) -> int:
        return self.symbols

    def check(self, point: Point) -> None:
        if self.span >= self.symbols:
            raise ValueError(f"a span of {self.span} leaves no other of {self.symbols} symbols; lower span")
        if 2 * self.span > self.tokens(point):
            raise ValueError(
                f"{self.tokens(point)} tokens have no room for a span of {self.span} twice; lower span or lengthen the "
                "sequence"
            )

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        """Draw sequences; all pairs of places for the two occurrences are equally likely."""
        length, span = self.tokens(point), self.span
        mixed = draws.order(self.symbols, sequences)
        stretch, others = mixed[:, :span], mixed[:, span:]
        inputs = others.gather(1, draws.below(others.shape[1], sequences, length))
        free = length - 2 * span
        one, other = draws.below(free + 2, sequences, 1), draws.below(free + 1, sequences, 1)
        other = other + (other >= one)
        inside = torch.arange(span, device=inputs.device)
        inputs.scatter_(1, torch.minimum(one, other) + inside, stretch)
        again = torch.maximum(one, other) - 1 + span + inside
        return asking(inputs.scatter_(1, again, stretch), again[:, :-1], stretch[:, 1:])
