"""Laws of tasks and evaluations of a user's own, tried before anything is trained: batches, loss, evaluation.

Plans and runs try all of them on a few batches and on two evaluations of a function in place of a model. The package's
own tasks are tried by its tests.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

import torch
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.names import some
from ablate.grid.suggestions import suggest_name
from ablate.training.evaluations.evaluation import Evaluation
from ablate.training.planning.tried_task import (
    TriedEvaluation,
    TriedTask,
    first_of,
    input_fault,
    law_of,
    one_sentence,
    try_evaluation,
    width_of,
    words_at,
)
from ablate.training.tasks.task import DIVERGED, UNSCORED, Batch, Measurements, Task, TokenData, row_words

FAR: Final = 10
"""A loss of a constant prediction that is wrong by this factor is refused."""


def _inputs(tried: TriedTask) -> None:
    batch, where, longest = tried.batch, f"{tried.where}: batch(seed=0, step=1)", tried.task.trained_length
    if fault := input_fault(batch.inputs, batch.visible, tried.inputs):
        raise SpecError(f"{where}: {fault}; correct the batch, or what the task says of it")
    sequences, positions = batch.inputs.shape[:2]
    if sequences != tried.task.batch:
        raise SpecError(f"{where} has {sequences} sequences; batch={tried.task.batch} is their number; draw as many")
    if positions > longest:
        raise SpecError(
            f"{where} has {positions} positions and the task's length is {longest}; length is the longest sequence, "
            "for which models are checked; raise it"
        )


def _batches(tried: TriedTask) -> None:
    same = "a batch depends on seed and step alone, so that all cells of a seed see the same"
    remedy = "draw from a generator that is seeded by both"
    words = f"{tried.where}: batch(seed=0, step=1)"
    others = {"seed 1": tried.draw(1, 1, noise=2), "step 2": tried.draw(0, 2, noise=2)}
    again, fresh = tried.draw(0, 1, noise=3), tried.draw(0, 1, noise=4, data=tried.open())
    if equal(tried.batch, fresh) and not equal(tried.batch, again):
        raise SpecError(f"{words} depends on the batches that were drawn before; {same}; {remedy}")
    if not equal(tried.batch, fresh):
        reads = equal(tried.batch, tried.draw(0, 1, noise=1, data=tried.open()))
        why = "depends on random numbers of the process" if reads else "is another at every call"
        raise SpecError(f"{words} {why}; {same}; {remedy}")
    for what, other in others.items():
        if equal(tried.batch, other):
            raise SpecError(f"{words} is also the batch of {what}; {same}; {remedy}")


def equal(one: Batch, other: Batch) -> bool:
    """Return True if batches are equal, with their targets and what is visible."""
    pairs = zip(one, other, strict=True)
    return all(a is b if a is None or b is None else a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def _targets(tried: TriedTask) -> None:
    batch, predicted = tried.few
    if isinstance(tried.data, TokenData) and type(tried.data).loss is TokenData.loss:
        _check_tokens(f"{tried.where}: batch(seed=0, step=1)", batch, width_of(tried.inputs))
    loss = tried.loss(predicted)
    if not loss.requires_grad:
        raise SpecError(
            f"{tried.where}: loss() does not depend on the outputs; nothing could be learned; compute it of them"
        )
    if not math.isfinite(float(loss.detach())):
        raise SpecError(
            f"{tried.where}: loss() is {float(loss.detach())} for finite outputs; a loss is finite where training "
            "begins; correct the targets or the loss"
        )
    with one_sentence(f"{tried.where}: losses()"):
        count, named = len(tried.data.losses(predicted, batch.targets)), list(tried.data.logged)
    if count != 1 + len(named):
        raise SpecError(
            f"{tried.where}: losses() has {count} values; they are the loss and one for each name of logged, "
            f"{named}; correct one of them"
        )


def _check_tokens(where: str, batch: Batch, vocabulary: int) -> None:
    targets = batch.targets
    if targets.dtype != torch.int64:
        raise SpecError(f"{where}: targets are {targets.dtype}; the targets of tokens are int64; use .long()")
    if targets.shape != batch.inputs.shape:
        raise SpecError(
            f"{where}: targets are {tuple(targets.shape)} and inputs {tuple(batch.inputs.shape)}; every position has a "
            f"target, or {UNSCORED}; give them one shape"
        )
    scored = targets != UNSCORED
    if not bool(scored.any()):
        raise SpecError(
            f"{where}: every target is {UNSCORED}, which no loss counts; a batch has a scored target; set one"
        )
    outside = scored & ((targets < 0) | (targets >= vocabulary))
    if bool(outside.any()):
        place = first_of(outside)
        raise SpecError(
            f"{where}: targets have the token {targets[place].item()} {words_at(place)}; ids are 0 to "
            f"{vocabulary - 1}, or {UNSCORED} for no loss; correct it, or raise the vocabulary"
        )


def _constant_loss(tried: TriedTask) -> None:
    with one_sentence(f"{tried.where}: constant_loss"):
        said = float(tried.data.constant_loss)
    nothing = torch.zeros(width_of(tried.inputs), requires_grad=True)
    at_zero, best = _constant_losses(tried, nothing)
    if not best / FAR <= said <= at_zero * FAR or said <= 0:
        raise SpecError(
            f"{tried.where}: constant_loss is {said:.4g}; it is the loss of the best prediction that ignores its "
            f"input, on batch(seed=0, step=1) {best:.4g}, and {at_zero:.4g} for outputs of 0; training has diverged "
            f"above {DIVERGED:g} times it; correct it"
        )


def _constant_losses(tried: TriedTask, constant: Tensor) -> tuple[float, float]:
    """Return the losses of outputs of 0, and of the best constant ones that an optimiser finds on the batch."""
    shape = tried.few[1].shape
    optimiser = torch.optim.LBFGS([constant], max_iter=50)
    seen: list[float] = []

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = tried.loss(constant.expand(shape))
        loss.backward()  # type: ignore[no-untyped-call]
        seen.append(float(loss.detach()))
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    finite = [each for each in seen if math.isfinite(each)]
    return seen[0] if math.isfinite(seen[0]) else math.inf, min(finite, default=0.0)


def _evaluation(tried: TriedTask) -> None:
    _check_equal(tried.where, *tried.evaluated)


def _check_equal(where: str, one: TriedEvaluation, other: TriedEvaluation) -> None:
    rule = "evaluation data are equal at every call, for all models and seeds"
    remedy = "draw them from a generator with a fixed seed"
    if one.digests != other.digests:
        raise SpecError(f"{where}: evaluate() shows a model other inputs at a second call; {rule}; {remedy}")
    for a, b in zip_longest(one.rows, other.rows):
        if repr(a) != repr(b):  # NaN is equal
            words = [row and f"{row_words(row.name, row.point)} = {row.value:.6g}" for row in (a, b)]
            raise SpecError(f"{where}: for the same outputs it measures {words[0]}, then {words[1]}; {rule}; {remedy}")


def _length(tried: TriedTask) -> None:
    _check_length(tried.where, tried.evaluated[0].longest, tried.task.length)
    trained, length = tried.task.trained_length, tried.task.length
    if trained > length:
        raise SpecError(
            f"{tried.where}: trained_length is {trained} and length {length}; length is the longest; raise it"
        )


def _check_length(where: str, longest: int, length: int) -> None:
    if longest > length:
        raise SpecError(
            f"{where}: evaluate() shows a sequence of {longest} positions and its length is {length}; length is the "
            "longest sequence, for which models are checked; raise it"
        )


def _measures(tried: TriedTask) -> None:
    with one_sentence(f"{tried.where}: measures()"):
        declared, infos = tried.task.measures(), [info.name for info in tried.task.row_infos()]
    logged = {"loss", *tried.data.logged}
    _check_measures(tried.where, tried.evaluated[0].rows, declared, [name for name in infos if name not in logged])


def _check_measures(
    where: str,
    rows: Sequence[Measurements],
    declared: Mapping[str, Sequence[Mapping[str, float]]] | None,
    infos: Sequence[str],
) -> None:
    places = [(row.name, tuple(sorted(row.point.items()))) for row in rows]
    for number, place in enumerate(places):
        if place in places[:number]:
            words = row_words(place[0], dict(place[1]))
            raise SpecError(f"{where}: evaluate() yields {words} twice; a name has one value at a point; leave one out")
    names = list(dict.fromkeys(name for name, _ in places))
    if declared is not None:
        said = [(name, tuple(sorted(point.items()))) for name, points in declared.items() for point in points]
        for what, theirs, others in (
            ("measures() declares {}, which evaluate() does not yield", said, places),
            ("evaluate() yields {}, which measures() does not declare", places, said),
        ):
            for name, point in theirs:
                if (name, point) not in others:
                    near = suggest_name(name, [other for other, _ in others if other != name])
                    raise SpecError(
                        f"{where}: {what.format(row_words(name, dict(point)))}; both name the same values at the same "
                        f"points, by which a grid is compared; correct one of them{near}"
                    )
    for info in infos:
        near = suggest_name(info, [name for name in names if name not in infos])
        if info not in names and near:
            raise SpecError(
                f"{where}: its units or rows describe {info!r}, which evaluate() does not yield, only "
                f"{some(names, 8)}; a value is described by its name; correct it{near}"
            )


class TaskLaw(NamedTuple):
    """A law of tasks; `check` raises SpecError if it is broken."""

    name: str
    sentence: str
    check: Callable[[TriedTask], None]


TASK_LAWS: Final = (
    TaskLaw("inputs", "a batch has the sequences, positions and ids that the task says", _inputs),
    TaskLaw("batches", "a batch depends on seed and step alone, and on both", _batches),
    TaskLaw("targets", "targets fit vocabulary and loss, which is one finite number", _targets),
    TaskLaw("constant loss", f"it is that of a constant prediction, within a factor of {FAR}", _constant_loss),
    TaskLaw("evaluation", "it shows and measures the same at every call", _evaluation),
    TaskLaw("length", "no sequence of an evaluation is longer", _length),
    TaskLaw("measures", "names and points are those that are evaluated", _measures),
)


def require_task_laws(task: Task) -> None:
    """Raise SpecError at the first law that `task` breaks."""
    tried = TriedTask(task)
    for law in TASK_LAWS:
        with law_of(tried.where, law.name):
            law.check(tried)


def require_evaluation_laws(evaluation: Evaluation, task: Task) -> None:
    """Raise SpecError if an evaluation differs between calls, is longer than it says, or measures other names."""
    where = f"evaluation {evaluation.label!r} of task {task.label!r}"
    pair = []
    for noise in range(2):
        with one_sentence(f"{where}: open()"):
            evaluator = evaluation.open(task)
        pair.append(try_evaluation(where, task.inputs, evaluator.evaluate, noise))
    first, second = pair
    _check_equal(where, first, second)
    with one_sentence(f"{where}: length, measures()"):
        length, infos = evaluation.length_on(task), evaluation.row_infos()
        declared = evaluation.measures()
    _check_length(where, first.longest, length)
    _check_measures(where, first.rows, declared, [info.name for info in infos])
