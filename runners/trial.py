"""A trial: one complete run as a spec. Its key is its identity, and without the seed that of its cell."""

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from grid.spec import OutsideKey, Spec
from runners.evaluations import Evaluation
from runners.optimisers import Training
from runners.probes import (
    AttentionEntropy,
    FirstToken,
    GradientNorms,
    LearnedNumbers,
    MassiveActivation,
    Probing,
    QKLogits,
    SinkShare,
    WeightSums,
)
from runners.tasks import Task
from runners.tasks.model_fit import require_model_fits, require_operator_fits
from variants import Backbone, Operator, Placement, Scalars, Tokens, Transformer
from variants.model.shapes import shapes_only
from variants.paths.choose import PathName


class Execution(Spec):
    """How a trial is computed, which changes no result but by rounding; recorded with the attempt.

    One exception: a model that drops (`dropout`, `attention_dropout`) drops by part of a batch, so that parts
    (`accumulate`, `micro_batch`, `gpus`) drop other entries, with the same chances. It is trained as by another seed.
    """

    path: PathName = "auto"
    """How attention is computed; "auto" is the fastest path that can."""
    log_every: PositiveInt = 1
    """Training metrics are logged at these steps, and at the last."""
    checkpoint_s: NonNegativeFloat = 20.0
    threads: PositiveInt = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """ "auto" is CUDA where there is one."""
    accumulate: PositiveInt = 1
    """Micro-batches per step, of each GPU: less memory for the same batch. Loss and gradient are the same up to
    rounding, unless the model drops: then other entries are dropped."""
    micro_batch: PositiveInt | None = None
    """Sequences of one forward pass at most; how many micro-batches that makes is computed. Not with `accumulate`,
    and what it says of dropout is so here, too."""
    gpus: PositiveInt = 1
    """GPUs of one node that share each batch; on the CPU, processes. What `accumulate` says of dropout is so here."""
    compile: Literal["auto", "off", "on"] = "auto"
    """Whether training runs as one compiled graph, the same up to rounding. "auto": on CUDA, for small models that
    train for long, where the compiler takes the model; "on": on any device, and an error where it does not."""
    keep_weights: bool = False
    """The trained weights stay in the campaign, to be evaluated further or to teach other models."""

    deterministic: bool = False
    """Only algorithms that give the same bits every time, also on a GPU; an operation that has none is an error."""

    @model_validator(mode="after")
    def _split_once(self) -> Self:
        if self.micro_batch is not None and self.accumulate > 1:
            raise ValueError(
                "a batch is split by accumulate or by micro_batch; got "
                f"accumulate={self.accumulate} and micro_batch={self.micro_batch}; leave one of them out"
            )
        return self

    def accumulated(self, batch: int) -> int:
        """Micro-batches per step of each GPU, for a batch of so many sequences."""
        if self.micro_batch is None:
            return self.accumulate
        return -(-batch // (self.gpus * self.micro_batch))


DEFAULT_PROBES = (
    LearnedNumbers(),
    GradientNorms(),
    SinkShare(),
    FirstToken(),
    WeightSums(),
    AttentionEntropy(),
    MassiveActivation(),
    QKLogits(),
)
"""Those that have a meaning for every trial and cost less than a twentieth of one."""


class Trial(Spec):
    """One model, trained once on one task: the base of a grid and the unit of work."""

    task: Task
    model: Backbone
    operator: Operator
    placement: Placement = Placement()
    training: Training
    probing: Probing = Probing(probes=DEFAULT_PROBES)
    """What is looked at inside the model."""
    evaluations: tuple[Evaluation, ...] = ()
    """What the model is judged by beside its task's own measures."""
    seed: NonNegativeInt = 0
    """Fixes data order and initial weights; seeds are replicates, paired across operators."""
    execution: Annotated[Execution, OutsideKey()] = Execution()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        _check_model(self.task, self.model, self.evaluations)
        self.task.check_steps(self.training.steps)
        _check_parts(self.execution, self.task.batch)
        placement = _exact(self.placement, self.model.layers)
        if placement.rest.key == self.operator.key:
            placement = Placement()  # it does not matter which layers
        self.set_normal_form(placement=placement)
        path = self.execution.path
        _check_layers(self.task, self.model, self.operators(), self.probing, self.evaluations, path)
        return self

    @property
    def longest(self) -> int:
        """The longest sequence the model sees, in training or in any evaluation."""
        return _longest(self.task, self.evaluations)

    @property
    def accumulate(self) -> int:
        """How many parts of a batch each GPU computes in a row."""
        return self.execution.accumulated(self.task.batch)

    @property
    def parts(self) -> int:
        """How many parts the batch of a step is computed in."""
        return self.accumulate * self.execution.gpus

    def operators(self) -> tuple[Operator, ...]:
        """The operator of every layer, bottom first."""
        return self.placement.operators(self.operator, self.model.layers)


def _longest(task: Task, evaluations: tuple[Evaluation, ...]) -> int:
    return max(task.length, *(evaluation.length_on(task) for evaluation in evaluations), 1)


@lru_cache(maxsize=4096)
def _exact(placement: Placement, layers: int) -> Placement:
    """Placements of the same layers are one trial."""
    return placement.on(layers)


class Parameters(NamedTuple):
    """How many parameters a model trains, and how many of them the operators add to softmax."""

    total: int
    operator: int


def build_model(trial: Trial) -> Transformer:
    """The model of `trial` at step 0, on the default device.

    Raises:
        SpecError: the execution path cannot run an operator.
    """
    return _model(trial.model, trial.operators(), trial.task.inputs, trial.seed, trial.execution.path)


def parameters(trial: Trial) -> Parameters:
    """Count the parameters of the model of `trial` without allocating them."""
    return _counted(trial.model, trial.operators(), trial.task.inputs)


def _model(
    backbone: Backbone, operators: tuple[Operator, ...], inputs: Scalars | Tokens, seed: int, path: PathName
) -> Transformer:
    return Transformer(backbone, operators, inputs=inputs, seed=seed, path=path)


@lru_cache(maxsize=4096)
def _counted(backbone: Backbone, operators: tuple[Operator, ...], inputs: Scalars | Tokens) -> Parameters:
    with shapes_only():
        model = _model(backbone, operators, inputs, 0, "auto")
    return Parameters(sum(p.numel() for p in model.parameters()), model.operator_parameters())


@lru_cache(maxsize=4096)  # a grid asks the same questions for every trial
def _check_model(task: Task, model: Backbone, evaluations: tuple[Evaluation, ...]) -> None:
    require_model_fits(task, model, _longest(task, evaluations))


@lru_cache(maxsize=4096)
def _check_layers(
    task: Task,
    model: Backbone,
    operators: tuple[Operator, ...],
    probing: Probing,
    evaluations: tuple[Evaluation, ...],
    path: PathName,
) -> None:
    """What has to do with neither training nor seed."""
    for operator in dict.fromkeys(operators):
        require_operator_fits(task, model, operator, _longest(task, evaluations), path)
    probing.check(task, model, operators)
    for evaluation in evaluations:
        evaluation.check(task, model)
    _check_rows(task, evaluations)


def _check_parts(execution: Execution, batch: int) -> None:
    parts = execution.accumulated(batch) * execution.gpus
    if parts > batch:
        field = "accumulate" if execution.micro_batch is None else "micro_batch"
        remedy = "lower one of them" if execution.micro_batch is None else "raise it, or lower execution.gpus"
        raise ValueError(
            f"every micro-batch has a sequence; execution.{field}={getattr(execution, field)} on "
            f"execution.gpus={execution.gpus} makes {parts} of a task.batch of {batch}; {remedy}"
        )


def _check_rows(task: Task, evaluations: tuple[Evaluation, ...]) -> None:
    """Of two values under one name and point, one would be lost."""
    if not evaluations:
        return
    taken: dict[tuple[object, ...], int] = {}
    judges: tuple[Task | Evaluation, ...] = (task, *evaluations)
    for number, judge in enumerate(judges):
        for name, points in (judge.measures() or {}).items():
            for point in points:
                first = taken.setdefault((name, *sorted(point.items())), number)
                if first != number:
                    at = ", ".join(f"{coordinate}={value:g}" for coordinate, value in point.items())
                    raise ValueError(
                        f"a measure has one value at a point; {judges[first].label} and {judge.label} both record "
                        f"{name}{at and f' at {at}'}; leave one out, or make them one evaluation of several points"
                    )
