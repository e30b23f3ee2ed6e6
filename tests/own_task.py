"""A task, an evaluation and a probe of a user's own, as a spec file: sequences that repeat a part."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ablate import (
    CPU,
    UNSCORED,
    Batch,
    Evaluation,
    Grid,
    Measure,
    Measurements,
    Predict,
    Probe,
    Probed,
    ProbeInput,
    Probing,
    RowInfo,
    Task,
    TokenData,
    Tokens,
    Training,
    Trial,
    gpt2,
    over,
    over_items,
    softmax,
    ssa,
)


class Repeat(Task):
    """A part of random tokens, twice: the second time all but its first can be predicted."""

    kind: Literal["tests_repeat"] = "tests_repeat"
    units: ClassVar[Mapping[str, str]] = {"accuracy": "share of 1"}
    batch: int = 8
    part: int = 6
    vocabulary: int = 12
    lengths: tuple[int, ...] = (6, 10)

    @property
    def inputs(self) -> Tokens:
        return Tokens(self.vocabulary)

    @property
    def length(self) -> int:
        return 2 * max(self.part, *self.lengths) - 1

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        return {"accuracy": [{"part": part} for part in self.lengths]}

    def open(self) -> "RepeatData":
        return RepeatData(self)


class RepeatData(TokenData):
    def __init__(self, task: Repeat) -> None:
        self.task = task

    @property
    def constant_loss(self) -> float:
        return float(torch.tensor(self.task.vocabulary).log())

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        generator = torch.Generator().manual_seed(1_000_003 * seed + step)
        return self.draw(generator, self.task.batch, self.task.part).to(device)

    def draw(self, generator: torch.Generator, sequences: int, part: int) -> Batch:
        once = torch.randint(self.task.vocabulary, (sequences, part), generator=generator)
        tokens = torch.cat((once, once), 1)
        targets = tokens[:, 1:].clone()
        targets[:, : part - 1] = UNSCORED
        return Batch(tokens[:, :-1], targets)

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        for part in self.task.lengths:
            sample = self.draw(torch.Generator().manual_seed(part), 20, part)
            right = predict(sample.inputs).argmax(-1)[:, part:].cpu() == sample.targets[:, part:]
            yield over_items("accuracy", right.double().mean(1), {"part": part})


class Confidence(Evaluation):
    """How large the largest output is."""

    kind: Literal["tests_confidence"] = "tests_confidence"
    units: ClassVar[Mapping[str, str]] = {"confidence": "share of 1"}
    tokens: int = 9

    @property
    def length(self) -> int:
        return self.tokens

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        return {"confidence": [{}]}

    def measure(self, predict: Predict, task: Task) -> Iterator[Measurements]:  # noqa: ARG002  (no matter which)
        shown: Tensor = torch.arange(self.tokens)[None] % 5
        yield over_items("confidence", predict(shown).softmax(-1).amax(-1)[0].double())


class FirstWeight(Probe):
    """The first number of each token's embedding, on average."""

    kind: Literal["tests_first_weight"] = "tests_first_weight"
    rows: ClassVar[tuple[RowInfo, ...]] = (RowInfo("first_weight", "weight", "model"),)

    def of_model(self, seen: ProbeInput) -> Iterator[Probed]:
        weight = next(seen.model.parameters())
        yield Probed("first_weight", float(weight.flatten()[0]))


grid = Grid(
    name="repeat",
    base=Trial(
        task=Repeat(),
        model=gpt2(layers=1, heads=2, width=16),
        operator=softmax(),
        training=Training(steps=3),
        evaluations=(Confidence(),),
        probing=Probing(probes=(FirstWeight(),)),
    ),
    axes=[over("operator", [softmax(), ssa()])],
    seeds=[0],
    baseline={"operator": "softmax"},
    measure=Measure(name="accuracy", point={"part": 6}, better="higher"),
)
