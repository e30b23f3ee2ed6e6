"""Optimisers, schedules and the papers' recipes against their equations and sources."""

import inspect
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
import transformers
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.grid.path import value_at
from ablate.training.loop.flat_parameters import Flat
from ablate.training.loop.train import train
from ablate.training.optimisers import AdamW, Muon, ParameterVectors, Training, UncorrectedAdamW, recipes
from ablate.training.optimisers.schedules import WSD, Constant, Cosine, Linear
from ablate.training.tasks import Induction
from ablate.training.trial import Trial, build_model
from ablate.variants import Operator, Scalars, Transformer, catalogue, gpt2, llama2, principled, softmax
from ablate.variants.number import Matrix

SHAPES = ((5, 3), (3, 5), (5, 3), (4, 4), (1, 6))


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_gradient(values: Tensor, gradient: Tensor) -> nn.Parameter:
    vector = nn.Parameter(values.clone())
    vector.grad = gradient.clone()
    return vector


def newton_schulz(update: np.ndarray, rounds: int) -> np.ndarray:
    """X <- a X + (b A + c A A) X with A = X X^T, on the wide form."""
    if len(update) > len(update[0]):
        return newton_schulz(update.T, rounds).T
    x = update / np.sqrt((update**2).sum())
    for _ in range(rounds):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def muon_step(muon: Muon, weight: np.ndarray, momentum: np.ndarray, gradient: np.ndarray) -> tuple:
    """Weight and momentum after one step."""
    mu, (outputs, inputs) = muon.momentum, weight.shape
    size = 0.2 * math.sqrt(max(outputs, inputs)) if muon.scale == "rms" else math.sqrt(max(1, outputs / inputs))
    mean = mu * momentum + (1 - mu) * gradient
    ahead = mu * mean + (1 - mu) * gradient
    update = newton_schulz(ahead if muon.nesterov else mean, muon.rounds)
    return (1 - muon.lr * muon.weight_decay) * weight - muon.lr * size * update, mean


@pytest.mark.parametrize(
    "muon",
    [
        Muon(lr=0.1),
        Muon(lr=0.1, nesterov=False, weight_decay=0.3, scale="spectral", rounds=3, momentum=0.8),
        Muon(lr=0.1, momentum=0.0),
    ],
    ids=lambda muon: muon.scale + str(muon.momentum),
)
def test_steps_of_muon_are_those_of_its_equations(muon: Muon) -> None:
    """Three steps in float64, each at a rate of its own; a round makes an error up to 3.4445 times as large."""
    sizes = [outputs * inputs for outputs, inputs in SHAPES]

    def matrices(vector: Tensor) -> list[np.ndarray]:
        return [each.view(shape).numpy() for each, shape in zip(vector.split(sizes), SHAPES, strict=True)]

    vector = with_gradient(draws(sum(sizes)), draws(sum(sizes)))
    stepping = muon.build(ParameterVectors([], [with_gradient(draws(2), draws(2))], vector, SHAPES))
    states = [(weight, np.zeros_like(weight)) for weight in matrices(draws(sum(sizes)))]
    for step in range(3):
        gradient = draws(sum(sizes), seed=step)
        vector.grad.copy_(gradient)
        rate = muon.changed(lr=muon.lr / (1 + step))
        for group in stepping.param_groups:
            group["lr"] = rate.lr
        stepping.step()
        states = [muon_step(rate, *state, own) for state, own in zip(states, matrices(gradient), strict=True)]
        expected = np.concatenate([weight.flatten() for weight, _ in states])
        bound = 20 * np.finfo(float).eps * 3.4445**muon.rounds * abs(expected).max()
        assert abs(vector.detach().numpy() - expected).max() < bound


def test_muon_gets_the_layers_matrices_and_queries_keys_and_values_apart() -> None:
    model = llama2(layers=2, heads=2, width=8, feedforward_width=16).changed(kv_heads=1)
    trial = Trial(task=Induction(batch=4), model=model, operator=softmax(), training=Training(steps=4))
    layer = [(8, 8), (4, 8), (4, 8), (8, 8), (16, 8), (16, 8), (8, 16)]  # q, k, v, out, up, gate, down
    assert Flat(build_model(trial), by_matrix=True).weights.shapes == tuple(layer * 2)
    gated = build_model(trial.changed(operator=principled("query", gate_width=2)))
    assert Flat(gated, by_matrix=True).weights.shapes[4:6] == ((4, 8), (2, 8))  # its queries, its keys


def test_the_rest_follows_the_same_schedule_at_its_own_rate(tiny: Trial, memory: Callable) -> None:
    """With no rate to speak of for the rest, only the layers' matrices move."""
    optimiser = Muon(lr=1e-2, rest_lr=1e-30)
    trial = tiny.changed(training=Training(steps=2, optimiser=optimiser))
    world, before = memory(save_at=[2]), build_model(trial).state_dict()
    train(trial, world)
    assert world.logged[2]["learning_rate"] == 1e-2
    after = world.restore()[1]["model"]
    moved = {name for name, weight in after.items() if float((weight - before[name]).abs().max()) > 1e-9}
    matrices = ("attention.qkv", "attention.out", "feedforward.up", "feedforward.down")
    assert moved == {f"layers.{layer}.{name}.weight" for layer in (0, 1) for name in matrices}


