"""A trial: one complete run as a spec. Its key identifies it; its key without the seed identifies the cell."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, GetCoreSchemaHandler, PositiveInt, model_validator
from pydantic_core import CoreSchema

from ablate.grid.control import ControlChange
from ablate.grid.experiment import Experiment, ExperimentExecution, Findings
from ablate.grid.measure import Measure
from ablate.grid.row_info import RowInfo
from ablate.grid.spec import OutsideKey, Spec
from ablate.store.analysis.row_labels import complete
from ablate.training.controls import distance_controls, feedforward_control, operator_controls
from ablate.training.evaluations import Evaluation
from ablate.training.evaluations.knockout import Knockout
from ablate.training.evaluations.knockout_plan import plan_cells
from ablate.training.optimisers import Training
from ablate.training.optimisers.recipes import scaled
from ablate.training.probes import (
    AttentionEntropy,
    FirstToken,
    GradientNorms,
    LearnedNumbers,
    MassiveActivation,
    Probe,
    Probing,
    QKLogits,
    SinkShare,
    WeightSums,
)
from ablate.training.tasks import Task
from ablate.training.tasks.model_fit import require_model_fits, require_operator_fits
from ablate.training.tasks.task import row_words
from ablate.variants import Backbone, ForeignBackbone, Operator, Placement, RunningMean, Scalars, Tokens, softmax
from ablate.variants.model.foreign import AnyBackbone, Model, make_model
from ablate.variants.model.mixer import Layers, OperatorOrMixer
from ablate.variants.model.shapes import build_shapes
from ablate.variants.paths.choose import PathName, devices_of


class Execution(ExperimentExecution):
    """How a trial is computed. It changes results by rounding only and is recorded with the attempt.

    One exception: dropout is drawn per part of a batch, so other parts (`accumulate`, `micro_batch`, `gpus`) act like
    another seed.
    """

    path: PathName = "auto"
    """Execution path of attention; "auto" is the fastest possible."""
    log_every: PositiveInt = 1
    """Steps between logged training metrics; the last step is always logged."""
    accumulate: PositiveInt = 1
    """Micro-batches per step and GPU: less memory for the same batch."""
    micro_batch: PositiveInt | None = None
    """Most sequences of one forward pass; sets the number of micro-batches instead of `accumulate`."""
    compile: Literal["auto", "off", "on"] = "auto"
    """Run training as one compiled graph. "auto": on CUDA, for long training of models that can be compiled.
    "on": on any device; an error if the model cannot be compiled."""
    keep_weights: bool = False
    """Keep the trained weights in the campaign, for later evaluation or distillation."""

    deterministic: bool = False
    """Use only deterministic algorithms, also on a GPU; an operation without one is an error."""

    knockout: Knockout | None = None
    """The measure that is taken again at the end without parts of the operator; planning a grid writes it."""

    @model_validator(mode="after")
    def _computes_there(self) -> Self:
        devices = devices_of(self.path)
        if self.device not in ("auto", *devices):
            raise ValueError(
                f"device={self.device!r} is not for path={self.path!r}, which computes on {' or '.join(devices)} only; "
                "change one of them"
            )
        return self

    @model_validator(mode="after")
    def _split_once(self) -> Self:
        if self.micro_batch is not None and self.accumulate > 1:
            raise ValueError(
                f"accumulate={self.accumulate} and micro_batch={self.micro_batch} both split a batch; leave one out"
            )
        return self

    def micro_batches(self, batch: int) -> int:
        """Return micro-batches per step and GPU for a batch of `batch` sequences."""
        if self.micro_batch is None:
            return self.accumulate
        return -(-batch // (self.gpus * self.micro_batch))


NO_STAGES = "knock-outs leave out stages of attention, and a mixer or a model of your own has none"

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
"""Probes that fit every trial and cost less than a twentieth of it."""


class Trial(Experiment):
    """One model, trained once on one task: the base of a grid and the unit of work.

    It is the experiment without a kind; a subclass with more fields has one, as every experiment.
    """

    own_processes: ClassVar[bool] = True

    task: Task
    """The data, their batches, and the task's own evaluation."""
    model: AnyBackbone
    """The Transformer without its attention: layers, heads, width, norms, positions; or a whole model of your own."""
    operator: OperatorOrMixer
    """The attention of every layer that `placement` names, or a mixer of your own in its place."""
    placement: Placement = Placement()
    """The layers that have the operator, and what the others have; all by default."""
    training: Training
    """Steps, optimiser, schedule, clipping and precision."""
    probing: Probing = Probing(probes=DEFAULT_PROBES)
    """Probes of the model."""
    evaluations: tuple[Evaluation, ...] = ()
    """Evaluations besides the task's own."""
    execution: Annotated[Execution, OutsideKey()] = Execution()
    """Where and how it is computed; it is no part of the key, since it changes no result beyond rounding."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        require_model_fits(self.task, self.model, self.longest)
        self.task.check_steps(self.training.steps)
        _check_parts(self.execution, self.task.batch)
        placement = self.placement.on(self.model.layers)  # placements of the same layers are one trial
        if placement.rest.key == self.operator.key:
            placement = Placement()  # all layers have this operator anyway
        self.set_normal_form(placement=placement)
        path = self.execution.path
        _check_layers(self.task, self.model, self.operators(), self.probing, self.evaluations, path)
        if self.execution.knockout is not None and self.attention() is None:
            raise ValueError(f"{NO_STAGES}; leave execution.knockout out")
        if isinstance(self.model, ForeignBackbone):
            _check_foreign(self)
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        return Spec.__get_pydantic_core_schema__.__func__(cls, source, handler)  # type: ignore[attr-defined,no-any-return]

    def train(self, run: Any) -> None:
        """Train by the loop of this package, from its own checkpoints."""
        run.hand_over("ablate.training.loop.train:train")

    def parameters(self) -> int:
        """Count the trained parameters, without allocating them."""
        return parameters(self).total

    def flops(self) -> float:
        """Count the FLOPs of all training steps."""
        count: Callable[[Trial], float] = resolve_name("ablate.training.loop.flops:training_flops")
        return count(self)

    def tokens(self) -> int:
        """Count the tokens, or the values, of the sequences of all training steps."""
        return self.task.batch * self.task.trained_length * self.training.steps

    def operator_parameters(self) -> int:
        """Count those that the operators add to softmax."""
        return parameters(self).operator

    @property
    def longest(self) -> int:
        """Longest sequence in training or any evaluation."""
        return _longest(self.task, self.evaluations)

    @property
    def accumulate(self) -> int:
        """Number of micro-batches per step and GPU."""
        return self.execution.micro_batches(self.task.batch)

    @property
    def parts(self) -> int:
        """Number of parts of the batch of a step."""
        return self.accumulate * self.execution.gpus

    def operators(self) -> Layers:
        """Return the operator or mixer of every layer, bottom first."""
        return self.placement.operators(self.operator, self.model.layers)

    def attention(self) -> tuple[Operator, ...] | None:
        """Return the operator of every layer; None if one has a mixer, or the backbone is foreign."""
        layers = self.operators()
        known = tuple(each for each in layers if isinstance(each, Operator))
        return known if isinstance(self.model, Backbone) and known == layers else None

    def row_infos(self) -> tuple[RowInfo, ...]:
        """Return what its task, evaluations and probes say about the values that they record."""
        return _row_infos(self.task, self.evaluations, self.probing.probes)

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
        """Return the points of what its task and evaluations record, and of metrics; None if one does not tell."""
        return _measures(self.task, self.evaluations)

    def check_inputs(self) -> None:
        """Open what its task and evaluations read; all of a user's own keep the laws of `ablate prove`, too."""
        resolve_name("ablate.training.planning.inputs:check_inputs")(self)

    @classmethod
    def warnings(cls, cells: Mapping[str, Self]) -> Findings:
        """Name starts that cannot move, numbers that stay fixed, and cells of the same function."""
        findings: Findings = resolve_name("ablate.training.planning.operator_checks:find_warnings")(cells)
        return findings

    @classmethod
    def knockouts(
        cls, measure: Measure, cells: Mapping[str, Self], baseline_of: Callable[[str], str | None]
    ) -> dict[str, Knockout]:
        """Plan what each cell is measured without; see `ablate.training.evaluations.knockout_plan`."""
        operators = {label: own for label, cell in cells.items() if (own := cell.attention()) is not None}
        return plan_cells(measure, baseline_of, operators)

    def longer(self, factor: int) -> Self:
        """Return the trial with `factor` times as many steps; warm-up and evaluations keep their share of the run."""
        return self.changed(training=scaled(self.training, factor * self.training.steps))

    def controls(self, measure: Measure, baseline: Self | None = None) -> tuple[ControlChange, ...]:
        """Return the simplest explanations of what this trial changes of `baseline`, by default softmax in its place.

        None if neither operator nor positions are others, or if the baseline is not attention alone.
        `ablate.training.controls` has the reasons.
        """
        before = baseline or self.changed(operator=softmax(), placement=Placement())
        if not isinstance(before.model, Backbone) or before.attention() is None:
            return ()
        moved = self.model.positions != before.model.positions
        pairs = list(zip(self.operators(), before.operators(), strict=False))
        if not moved and all(new.key == old.key for new, old in pairs):
            return ()
        stages = [(new, old) for new, old in pairs if isinstance(new, Operator) and isinstance(old, Operator)]
        moved |= any(new.forgetting != old.forgetting or new.visible != old.visible for new, old in stages)
        size, width, channel = parameters(before), before.model.feedforward_width, 0
        if width:
            wider = before.changed(model=before.model.changed(feedforward_width=width + 1))
            channel = parameters(wider).total - size.total
        added = parameters(self).operator - size.operator
        changes = [
            *distance_controls(self.task.trained_length, self.task.measured_length(measure.point), moved=moved),
            *(each for new, old in dict.fromkeys(stages) for each in operator_controls(new, old, before.model)),
            *feedforward_control(added, size.total, channel, width),
        ]
        return tuple({each.label: each for each in changes}.values())


