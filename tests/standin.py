"""A stand-in trial for tests of rooms that must not need torch: as many specs and fields as a real one."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from ablate.grid import Choice, Experiment, Grid, Label, Measure, OutsideKey, Spec, over
from ablate.grid.experiment import ExperimentExecution

Part = Literal["layer", "head", "query"]
NAMED: dict[str, tuple[Part, ...]] = {
    "constant": (),
    "layer": ("layer",),
    "head": ("layer", "head"),
    "query": ("layer", "head", "query"),
}


class Number(Spec):
    init: float
    per: Annotated[tuple[Part, ...], BeforeValidator(lambda value: NAMED.get(str(value), value))] = ()
    link: Literal["identity", "positive"] = "identity"
    learned: bool | None = None


class Signals(Spec):
    count: int = 1
    rotary: str | None = None


class Margin(Choice):
    """Family."""


class NoMargin(Margin):
    kind: Literal["none"] = "none"


class Amplify(Margin):
    kind: Literal["amplify"] = "amplify"
    amplification: Number = Number(init=-2.0)


class Gate(Choice):
    """Family."""


class NoGate(Gate):
    kind: Literal["none"] = "none"


class Suppress(Gate):
    kind: Literal["suppress"] = "suppress"
    strength: Number = Number(init=0.5)
    width: int = 8
    dims: Literal["split", "add"] = "split"


class Score(Choice):
    """Family."""


class Exponential(Score):
    kind: Literal["exponential"] = "exponential"


class SSA(Score):
    kind: Literal["ssa"] = "ssa"
    n: Number = Number(init=1.5, per=("layer", "head"))
    b: Number = Number(init=1.0)


class Normaliser(Choice):
    """Family."""


class Total(Normaliser):
    kind: Literal["total"] = "total"


class Ground(Normaliser):
    kind: Literal["ground"] = "ground"
    threshold: Number = Number(init=0.0)


class Readout(Choice):
    """Family."""


class Values(Readout):
    kind: Literal["values"] = "values"


class GroundValue(Readout):
    kind: Literal["ground_value"] = "ground_value"
    ground_value: Number = Number(init=0.0)


class Operator(Spec):
    name: Label = ""
    signals: Signals = Signals()
    margin: Margin = NoMargin()
    gate: Gate = NoGate()
    score: Score = Exponential()
    normaliser: Normaliser = Total()
    readout: Readout = Values()

    @property
    def label(self) -> str:
        return self.name or self.score.label


class Model(Spec):
    kind: Literal["gpt2", "llama2"] = "gpt2"
    layers: int = 3
    heads: int = 4
    width: int = 128
    hidden: int = 512
    max_positions: int = 256
    dropout: float = 0.0
    bias: bool = True
    norm: str = "layer"
    epsilon: float = 1e-5
    activation: str = "gelu"
    tied: bool = True

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"heads divide the width; got {self.heads} and {self.width}")
        return self


class Task(Choice):
    """Family."""


class ShiftGrid(Spec):
    sigma_x: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    sigma_f: tuple[float, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    functions: int = 100
    sequences: int = 64
    points: int = 40


class Curriculum(Spec):
    start: int = 11
    every: int = 2000
    increment: int = 2


class LinearFunctions(Task):
    kind: Literal["linear_functions"] = "linear_functions"
    points: int = 40
    curriculum: Curriculum | None = Curriculum()
    batch: int = 64
    sigma_x: float = 1
    sigma_f: float = 1
    evaluation: ShiftGrid = ShiftGrid()


class Placement(Spec):
    where: str = "all"
    ratio: float = 1.0
    other: Operator | None = None


class Optimizer(Choice):
    """Family."""


class AdamW(Optimizer):
    kind: Literal["adamw"] = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    epsilon: float = 1e-8


class Schedule(Choice):
    """Family."""


class Cosine(Schedule):
    kind: Literal["cosine"] = "cosine"
    warmup: int = 100
    floor: float = 0.1


class Training(Spec):
    steps: int = 1200
    optimizer: Optimizer = AdamW()
    schedule: Schedule = Cosine()
    clip: float | None = 1.0
    evaluate_every: int | None = None


class Execution(ExperimentExecution):
    path: str = "auto"
    log_every: int = 1


class Trial(Experiment):
    kind: Literal["tests_standin"] = "tests_standin"
    task: Task = LinearFunctions()
    model: Model = Model()
    operator: Operator = Operator()
    placement: Placement = Placement()
    training: Training = Training()
    execution: Annotated[Execution, OutsideKey()] = Execution()

    @model_validator(mode="after")
    def _layers_exist(self) -> Self:
        if self.model.layers < 1:
            raise ValueError("a model has layers")
        return self


GRANULARITIES = ("constant", "layer", "head", "query")

SOFTMAX = Operator(name="softmax")
SSA_OPERATOR = Operator(name="SSA", score=SSA())
PRINCIPLED = Operator(name="Principled", margin=Amplify(), gate=Suppress(), normaliser=Ground(), readout=GroundValue())
PATHS = (
    "operator.gate.strength.per",
    "operator.normaliser.threshold.per",
    "operator.margin.amplification.per",
    "operator.readout.ground_value.per",
)


def headline() -> Grid:
    """The 192 cells of granularity."""
    axes = [over(path, GRANULARITIES) for path in PATHS[:3]] + [over(PATHS[3], GRANULARITIES[:3])]
    return Grid("principled-granularity", Trial(operator=PRINCIPLED), axes, measure=Measure(name="mse"))