def test_steps_of_uncorrected_adamw_are_those_of_its_equations() -> None:
    spec = UncorrectedAdamW(lr=0.1, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.2)
    decayed, kept = (with_gradient(draws(3, seed=seed), draws(3)) for seed in (1, 2))
    stepping = spec.build(ParameterVectors([decayed], [kept]))
    expected = {0.2: decayed.detach().tolist(), 0.0: kept.detach().tolist()}
    states = {(decay, at): (0.0, 0.0) for decay in expected for at in range(3)}
    for step in range(4):
        gradient, lr = draws(3, seed=10 + step), 0.1 / (1 + step)
        for vector in (decayed, kept):
            vector.grad = gradient.clone()
        for group in stepping.param_groups:
            group["lr"] = lr
        stepping.step()
        for (decay, at), (mean, square) in states.items():
            g = float(gradient[at])
            mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g**2
            moved = expected[decay][at] - lr * mean / (math.sqrt(square) + 1e-3)
            expected[decay][at], states[decay, at] = (1 - lr * decay) * moved, (mean, square)
        assert decayed.detach().tolist() == pytest.approx(expected[0.2], rel=1e-12)
        assert kept.detach().tolist() == pytest.approx(expected[0.0], rel=1e-12)


@pytest.mark.parametrize("name", catalogue())
def test_only_weight_matrices_and_embeddings_decay(name: str) -> None:
    """No number of any operator, no bias and no norm; a kernel's matrices and what predicts from the input do.

    Muon's matrices are those of the layers' projections, with queries, keys and values apart.
    """
    operator, backbone = catalogue()[name].make(), gpt2(layers=1, heads=4, width=32, max_positions=16)
    for by_matrix in (False, True):
        model = Transformer(backbone, [operator], inputs=Scalars(), seed=0)
        weights = Flat(model, by_matrix=by_matrix).weights
        spans = [span(vector) for vector in weights.kept]
        kept = {name for name, p in model.named_parameters() if any(low <= p.data_ptr() < end for low, end in spans)}
        assert kept == {name for name, _ in model.named_parameters() if not decays(name, operator)}
    linear = [each.weight for each in model.layers.modules() if isinstance(each, nn.Linear)]
    assert sum(outputs * inputs for outputs, inputs in weights.shapes) == weights.hidden.numel()
    assert sum(weight.numel() for weight in linear) == weights.hidden.numel()
    assert len(weights.shapes) >= len(linear) + 2


def span(vector: Tensor) -> tuple[int, int]:
    return vector.data_ptr(), vector.data_ptr() + vector.element_size() * vector.numel()


def decays(parameter: str, operator: Operator) -> bool:
    """By its name: layers.0.attention.numbers.table.score_n is a number, ...projection.score_n predicts one."""
    if ".numbers." in parameter:
        _, _, kept = parameter.partition(".numbers.")
        place, _, attribute = kept.partition(".")
        number = {name.replace(".", "_"): each for name, each in operator.numbers().items()}[attribute]
        return isinstance(number, Matrix) if place == "table" else "token" in number.per
    return parameter.endswith(".weight") and "norm" not in parameter


@pytest.mark.parametrize(("warmup", "steps"), [(0, 7), (3, 8), (7, 63)])
def test_a_line_is_that_of_transformers_but_for_the_warmup_which_is_one_step_ahead(warmup: int, steps: int) -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = transformers.get_linear_schedule_with_warmup(optimiser, warmup, steps).lr_lambdas[0]
    ours = [Linear(warmup=warmup).factor(step, steps) for step in range(steps)]
    assert ours == pytest.approx([theirs(step + (step < warmup)) for step in range(steps)])


@pytest.mark.parametrize("shape", ["linear", "cosine", "1-sqrt"])
@pytest.mark.parametrize(("decay", "floor"), [(0.25, 0.0), (0.8, 0.1), (0.0, 0.0)])
def test_the_decay_of_wsd_has_the_shape_of_transformers(shape: str, decay: float, floor: float) -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = transformers.get_wsd_schedule(
        optimiser, 7, round(100 * decay), num_training_steps=100, decay_type=shape, min_lr_ratio=floor
    ).lr_lambdas[0]
    ours = WSD.model_validate({"warmup": 7, "decay": decay, "floor": floor, "shape": shape})
    steps = range(7, 100)
    assert [ours.factor(step, 100) for step in steps] == pytest.approx([theirs(step) for step in steps])
    assert ("shape" in ours.canonical) == (shape != "linear")


def test_a_warmup_that_does_not_end_in_time_is_refused() -> None:
    fits = Training(steps=110, schedule=WSD(warmup=88, decay=0.2))
    assert [fits.schedule.factor(step, 110) for step in (87, 88, 99)] == [1, 1, 0.5]
    with pytest.raises(ValidationError, match=r"warmup 89 does not end before the decay of 22 steps"):
        Training(steps=110, schedule=WSD(warmup=89, decay=0.2))
    Training(steps=110, schedule=WSD(warmup=110, decay=0))
    with pytest.raises(ValidationError, match=r"warmup 11 is more than the 10 steps"):
        Training(steps=10, schedule=Cosine(warmup=11))
    Training(steps=10, schedule=Cosine(warmup=10)).lr(10)
    training = Training(steps=100, optimiser=AdamW(lr=0.5), schedule=Constant(warmup=4))
    assert [training.lr(step) for step in range(1, 6)] == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5])


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
    with pytest.raises(SpecError, match=r"schedule.warmup 10000 is more than the 1000 steps"):
        recipes.integral_125m().changed(steps=1000)
    assert recipes.scaled(recipes.integral_125m(), 1000).schedule.warmup == 749
