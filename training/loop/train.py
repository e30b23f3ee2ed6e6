"""The training loop: batches, steps, evaluations, probes and checkpoints.

Data, evaluation sample, initial weights and random numbers follow from the seed and the step. So the state of a run is
its step, parameters and optimiser state. On the CPU, a resumed run equals an uninterrupted one bit for bit, with the
same number of threads, micro-batches and ranks.

Values go to its `TrainingContext`, in a worker an `Attempt`, which writes shards. The whole way to SQL is in
`ablate.runners.execution.run`.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ablate.runners.processes.failure import breaks_process, failure_of
from ablate.runners.processes.process_group import World
from ablate.runners.processes.process_state import contain, use_threads
from ablate.runners.processes.rank_launcher import ranks, require_precision
from ablate.runners.processes.step_values import STEPS_BEHIND, StepValues
from ablate.runners.processes.training_context import (
    Diverged,
    NullContext,
    TrainingContext,
    TrainingResult,
    UnfitCheckpoint,
)
from ablate.training.evaluations.evaluation import open_evaluations
from ablate.training.loop.batch_parts import BatchPart, parts, require_finite
from ablate.training.loop.compilation import Forward
from ablate.training.loop.cost import Cost
from ablate.training.loop.deterministic import deterministic, fix_workspace
from ablate.training.loop.flat_parameters import Flat
from ablate.training.loop.interruptible_evaluation import EvaluationStopped, InterruptiblePredict
from ablate.training.loop.knockout import Subject, knock_out
from ablate.training.loop.model_predict import ModelPredict
from ablate.training.optimisers.optimiser import LR_SHARE
from ablate.training.probes.probe import NORMS, ProbeArray, ProbeInput, probe_model, require_long_enough, run_probes
from ablate.training.tasks.task import DIVERGED, Items, Measurements
from ablate.training.trial import Trial, build_model
from ablate.variants import Transformer
from ablate.variants.axes import Inputs, Outputs, Visibility
from ablate.variants.model.running_means import BatchShare, RunningMeans
from ablate.variants.model.seeding import generator


def train(trial: Trial, context: TrainingContext) -> TrainingResult:
    """Train `trial` from its newest checkpoint, or from the start.

    Metrics of a step are `loss`, `grad_norm` (before clipping), `learning_rate` and those that `Data.logged` names.

    Diverged if the loss is not finite or above `DIVERGED` times that of the best constant prediction, or if a parameter
    is not finite after the last step. SpecError if the task's files do not match the spec, or model inputs are not
    finite. EnvironmentProblem if the device is not available.
    """
    with ranks(trial, "ablate.training.loop.train:train_rank") as world:
        return train_as(world, trial, context)


def train_rank(trial: Trial, world: World, _more: Mapping[str, str]) -> None:
    """Train as a rank other than 0. Every rank sees the same loss; rank 0 reports a divergence."""
    with suppress(Diverged):
        train_as(world, trial, NullContext())


def train_as(world: World, trial: Trial, context: TrainingContext) -> TrainingResult:
    """Train `trial` as one rank of `world`; others than 0 only ask to stop. PeerLost if another rank is gone."""
    if world.place.rank:
        context = NullContext(context.stop_requested)
    execution = trial.execution
    require_precision(world.device, trial.training.precision)
    fix_workspace(world.device, wanted=execution.deterministic)
    exactly = deterministic(wanted=execution.deterministic)
    cuda = [torch.cuda.current_device()] if world.device.type == "cuda" else []
    apart = nullcontext() if world.place.rank else contain(trial.seed, world.device.type)  # ranks end with the trial
    with apart, torch.random.fork_rng(devices=cuda), use_threads(execution.threads), exactly:
        return _TrainingRun(trial, context, world).result()


@final
class _TrainingRun:
    def __init__(self, trial: Trial, context: TrainingContext, world: World) -> None:
        self._trial, self._context, self._world, self._device = trial, context, world, world.device
        self._training = trial.training
        self._data, self._drawn_on = trial.task.open(), trial.task.drawn_on(self._device)
        require_long_enough(self._data, trial.probing, trial.model)
        self._evaluators = open_evaluations(trial.task, trial.evaluations)
        self._bound = DIVERGED * self._data.constant_loss
        self._model = build_model(trial).to(self._device)
        self._flat = Flat(self._model, by_matrix=self._training.optimiser.by_matrix)
        self._means = RunningMeans(self._model) if trial.parts > 1 else None
        first = world.place.rank * trial.accumulate
        self._mine = range(first, first + trial.accumulate)
        self._optimiser = self._training.optimiser.build(self._flat.weights)
        self._forward = Forward(trial, self._device, self._losses, self._begin, context.compiles)
        self._cost = Cost(trial, world)
        self._behind = STEPS_BEHIND[self._device.type] if world.place.size == 1 else 0  # ranks report a step together
        self._unread: list[StepValues] = []
        self._norms: list[float] = []
        self._answers: list[Any] = []  # results of forward passes of the evaluation at work
        self._saved = (-1, 0)  # step and number of answers of the newest checkpoint
        self._seconds = dict.fromkeys(("train_s", "evaluate_s", "probe_s"), 0.0)
        self._refit_s = 0.0

    def result(self) -> TrainingResult:
        try:
            return self._train()
        except BaseException:
            with suppress(Exception):  # the device may be what failed
                self._context.took(self._spent_cost(measure=False))
            raise

    def _train(self) -> TrainingResult:
        """Train step by step. An evaluation follows the checkpoint of its step, so a resumed run still makes it.

        A stop during an evaluation saves the results of its forward passes so far.
        """
        self._begin()
        step, stopped = self._restore(), False
        steps = self._training.steps
        while not stopped:
            if self._training.evaluates(step) and self._world.any(not self._evaluate(step)):
                self._save(step)
                return self._finish(step, stopped=True)
            if step == steps:
                break
            step += 1
            self._step(step)
            stopped = self._world.any(self._context.stop_requested())
            if stopped or self._context.checkpoint_due():
                self._save(step)
        return self._finish(step, stopped=stopped)

    def _begin(self) -> None:
        """Record device, path and data; again if the compiler refuses the model, which changes the path."""
        length = self._trial.task.length + self._trial.model.sink_tokens
        dtype = torch.bfloat16 if self._training.precision == "bfloat16" else None
        paths = self._model.paths(length, dtype, compiled=self._forward.compiled)
        self._context.begins(self._device.type, "+".join(dict.fromkeys(paths)), self._record())

    def _record(self) -> Mapping[str, Any] | None:
        recorded = [{"kind": spec.label, **each.record} for spec, each in self._evaluators if each.record is not None]
        return {**(self._data.record or {}), "evaluations": recorded} if recorded else self._data.record

    def _step(self, step: int) -> None:
        began = time.perf_counter()
        self._seed(step)
        mine = self._parts(step)
        rate = self._training.lr(step)
        for group in self._optimiser.param_groups:
            group["lr"] = rate * group.get(LR_SHARE, 1.0)
        self._flat.zero_gradients()
        if self._means is not None:
            self._means.move([self._share(step, part) for part in mine], self._world.add)
        losses = [self._backward(step, part) for part in mine if part.terms]
        loss, *others = self._sum_losses(losses)
        norm = self._flat.clip_gradients(self._training.clip)
        self._optimiser.step()
        self._unread.append(StepValues.send(step, rate, torch.stack([loss, norm, *others])))
        arrived = self._wait(leave=0 if step == self._training.steps else self._behind)
        took = time.perf_counter() - began
        self._seconds["train_s"] += took
        self._cost.end_step(took, self._forward.graphs)
        self._report(arrived, newest=step)

    def _parts(self, step: int) -> list[BatchPart]:
        batch = self._data.batch(self._trial.seed, step, self._drawn_on).to(self._device)
        if step == 1:
            require_finite(batch)
        self._cost.begin_step(batch.inputs)
        return parts(self._data, batch, self._trial.parts, self._mine)

    def _share(self, step: int, part: BatchPart) -> BatchShare:
        return BatchShare(
            part.batch.inputs, part.sequences, partial(self._seed, step, part.number), visible=part.batch.visible
        )

    def _backward(self, step: int, part: BatchPart) -> Sequence[Float[Tensor, ""]]:
        """Add the gradient of a part; return its share of the loss and of other logged values."""
        if self._means is not None:
            self._seed(step, part.number)
        batch = self._data.complete_batch(part.batch)
        losses = self._forward(batch.inputs, batch.visible, batch.targets)
        losses = losses if part.terms == 1 else [each * part.terms for each in losses]
        losses[0].backward()  # type: ignore[no-untyped-call]
        return [each.detach() for each in losses]

    def _sum_losses(self, losses: list[Sequence[Float[Tensor, ""]]]) -> Sequence[Float[Tensor, ""]]:
        if self._means is None:
            return losses[0]
        nothing = [torch.zeros((), device=self._device)] * (1 + len(self._data.logged))
        loss, *others = [torch.stack(each).sum() for each in zip(*losses, strict=True)] or nothing
        loss = self._world.add(self._flat.with_loss(loss))[-1]
        return [loss, *self._world.add(torch.stack(others))] if others else [loss]

    def _seed(self, *place: int) -> None:
        _seed(generator(self._trial.seed, "noise", *place).initial_seed(), self._device)

    def _wait(self, *, leave: int) -> list[tuple[int, dict[str, float]]]:
        """Wait for the values of all steps but the last `leave`, by step."""
        count = max(len(self._unread) - leave, 0)
        steps, self._unread = self._unread[:count], self._unread[count:]
        arrived = []
        for each in steps:
            loss, norm, *others = each.wait()
            if each.step <= NORMS:
                self._norms.append(norm)
            beside = dict(zip(self._data.logged, others, strict=True))
            arrived.append(
                (each.step, {"loss": loss, "grad_norm": norm, "learning_rate": each.learning_rate, **beside})
            )
        return arrived

    def _catch_up(self, step: int) -> None:
        """Report all steps up to `step`; the wait for them is part of training."""
        began = time.perf_counter()
        arrived = self._wait(leave=0)
        self._seconds["train_s"] += time.perf_counter() - began
        self._report(arrived, newest=step)

    def _report(self, arrived: Iterable[tuple[int, Mapping[str, float]]], *, newest: int) -> None:
        """Log the values of steps; raise Diverged after probing the model, which has made the step `newest`."""
        for step, values in arrived:
            loss, last = values["loss"], step == self._training.steps
            diverged = not loss <= self._bound or (last and not self._flat.finite())
            if diverged or last or step % self._trial.execution.log_every == 0:
                self._context.metrics(step, values)
            self._context.progress(step, self._training.steps, loss)
            if diverged:
                self._probe_divergence(newest)
                raise Diverged(step, loss if not loss <= self._bound else math.nan)

    def _save(self, step: int) -> None:
        """Save the state of `step`, unless a checkpoint holds all of it."""
        self._catch_up(step)
        if self._saved != (step, len(self._answers)):
            self._context.save(step, self._state())
            self._saved = step, len(self._answers)

    def _evaluate(self, step: int) -> bool:
        """Evaluate and probe the model; return False if a stop was requested meanwhile."""
        if self._world.place.rank:
            return True
        self._catch_up(step)
        began = time.perf_counter()
        self._model.eval()
        with torch.inference_mode():
            try:
                measured = list(self._measure(step))
            except EvaluationStopped:
                self._seconds["evaluate_s"] += time.perf_counter() - began
                return False
            for row in measured:
                if isinstance(row, Items):
                    name, point, items, values = row
                    self._context.items(step, name, point=point, items=items, values=values)
                else:
                    name, value, point, count, se = row
                    self._context.evaluation(step, name, value, point=point, items=count, se_items=se)
            evaluated = time.perf_counter()
            self._probe(step)
        self._model.train()
        self._answers.clear()
        ended = time.perf_counter()
        self._seconds["evaluate_s"] += evaluated - began
        self._seconds["probe_s"] += ended - evaluated
        return True

    def _measure(self, step: int) -> Iterator[Measurements | Items]:
        def keep() -> None:
            if self._context.checkpoint_due():
                self._save(step)

        outputs = ModelPredict(self._model, self._device, self._training.precision)
        predict = InterruptiblePredict(outputs, self._answers, self._context.stop_requested, keep)
        yield from self._data.evaluate(predict)
        for evaluation, evaluator in self._evaluators:
            if step == self._training.steps or not evaluation.at_end:
                with self._model.use_positions(evaluation.positions(self._trial.model)):
                    yield from evaluator.evaluate(predict)
        if step == self._training.steps and self._trial.execution.knockout is not None:
            assert isinstance(self._model, Transformer)
            subject = Subject(self._trial, self._model, self._data, self._evaluators, predict)
            yield from knock_out(subject, self._count_refit)

    def _count_refit(self, seconds: float) -> None:
        self._refit_s += seconds

    def _probe(self, step: int, *, diverged: bool = False) -> None:
        probing = self._trial.probing
        batch = probe_model(self._data, probing).to(self._device)
        seen = ProbeInput(self._model, self._trial.task, batch, step, self._norms)
        with self._mixed_precision():
            for record in run_probes(probing, seen, diverged=diverged):
                if isinstance(record, ProbeArray):
                    self._context.artefact(step, record.name, record.arrays)
                else:
                    name, value, layer, head, point = record
                    self._context.probe(step, name, value, layer=layer, head=head, point=point)

    def _probe_divergence(self, step: int) -> None:
        if self._world.place.rank:
            return
        began = time.perf_counter()
        with torch.inference_mode():
            self._probe(step, diverged=True)
        self._seconds["probe_s"] += time.perf_counter() - began

    def _losses(
        self, inputs: Inputs, visible: Visibility | None, targets: Shaped[Tensor, "batch ..."]
    ) -> Sequence[Float[Tensor, ""]]:
        return self._data.losses(self._outputs(inputs, visible), targets)

    def _outputs(self, inputs: Inputs, visible: Visibility | None) -> Outputs:
        if self._training.precision == "float32":
            return self._model(inputs, visible)  # type: ignore[no-any-return]
        with self._mixed_precision():
            return self._model(inputs, visible).float()  # type: ignore[no-any-return]

    def _mixed_precision(self) -> torch.autocast:
        lower = self._training.precision == "bfloat16"
        return torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=lower)

    def _state(self) -> dict[str, Any]:
        """Copy the state, since training continues while it is written."""
        return {
            "model": _copy_to_cpu(self._model.state_dict()),
            "optimiser": _copy_to_cpu(self._optimiser.state_dict()),
            "norms": list(self._norms),
            **({"answers": _copy_to_cpu(self._answers)} if self._answers else {}),
        }

    def _restore(self) -> int:
        restored = self._world.share_restored(self._context.restore())
        if restored is None:
            return 0
        step, state = restored
        try:
            self._model.load_state_dict(state["model"])
            self._optimiser.load_state_dict(state["optimiser"])
            self._norms = list(state["norms"])
            self._answers = list(state.get("answers", []))
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            if breaks_process(error) or failure_of(error).reason == "out_of_memory":
                raise  # the checkpoint may be sound
            raise UnfitCheckpoint(f"the state of step {step} does not fit the trial ({error})") from error
        self._saved = step, len(self._answers)
        return step

    def _finish(self, step: int, *, stopped: bool) -> TrainingResult:
        if not stopped and not self._world.place.rank and self._trial.execution.keep_weights:
            read = None if self._data.record is None else dict(self._data.record)
            kept = {"model": _copy_to_cpu(self._model.state_dict()), "spec": self._trial.data(), "data": read}
            self._context.keep(step, kept)
        return TrainingResult(
            step=step,
            stopped=stopped,
            parameters=sum(p.numel() for p in self._model.parameters()),
            operator_parameters=self._model.operator_parameters(),
            cost=self._spent_cost(measure=True),
            **self._seconds,
        )

    def _spent_cost(self, *, measure: bool) -> dict[str, float]:
        spent = {**self._seconds, **({"refit_s": self._refit_s} if self._refit_s else {})}
        return self._cost.entries(spent, measure=measure)


def _copy_to_cpu(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        return {name: _copy_to_cpu(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [_copy_to_cpu(value) for value in state]
    return state


def _seed(seed: int, device: torch.device) -> None:
    """Seed the model's random numbers; `torch.manual_seed` takes a tenth of a small model's step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
