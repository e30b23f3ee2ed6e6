"""Tasks for the problems that Principled Attention (paper 001) names: no relevant key, forbidden matches, dilution.

    recall or none     k1 v1 ... kn vn  .  k2  .  x  .  .            at k2: its value; at x, which has no pair: "none"
    flagged recall     f k1 v1  a k2 v4  a k1 v2  ...  .  k1  .      at k1: v2, from its triple with the flag a
    growing recall     k1 v1 ... kn vn  .  k2  .  .  k1  .           a pair for every 8 tokens

In flagged recall each key has two triples with different values. The flag f forbids one of them, a allows the other.
Keys are asked for in random order, at random places after the pairs, at most at every second token.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from ablate import Batch, Draws, Probe, Probed, ProbeInput, RowInfo
from ablate.training.probes.probe import Found
from ablate.training.tasks.synthetic.query_task import KeyValues, Point, asking
from ablate.variants.model.transformer import LayerTrace

Share = Annotated[float, Field(ge=0, le=1)]


class RecallOrNone(KeyValues):
    """Pairs of a key and its value, then as many keys; some have no pair. Points are {length, absent}."""

    kind: Literal["specs_recall_or_none"] = "specs_recall_or_none"
    pairs: PositiveInt = 4
    """Pairs of a key and its value."""
    absent: Share = 0.5
    """Share of keys asked for that have no pair."""
    evaluated_absent: tuple[Share, ...] = (0.0, 0.5, 1.0)
    """These shares in evaluation, each with each length."""

    @property
    def vocabulary(self) -> int:
        return super().vocabulary + 1

    @property
    def none(self) -> int:
        """The token that says that a key has no pair."""
        return self.vocabulary - 1

    @property
    def answers(self) -> int:
        return self.values + 1

    def points(self) -> Sequence[Point]:
        return [{**point, "absent": share} for point in super().points() for share in self.evaluated_absent]

    def pairs_at(self, point: Point) -> int:  # noqa: ARG002  (of a family)
        return self.pairs

    def guesses(self, point: Point) -> dict[str, float]:
        return {"none": self._share(point)}

    def check(self, point: Point) -> None:
        super().check(point)
        if 2 * self.pairs > self.keys:
            raise ValueError(f"{self.pairs} pairs and as many absent keys need {2 * self.pairs} keys, not {self.keys}")
        check_room(self.tokens(point), 2 * self.pairs, self.pairs)

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        order = draws.order(self.keys, sequences)
        present, others = order[:, : self.pairs], order[:, self.pairs : 2 * self.pairs]
        _, values, inputs = self.draw_pairs(draws, sequences, point)
        inputs[:, : 2 * self.pairs] = torch.stack((present, values), -1).flatten(1)
        missing = draws.uniform(sequences, self.pairs) < self._share(point)
        asked = draws.order(self.pairs, sequences)
        keys = torch.where(missing, others, present.gather(1, asked))
        answers = torch.where(missing, self.none, values.gather(1, asked))
        return ask_later(draws, inputs, 2 * self.pairs, keys, answers)

    def _share(self, point: Point) -> float:
        return float(point.get("absent", self.absent))


class FlaggedRecall(KeyValues):
    """Two triples of flag, key and value for each key; the flag forbids one of them. Points are {length}."""

    kind: Literal["specs_flagged_recall"] = "specs_flagged_recall"
    pairs: PositiveInt = 3
    """Keys of a sequence, each with two triples and asked for once."""

    @property
    def vocabulary(self) -> int:
        return super().vocabulary + 2

    def pairs_at(self, point: Point) -> int:  # noqa: ARG002  (of a family)
        return 2 * self.pairs

    def guesses(self, point: Point) -> dict[str, float]:  # noqa: ARG002  (of a family)
        return {"either_match": 0.5}

    def check(self, point: Point) -> None:
        super().check(point)
        check_room(self.tokens(point), 6 * self.pairs, self.pairs)

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        keys, values, inputs = self.draw_pairs(draws, sequences, point)
        keys = keys[:, : self.pairs].repeat(1, 2)
        allowed = torch.arange(2 * self.pairs, device=keys.device) < self.pairs
        flags = (super().vocabulary + allowed.long()).expand_as(keys)
        order = draws.order(2 * self.pairs, sequences)
        triples = torch.stack([each.gather(1, order) for each in (flags, keys, values)], -1)
        inputs[:, : 6 * self.pairs] = triples.flatten(1)
        asked = draws.order(self.pairs, sequences)
        return ask_later(draws, inputs, 6 * self.pairs, keys.gather(1, asked), values.gather(1, asked))


class GrowingRecall(KeyValues):
    """A pair for every 8 tokens until all keys are shown; each is asked for once. Points are {length}."""

    kind: Literal["specs_growing_recall"] = "specs_growing_recall"

    def pairs_at(self, point: Point) -> int:
        return min(self.tokens(point) // 8, self.keys)

    def draw(self, draws: Draws, sequences: int, point: Point) -> Batch:
        pairs = self.pairs_at(point)
        keys, values, inputs = self.draw_pairs(draws, sequences, point)
        inputs[:, : 2 * pairs] = torch.stack((keys, values), -1).flatten(1)
        asked = draws.order(pairs, sequences)
        return ask_later(draws, inputs, 2 * pairs, keys.gather(1, asked), values.gather(1, asked))


class GroundAtQueries(Probe):
    """Weight of a ground state or sink at the keys asked for, with a pair (`absent` 0) and without (1), by head."""

    rows: ClassVar[tuple[RowInfo, ...]] = (RowInfo("ground_at_queries", "weight", "layer and head", ("absent",)),)

    kind: Literal["specs_ground_at_queries"] = "specs_ground_at_queries"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:
        ground, targets, task = layer.worked.attended.ground, seen.batch.targets, seen.task
        assert isinstance(task, RecallOrNone)
        if ground is None:
            return
        for absent, asked in ((0, (targets >= 0) & (targets != task.none)), (1, targets == task.none)):
            for head, weight in enumerate(ground[..., 0].unbind(1)):
                value = float(weight[asked].double().mean())
                yield Probed("ground_at_queries", value, layer.layer, head, {"absent": absent})


def check_room(tokens: int, shown: int, asked: int) -> None:
    """Raise ValueError if a sequence of `tokens` has no room for `asked` keys after the `shown` tokens."""
    if tokens < shown + 2 * asked:
        raise ValueError(f"{shown} tokens of pairs and {asked} keys asked for need {shown + 2 * asked}, not {tokens}")


def ask_later(draws: Draws, inputs: Tensor, shown: int, keys: Tensor, answers: Tensor) -> Batch:
    """Ask for `keys` [B, n] at random places of `inputs` [B, T] after the `shown` tokens; `answers` are [B, n]."""
    places = shown + 2 * draws.order((inputs.shape[1] - shown) // 2, len(inputs))[:, : keys.shape[1]]
    return asking(inputs.scatter_(1, places, keys), places, answers)
