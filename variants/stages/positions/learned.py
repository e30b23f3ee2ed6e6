"""Learned absolute positions: one vector per position, added to the embeddings (GPT-2)."""

from typing import ClassVar, Literal

from pydantic import PositiveInt

from variants.stages.positions.scheme import Positions


class Learned(Positions):
    """`count` learned vectors; a longer sequence is an error."""

    source: ClassVar[str] = "GPT-2 (Language Models are Unsupervised Multitask Learners)"

    kind: Literal["learned"] = "learned"
    count: PositiveInt

    @property
    def table(self) -> int:
        return self.count
