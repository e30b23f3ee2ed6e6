"""A task or an evaluation of a user's own as the laws try it: first batches, and evaluations of a function.

The function stands for a model: it depends on inputs and positions alone.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ablate.grid.errors import AblateError, SpecError
from ablate.grid.spec import Spec
from ablate.grid.values import require_number
from ablate.runners.processes.process_state import reset_random
from ablate.runners.provenance.origin import is_installed, is_project
from ablate.training.tasks.counter_rng import CPU
from ablate.training.tasks.task import Batch, Data, Items, Measurements, Predict, Task, row_words
from ablate.variants import Scalars, Tokens
from ablate.variants.axes import Inputs, Outputs

_OUTPUTS: Final = 2**22
"""Numbers of a model's outputs for which a loss is computed, in whole sequences."""
LONGEST_LAW_S: Final = 900.0
"""Seconds that a law may take: far more than a few batches and two evaluations need, or short trainings."""


def is_own(spec: Spec) -> bool:
    """Return True if the class of a spec is a user's."""
    return not type(spec).__module__.startswith("ablate.")


def own_tasks(task: Task) -> list[Task]:
    """Return the tasks of a user's own: `task`, or those that it wraps."""
    inside = [value for name in type(task).model_fields if isinstance(value := getattr(task, name), Task)]
    return [each for each in (task, *inside) if is_own(each)]


