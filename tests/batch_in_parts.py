"""Trials whose batch is computed in parts, and how far apart two runs of one may be."""

from ablate.training.optimisers import AdamW, Training
from ablate.training.trial import Execution, Trial
from ablate.variants import Operator, catalogue, gpt2, softmax, ssa

OPERATORS = [softmax(), ssa(), catalogue()["affine_scaled"].make()]

ROUNDINGS = 20 * 8 * 5
"""Steps, sequences, points: the terms that are added up in another order, each with one rounding."""

GENTLE = Training(steps=20, optimiser=AdamW(lr=0.5, eps=1.0), clip=1.0, evaluate_every=9)
"""With so large an eps Adam's step is linear in the gradient; a small one turns roundings near 0 into whole steps."""


def apart(one: dict, other: dict) -> float:
    """The largest relative difference between numbers of the same names."""
    assert one.keys() == other.keys()
    return max(abs(other[name] - value) / abs(value) for name, value in one.items())


def numbers(world) -> dict:
    """Everything measured, by name, and the learned numbers; other probes count, or lie near 0."""
    learned = {at: value for at, value in world.probes.items() if at[1].startswith("number.")}
    logged = {(step, name): value for step, values in world.logged.items() for name, value in values.items()}
    return {**logged, **{at: value for at, (value, *_) in world.evaluations.items()}, **learned}


def split(trial: Trial, accumulate: int, gpus: int = 1) -> Trial:
    return trial.changed(execution=Execution(accumulate=accumulate, gpus=gpus))


def dropping(trial: Trial, operator: Operator) -> Trial:
    model = gpt2(layers=3, heads=2, width=8, max_positions=16).changed(dropout=0.3, attention_dropout=0.3)
    return trial.changed(operator=operator, model=model)
