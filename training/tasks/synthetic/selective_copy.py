"""Selective copy: contents are scattered in noise; the end asks for them in their order.

    .  a  .  .  b  .  c  .  .  ? ? ?          at the marks: a, b, c

Source: the selective copying task of Mamba (Gu and Dao 2023, sections 3.1 and 4.1.1) and the released generator it
uses: noise is one token and so is the mark; contents are drawn with repetition and lie at places drawn without. The
paper copies 16 contents of 14 kinds out of 4,096 tokens: `context=4112, copied=16`, marks counted in.
"""

from typing import Literal, final

import torch
from pydantic import PositiveInt

from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.synthetic.query_task import Point, QueryTask, asking
from ablate.training.tasks.task import Batch


@final
class SelectiveCopy(QueryTask):
    """Tokens are contents, then noise, then the mark. Points are {length}, marks counted in."""

    kind: Literal["selective_copy"] = "selective_copy"
    copied: PositiveInt = 8
    """Contents of a sequence."""
    contents: PositiveInt = 14
    """Number of different contents."""

    @property
    def vocabulary(self) -> int:
        return self.contents + 2

    @property
    def answers(self) -> int:
        return self.contents

    def check(self, point: Point) -> None:
        if 2 * self.copied > self.tokens(point):
            raise ValueError(
                f"{self.tokens(point)} tokens have no room for {self.copied} to copy and as many marks; lower copied "
                "or lengthen the sequence"
            )

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        """Draw sequences; all places of the contents are equally likely."""
        length, copied = self.tokens(point), self.copied
        contents = draws.below(self.contents, sequences, copied)
        places = draws.order(length - copied, sequences)[:, :copied].sort(1).values
        inputs = torch.full((sequences, length), self.contents, device=contents.device)
        inputs[:, -copied:] = self.contents + 1
        marks = torch.arange(length - copied, length, device=contents.device).expand(sequences, copied)
        return asking(inputs.scatter_(1, places, contents), marks, contents)