@contextmanager
def one_sentence(where: str) -> Iterator[None]:
    """Turn an error of a user's code into one sentence with its line."""
    try:
        yield
    except (AblateError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        frames = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
        own = [at for at in frames if not is_installed(str(at[0])) and not is_project(str(at[0]))]
        place = f" ({own[-1][0].name}:{own[-1][1]})" if own else ""
        message = " ".join(str(error).split())
        said = f"{type(error).__name__}{': ' if message else ''}{message}{place}"
        raise SpecError(f"{where} raises {said}; every trial would fail there; correct it") from error


class TooLong(SpecError):
    """A law did not end."""


class _Alarm(BaseException):
    """Passes through a user's `except Exception`."""


@contextmanager
def law_of(where: str, law: str) -> Iterator[None]:
    """End a law after `LONGEST_LAW_S` by TooLong; in the main thread, which alone can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    rung = False

    def end(*_: object) -> None:
        nonlocal rung
        rung = True
        raise _Alarm

    began, handler = time.monotonic(), signal.signal(signal.SIGALRM, end)
    left, _ = signal.setitimer(signal.ITIMER_REAL, LONGEST_LAW_S, 1)
    try:
        yield
    except BaseException:
        if not rung:
            raise
        raise TooLong(  # whatever it was made into
            f"{where} has not ended after {LONGEST_LAW_S:g} s of the law {law!r}, which tries a few steps; correct "
            "what waits or repeats for ever, or make it faster"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3))


class TriedEvaluation(NamedTuple):
    """An evaluation that was tried: its rows, and the inputs that it showed to a model."""

    rows: list[Measurements]
    digests: list[bytes]
    """Digests of the inputs of each forward pass."""
    longest: int


@final
class TriedTask:
    """A task with its first batches and evaluations, which the laws share."""

    def __init__(self, task: Task) -> None:
        self.task, self.where = task, f"task {task.label!r}"

    def open(self) -> Data:
        with one_sentence(f"{self.where}: open()"):
            data = self.task.open()
        if not isinstance(data, Data):
            raise SpecError(f"{self.where}: open() returns {type(data).__name__}; it returns a Data; return one")
        return data

    @cached_property
    def data(self) -> Data:
        return self.open()

    @cached_property
    def inputs(self) -> Scalars | Tokens:
        with one_sentence(f"{self.where}: inputs"):
            return self.task.inputs

    @cached_property
    def batch(self) -> Batch:
        """The batch of seed 0, step 1, with random numbers of the process seeded by 1."""
        return self.draw(0, 1, noise=1)

    def draw(self, seed: int, step: int, *, noise: int, data: Data | None = None) -> Batch:
        with one_sentence(f"{self.where}: batch(seed={seed}, step={step})"), reset_random(noise):
            batch = (data or self.data).batch(seed, step, CPU)
        if not isinstance(batch, Batch):
            raise SpecError(
                f"{self.where}: batch(seed={seed}, step={step}) is {type(batch).__name__}; a batch is a Batch of "
                "inputs and targets; return one"
            )
        return batch

    @cached_property
    def few(self) -> tuple[Batch, Outputs]:
        """The first sequences of the batch with their targets, and outputs of the function that stands for a model."""
        width = width_of(self.inputs)
        most = max(1, _OUTPUTS // max(1, width * self.batch.inputs.shape[1]))
        with one_sentence(f"{self.where}: complete_batch()"):
            batch = self.data.complete_batch(self.batch.first(most))
        return batch, outputs(batch.inputs, width).requires_grad_()

    def loss(self, predicted: Outputs) -> Float[Tensor, ""]:
        with one_sentence(f"{self.where}: loss()"):
            loss = self.data.loss(predicted, self.few[0].targets)
        if isinstance(loss, Tensor) and loss.dim() == 0:
            return loss
        what = f"a tensor {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise SpecError(f"{self.where}: loss() is {what}; a loss is a tensor of one number; take the mean")

    @cached_property
    def evaluated(self) -> tuple[TriedEvaluation, TriedEvaluation]:
        """Two evaluations, with other random numbers of the process."""
        first, second = (
            try_evaluation(self.where, self.inputs, data.evaluate, noise)
            for noise, data in enumerate([self.data, self.open()])
        )
        return first, second


def width_of(inputs: Scalars | Tokens) -> int:
    """Return the number of outputs at a position."""
    return inputs.vocabulary if isinstance(inputs, Tokens) else inputs.width


def outputs(inputs: Inputs, width: int) -> Outputs:
    """Compute outputs that depend on inputs and position, and on nothing else."""
    seen = inputs.to(torch.float32)
    seen = seen.sum(-1) if seen.dim() == 3 else seen
    phase = 0.7 * seen + 0.3 * torch.arange(seen.shape[1])
    return torch.sin(phase[..., None] + 1.3 * torch.arange(width))


def input_fault(inputs: Any, visible: Any, kind: Scalars | Tokens) -> str:
    """Return what is wrong with inputs of a model, and where; empty if nothing is."""
    if not isinstance(inputs, Tensor):
        return f"inputs are {type(inputs).__name__}; they are a tensor"
    shape = tuple(inputs.shape)
    if isinstance(kind, Tokens):
        if inputs.dtype not in (torch.int64, torch.int32) or inputs.dim() != 2:
            return f"inputs are {inputs.dtype} {shape}; token ids are int64 [sequences, tokens]"
        if inputs.numel() and not 0 <= int(inputs.min()) <= int(inputs.max()) < kind.vocabulary:
            wrong = first_of((inputs < 0) | (inputs >= kind.vocabulary))
            return f"inputs have the token {inputs[wrong].item()} {words_at(wrong)}; ids are 0 to {kind.vocabulary - 1}"
    elif inputs.dtype != torch.float32 or inputs.dim() != 3 or shape[2] != kind.width:
        return f"inputs are {inputs.dtype} {shape}; they are float32 [sequences, positions, {kind.width}]"
    elif not bool(inputs.isfinite().all()):
        wrong = first_of(~inputs.isfinite())
        return f"inputs have {inputs[wrong].item()} {words_at(wrong)}; they are finite"
    return "" if visible is None else _visible_fault(visible, shape)


def _visible_fault(visible: Any, shape: tuple[int, ...]) -> str:
    queries = (shape[0], shape[1], shape[1]), (shape[0], 1, shape[1])
    if isinstance(visible, Tensor) and visible.dtype == torch.bool and tuple(visible.shape) in queries:
        return ""
    what = f"{visible.dtype} {tuple(visible.shape)}" if isinstance(visible, Tensor) else type(visible).__name__
    return f"visible is {what}; it is bool {list(queries[0])} or {list(queries[1])}"


def first_of(wrong: Bool[Tensor, "..."]) -> tuple[int, ...]:
    """Return the place of the first True."""
    return tuple(wrong.nonzero()[0].tolist())


def words_at(place: tuple[int, ...]) -> str:
    """Write a place of a batch in words."""
    return f"in sequence {place[0]} at position {place[1]}" if len(place) > 1 else f"in sequence {place[0]}"


def try_evaluation(
    where: str, kind: Scalars | Tokens, evaluate: Callable[[Predict], Any], noise: int
) -> TriedEvaluation:
    """Evaluate `outputs`, with random numbers of the process seeded by `noise`."""
    digests, lengths = list[bytes](), [0]

    def predict(inputs: Tensor, visible: Tensor | None = None, /) -> Tensor:
        if fault := input_fault(inputs, visible, kind):
            raise SpecError(f"{where}: evaluate(): {fault}; a model is shown what the task says; correct it")
        digests.append(blake2b(inputs.contiguous().numpy().tobytes()).digest())
        lengths.append(inputs.shape[1])
        return outputs(inputs, width_of(kind))

    with one_sentence(f"{where}: evaluate()"), reset_random(noise), torch.inference_mode():
        rows = [row for row in evaluate(predict) if not isinstance(row, Items)]
    return TriedEvaluation([_checked_row(where, row) for row in rows], digests, max(lengths))


def _checked_row(where: str, row: Any) -> Measurements:
    """Return a row with a plain number as its value."""
    if not isinstance(row, Measurements):
        raise SpecError(f"{where}: evaluate() yields {row!r:.60}; it yields Measurements; use over_items")
    try:
        return row._replace(value=require_number(row.value, row.name))
    except SpecError as error:
        what = f"{row_words(row.name, row.point)} = {row.value!r:.60}"
        raise SpecError(f"{where}: evaluate() yields {what}; a value is one number; use float()") from error
