"""The papers' recipes, number by number, with the place each is read from; and how they are made longer or shorter."""

import inspect
import math
from fractions import Fraction

import pytest

from grid.errors import SpecError
from grid.path import value_at
from runners.optimisers import Training, recipes
from runners.optimisers.schedules import WSD, Cosine, Linear, Schedule

RECIPES = {
    name: make
    for name, make in inspect.getmembers(recipes, inspect.isfunction)
    if make.__module__ == recipes.__name__ and name != "scaled"
}

PRINTED = [
    ("affine_scaled", "steps", 9000, "000 B.1"),
    ("affine_scaled", "optimiser.lr", 1e-3, "000 5.1"),
    ("affine_scaled", "optimiser.weight_decay", 0.1, "000 5.1 and B.1"),
    ("affine_scaled", "schedule.kind", "wsd", "000 B.1"),
    ("affine_scaled", "schedule.warmup", 100, "000 B.1"),
    ("integral_125m", "optimiser.lr", 3e-4, "002 A.3"),
    ("integral_125m", "schedule.warmup", 10_000, "002 A.3"),
    ("integral_125m", "precision", "bfloat16", "002 A.3, mixed precision"),
    ("integral_1200m", "optimiser.lr", 3e-4, "002 A.3"),
    ("integral_1200m", "schedule.warmup", 10_000, "002 A.3"),
    ("scaled_signed_averaging_in_context", "steps", 500_000, "003 A.1"),
    ("scaled_signed_averaging_in_context", "optimiser.lr", 1e-4, "003 A.1"),
    ("scaled_signed_averaging_in_context", "optimiser.weight_decay", 0.0, "003 A.1, Adam"),
    ("scaled_signed_averaging_in_context", "schedule.kind", "constant", "003 A.1, for all models"),
    ("scaled_signed_averaging_gpt2", "steps", 50_000, "003 A.2"),
    ("scaled_signed_averaging_gpt2", "optimiser.lr", 6e-4, "003 A.2"),
    ("scaled_signed_averaging_gpt2", "optimiser.betas", (0.9, 0.95), "003 A.2"),
    ("scaled_signed_averaging_gpt2", "optimiser.weight_decay", 0.1, "003 A.2"),
    ("scaled_signed_averaging_gpt2", "schedule.kind", "cosine", "003 A.2"),
    ("scaled_signed_averaging_gpt2", "schedule.warmup", 2000, "nanoGPT"),
    ("babyberta", "optimiser.kind", "uncorrected_adamw", "BabyBERTa job.py, correct_bias=False"),
    ("babyberta", "optimiser.lr", 1e-4, "BabyBERTa params.py"),
    ("babyberta", "optimiser.eps", 1e-6, "transformers 4.3"),
    ("babyberta", "optimiser.weight_decay", 0.0, "BabyBERTa params.py"),
    ("babyberta", "schedule.kind", "linear", "BabyBERTa job.py"),
    ("babyberta", "schedule.warmup", 24_000, "BabyBERTa params.py"),
    ("babyberta", "schedule.floor", 0.0, "BabyBERTa job.py"),
    ("babyberta", "clip", 1.0, "BabyBERTa job.py"),
    ("babyberta", "steps", 260_000, "BabyBERTa configs.py"),
    ("sink_60m", "steps", 20_000, "004 4"),
    ("sink_60m", "optimiser.lr", 4e-4, "004 4"),
    ("sink_60m", "optimiser.weight_decay", 0.1, "004 4"),
    ("sink_60m", "optimiser.betas", (0.9, 0.95), "004 pretrain/tinyllama.py"),
    ("sink_60m", "schedule.kind", "constant", "004 configs/tinyllama_60m.yaml, min_lr = learning_rate"),
    ("sink_60m", "schedule.warmup", 100, "004 4"),
    ("sink_60m", "clip", 1.0, "004 pretrain/tinyllama.py"),
    ("sink_1b", "steps", 40_000, "004 configs/tinyllama_1b.yaml"),
    ("sink_1b", "schedule.warmup", 100, "004 configs/tinyllama_1b.yaml"),
    ("nanogpt", "steps", 600_000, "nanoGPT config/train_gpt2.py"),
    ("nanogpt", "optimiser.betas", (0.9, 0.95), "nanoGPT train.py"),
    ("nanogpt", "schedule.warmup", 2000, "nanoGPT train.py"),
    ("nanogpt", "clip", 1.0, "nanoGPT train.py"),
]