@lru_cache(maxsize=4096)
def _row_infos(task: Task, evaluations: tuple[Evaluation, ...], probes: tuple[Probe, ...]) -> tuple[RowInfo, ...]:
    judged = (*task.row_infos(), *(row for evaluation in evaluations for row in evaluation.row_infos()))
    probed = (row for probe in probes for row in probe.rows if row.per != "file")
    return tuple(map(complete, (*judged, *probed)))


METRICS = ("loss", "grad_norm", "learning_rate")
"""Metrics that training records for every task."""


@lru_cache(maxsize=4096)
def _measures(task: Task, evaluations: tuple[Evaluation, ...]) -> Mapping[str, Sequence[Mapping[str, float]]] | None:
    points: dict[str, list[Mapping[str, float]]] = {name: [{}] for name in METRICS}
    sources: tuple[Task | Evaluation, ...] = (task, *evaluations)
    for source in sources:
        declared = source.measures()
        if declared is None:
            return None
        for name, at in declared.items():
            points.setdefault(name, []).extend(at)
    return points


def _longest(task: Task, evaluations: tuple[Evaluation, ...]) -> int:
    return max(task.length, *(evaluation.length_on(task) for evaluation in evaluations), 1)


class Parameters(NamedTuple):
    """Number of trained parameters, and of those that the operators add to softmax."""

    total: int
    operator: int


