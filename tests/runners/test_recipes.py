"""The papers' recipes, number by number, with the place each is read from; and how they are made longer or shorter."""

import inspect
import math
from fractions import Fraction

import pytest

from ablate.grid.errors import SpecError
from ablate.grid.path import value_at
from ablate.runners.optimisers import Training, recipes
from ablate.runners.optimisers.schedules import WSD

RECIPES = {
    name: make
    for name, make in inspect.getmembers(recipes, inspect.isfunction)
    if make.__module__ == recipes.__name__ and name != "scaled"
}

CONSTANT = {"schedule.kind": "constant"}
SINK = {
    "steps": 20_000, "optimiser.lr": 4e-4, "optimiser.weight_decay": 0.1, "optimiser.betas": (0.9, 0.95),
    "schedule.warmup": 100, "clip": 1.0, **CONSTANT,
}  # fmt: skip
PRINTED: dict[str, dict[str, object]] = {
    "affine_scaled": {  # 000 5.1 and B.1
        "steps": 9000, "optimiser.lr": 1e-3, "optimiser.weight_decay": 0.1, "schedule.kind": "wsd",
        "schedule.warmup": 100,
    },
    "integral_125m": {"optimiser.lr": 3e-4, "schedule.warmup": 10_000, "precision": "bfloat16"},  # 002 A.3
    "integral_1200m": {"optimiser.lr": 3e-4, "schedule.warmup": 10_000},  # 002 A.3
    "scaled_signed_averaging_in_context": {  # 003 A.1
        "steps": 500_000, "optimiser.lr": 1e-4, "optimiser.weight_decay": 0.0, **CONSTANT,
    },
    "scaled_signed_averaging_gpt2": {  # 003 A.2; the warm-up is nanoGPT's
        "steps": 50_000, "optimiser.lr": 6e-4, "optimiser.betas": (0.9, 0.95), "optimiser.weight_decay": 0.1,
        "schedule.kind": "cosine", "schedule.warmup": 2000,
    },
    "babyberta": {  # BabyBERTa params.py, job.py (correct_bias=False) and configs.py; eps is that of transformers 4.3
        "optimiser.kind": "uncorrected_adamw", "optimiser.lr": 1e-4, "optimiser.eps": 1e-6,
        "optimiser.weight_decay": 0.0, "schedule.kind": "linear", "schedule.warmup": 24_000, "schedule.floor": 0.0,
        "clip": 1.0, "steps": 260_000,
    },
    "sink_60m": SINK,  # 004 4, pretrain/tinyllama.py, configs/tinyllama_60m.yaml: min_lr = learning_rate
    "sink_1b": {"steps": 40_000, "schedule.warmup": 100},  # 004 configs/tinyllama_1b.yaml
    "nanogpt": {  # config/train_gpt2.py and train.py
        "steps": 600_000, "optimiser.betas": (0.9, 0.95), "schedule.warmup": 2000, "clip": 1.0,
    },
}  # fmt: skip


def test_a_recipe_has_the_numbers_of_its_source() -> None:
    assert PRINTED.keys() == RECIPES.keys()
    for recipe, expected in PRINTED.items():
        training = RECIPES[recipe]()
        assert isinstance(training, Training)
        assert {path: value_at(training, path) for path in expected} == expected, recipe
    # 002 A.3: sequences of a GPU, GPUs, micro-batches, tokens of a sequence
    assert RECIPES["integral_125m"]().steps == 28 * 10**9 // (16 * 8 * 8 * 2048)
    assert RECIPES["integral_1200m"]().steps == 128 * 10**9 // (4 * 8 * 32 * 2048)
    for recipe in ("scaled_signed_averaging_gpt2", "nanogpt"):
        training = RECIPES[recipe]()
        end = training.optimiser.lr * training.schedule.after_warmup(training.steps, training.steps)
        assert end == pytest.approx(6e-5)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("part", [Fraction(1, 10), Fraction(1, 100), Fraction(3)])
def test_a_scaled_recipe_has_the_same_rate_at_the_same_share_of_the_run(recipe: str, part: Fraction) -> None:
    """Up to what the rate changes over three steps: the step looked at and the warm-up are rounded, and steps count
    from the end of the first."""
    training = RECIPES[recipe]()
    short = recipes.scaled(training, round(training.steps * part))
    assert short.steps == round(training.steps * part)
    coarser = min(training, short, key=lambda each: each.steps)
    for at in range(1, 21):
        whole, scaled = (each.lr(math.ceil(Fraction(at, 20) * each.steps)) for each in (training, short))
        assert abs(scaled - whole) <= 3 * steepest(coarser) * training.optimiser.lr * (1 + 1e-9)


def steepest(training: Training) -> float:
    """The largest change of the rate from one step to the next, as a share of the peak."""
    schedule, after = training.schedule, training.steps - training.schedule.warmup
    rising = 1 / schedule.warmup if schedule.warmup else 0.0
    falling = {"constant": 0.0, "linear": 1 / after, "cosine": math.pi / 2 / after}
    wsd = 1 / (schedule.decay * training.steps) if isinstance(schedule, WSD) else 0.0
    return max(rising, falling.get(schedule.kind, wsd))


def test_a_recipe_of_no_steps_and_what_changed_alone_would_make_of_a_warmup_are_refused() -> None:
    for steps in (0, -5, 2.5):
        with pytest.raises(SpecError, match="steps"):
            recipes.scaled(recipes.sink_60m(), steps)
    with pytest.raises(SpecError, match=r"the warm-up ends within training; got schedule.warmup 10000 of 1000 steps"):
        recipes.integral_125m().changed(steps=1000)
    assert recipes.scaled(recipes.integral_125m(), 1000).schedule.warmup == 749