@pytest.mark.parametrize(("recipe", "path", "value", "source"), PRINTED)
def test_a_recipe_has_the_numbers_of_its_source(recipe: str, path: str, value: object, source: str) -> None:
    assert value_at(RECIPES[recipe](), path) == value, source


@pytest.mark.parametrize(
    ("recipe", "tokens", "batch"),
    [("integral_125m", 28 * 10**9, 16 * 8 * 8 * 2048), ("integral_1200m", 128 * 10**9, 4 * 8 * 32 * 2048)],
)
def test_steps_that_a_paper_says_as_tokens_are_whole_batches_of_them(recipe: str, tokens: int, batch: int) -> None:
    """002 A.3: sequences of a GPU, GPUs, micro-batches, tokens of a sequence."""
    assert RECIPES[recipe]().steps == tokens // batch


@pytest.mark.parametrize(("recipe", "lowest"), [("scaled_signed_averaging_gpt2", 6e-5), ("nanogpt", 6e-5)])
def test_a_cosine_ends_at_the_rate_that_its_source_gives(recipe: str, lowest: float) -> None:
    training = RECIPES[recipe]()
    end = training.optimiser.lr * training.schedule.after_warmup(training.steps, training.steps)
    assert end == pytest.approx(lowest)


def test_every_recipe_is_pinned_and_says_its_batch() -> None:
    assert {recipe for recipe, *_ in PRINTED} == set(RECIPES)
    for make in RECIPES.values():
        assert isinstance(make(), Training)
        assert any(word in str(make.__doc__) for word in ("sequences", "sentences", "`sink_60m`"))


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


@pytest.mark.parametrize("schedule", [Cosine(warmup=100), Linear(warmup=100), WSD(warmup=100), Cosine()], ids=str)
def test_a_scaled_warmup_is_never_lost_and_never_invented(schedule: Schedule) -> None:
    training = Training(steps=1000, schedule=schedule, evaluate_every=100)
    for steps, warmup, every in ((1000, 100, 100), (10, 1, 1), (3, 1, 1), (5000, 500, 500), (15, 2, 2)):
        found = recipes.scaled(training, steps)
        assert found.schedule.warmup == (warmup if schedule.warmup else 0)
        assert found.evaluate_every == every
        assert type(found.schedule) is type(schedule)
    assert recipes.scaled(training, 1000) == training


def test_a_scaled_warmup_ends_before_the_decay_that_rounding_would_have_it_meet() -> None:
    training = Training(steps=1000, schedule=WSD(warmup=100, decay=0.9))
    assert [recipes.scaled(training, steps).schedule.warmup for steps in (10, 15, 55)] == [1, 1, 5]
    for steps in range(2, 200):
        assert recipes.scaled(recipes.affine_scaled(), steps).schedule.warmup == max(1, round(steps / 90))
    with pytest.raises(SpecError, match=r"schedule.warmup 1 must end before the decay of 4 steps"):
        recipes.scaled(training, 4)


@pytest.mark.parametrize("steps", [0, -5, 2.5])
def test_a_recipe_of_no_steps_is_refused(steps: float) -> None:
    with pytest.raises(SpecError, match="steps"):
        recipes.scaled(recipes.sink_60m(), steps)


def test_what_changed_alone_would_make_of_a_warmup_is_refused() -> None:
    with pytest.raises(SpecError, match=r"the warm-up ends within training; got schedule.warmup 10000 of 1000 steps"):
        recipes.integral_125m().changed(steps=1000)
    assert recipes.scaled(recipes.integral_125m(), 1000).schedule.warmup == 749