def build_model(trial: Trial) -> Model:
    """Build the model of `trial` at step 0, on the default device.

    Raises:
        SpecError: the execution path cannot run an operator, or a user's code builds no model.
    """
    backbone, path = trial.model, trial.execution.path
    return make_model(backbone, trial.operators(), inputs=trial.task.inputs, seed=trial.seed, path=path)


def parameters(trial: Trial) -> Parameters:
    """Count the parameters of the model of `trial` without allocating them."""
    return _count_parameters(trial.model, trial.operators(), trial.task.inputs)


@lru_cache(maxsize=4096)
def _count_parameters(backbone: AnyBackbone, operators: Layers, inputs: Scalars | Tokens) -> Parameters:
    model = build_shapes(partial(make_model, backbone, operators, inputs=inputs, seed=0, path="auto"))
    return Parameters(sum(p.numel() for p in model.parameters()), model.operator_parameters())


@lru_cache(maxsize=4096)  # trials of a grid share the arguments
def _check_layers(
    task: Task,
    model: AnyBackbone,
    operators: Layers,
    probing: Probing,
    evaluations: tuple[Evaluation, ...],
    path: PathName,
) -> None:
    """Check what depends on neither training nor seed."""
    attention = [each for each in operators if isinstance(each, Operator)]
    if isinstance(model, Backbone):
        for operator in dict.fromkeys(attention):
            require_operator_fits(task, model, operator, _longest(task, evaluations), path)
    probing.check(task, model, attention)
    for evaluation in evaluations:
        evaluation.check(task, model)
    _check_rows(task, evaluations)


def _check_foreign(trial: Trial) -> None:
    """Refuse what asks for the layers of a `Backbone`."""
    where, optimiser, path = f"model {trial.model.label!r} is foreign", trial.training.optimiser, trial.execution.path
    if optimiser.by_matrix:
        raise ValueError(f"{where}, and {optimiser.label!r} needs the weight matrices of layers; choose another")
    if path != "auto":
        raise ValueError(f"{where}, and execution.path={path!r} is for the layers of a Backbone; leave it out")
    if trial.parts == 1:
        return
    for operator in trial.operators():
        numbers = operator.numbers() if isinstance(operator, Operator) else {}
        if any(isinstance(each, RunningMean) for each in numbers.values()):
            raise ValueError(
                f"{where}, where running means of {operator.label!r} would move by parts of a batch; leave out "
                "execution.accumulate, micro_batch and gpus"
            )


def _check_parts(execution: Execution, batch: int) -> None:
    parts = execution.micro_batches(batch) * execution.gpus
    if parts > batch:
        field = "accumulate" if execution.micro_batch is None else "micro_batch"
        remedy = "lower one of them" if execution.micro_batch is None else "raise it, or lower execution.gpus"
        raise ValueError(
            f"execution.{field}={getattr(execution, field)} on execution.gpus={execution.gpus} makes {parts} of a "
            f"task.batch of {batch}, and every micro-batch has a sequence; {remedy}"
        )


def _check_rows(task: Task, evaluations: tuple[Evaluation, ...]) -> None:
    """Require that no two measures share a name and point."""
    if not evaluations:
        return
    taken: dict[tuple[object, ...], int] = {}
    sources: tuple[Task | Evaluation, ...] = (task, *evaluations)
    for number, source in enumerate(sources):
        for name, points in (source.measures() or {}).items():
            for point in points:
                first = taken.setdefault((name, *sorted(point.items())), number)
                if first != number:
                    raise ValueError(f"{sources[first].label} and {source.label} both record {row_words(name, point)}")
