"""Laws of the start of numbers and of running means."""

import math
from statistics import fmean

import torch
from torch import Tensor

from ablate.variants.laws.inputs import LAYERS, attentions, fit, model_of, predict_numbers, table
from ablate.variants.laws.law import Law, NothingStated, near, require
from ablate.variants.model.attention import Attention
from ablate.variants.number import ByDepth, Contrast, Matrix, Number, RunningMean, Vector
from ablate.variants.operator import Operator
from ablate.variants.stages.forgetting import HeadDecay

_SEEDS = 8
_BATCH, _LENGTH = 3, 7


def _start(operator: Operator) -> None:
    numbers = operator.numbers()
    if not numbers:
        raise NothingStated
    drawn = [(name, "table") for name, number in numbers.items() if number.trained and number.random]
    drawn += [(name, "projection") for name, number in numbers.items() if number.projection_std]
    models = [attentions(model_of(operator, seed)) for seed in range(_SEEDS if drawn else 1)]
    _check_start(operator, models[0])
    for name, what in drawn:
        number = numbers[name]
        tables = [[table(getattr(each.numbers, what), name).detach() for each in layers] for layers in models]
        expected = number.projection_std if what == "projection" else _spread(number, tables[0][0])
        _check_spread(expected, tables, f"the {what} of {name}", layers=what == "projection" or "layer" in number.per)


def _check_start(operator: Operator, layers: list[Attention]) -> None:
    """Check that numbers without a random start have their stated value in each layer."""
    shape, width = fit(operator), layers[0].qkv.in_features
    query = torch.zeros(1, shape.heads, 1, shape.channels + operator.added_channels, dtype=torch.float64)
    x = torch.zeros(1, 1, width, dtype=torch.float64)
    for layer, attention in enumerate(layers):
        values = attention.eval().numbers.values(query, x)
        for name, number in operator.numbers().items():
            if not (number.trained and number.random):
                expected = torch.full_like(values[name], _init(number, layer))
                if isinstance(number, Vector) and number.along == "first":
                    expected[..., 1:] = 0
                if isinstance(number, HeadDecay):
                    expected = _shares(number, values[name])
                near(values[name], expected, f"{name} at the start, in layer {layer}", rtol=1e-5, atol=1e-6)


def _shares(number: HeadDecay, like: Tensor) -> Tensor:
    """Return shares whose decay times are a geometric series over heads."""
    first, last = (-1 / math.log(share) for share in (number.init, number.last))
    times = torch.tensor([first * (last / first) ** (h / (like.shape[1] - 1)) for h in range(like.shape[1])])
    return torch.exp(-1 / times).to(like).view(1, -1, 1, 1).expand_as(like)


def _init(number: Number, layer: int) -> float:
    if isinstance(number, ByDepth):
        return number.deep + (number.init - number.deep) * math.exp(-number.rate * layer)
    return number.init


def _spread(number: Number, drawn: Tensor) -> float:
    if isinstance(number, Matrix):
        return number.init / math.sqrt(drawn.shape[-1])
    assert isinstance(number, Vector | Contrast)
    return number.spread


def _check_spread(expected: float, tables: list[list[Tensor]], name: str, *, layers: bool) -> None:
    """Check the spread of a start by differences of two seeds; with `layers`, every layer has its own noise."""
    pairs = [a - b for one, two in zip(tables[::2], tables[1::2], strict=True) for a, b in zip(one, two, strict=True)]
    differences = torch.cat([pair.flatten() for pair in pairs])
    came = float(differences.square().mean().div(2).sqrt())
    unsure = 5 / math.sqrt(2 * len(differences))  # five standard errors of a standard deviation
    require(
        abs(came / expected - 1) < unsure,
        f"expected a spread of {expected:.4g} within {unsure:.0%}, came {came:.4g}, for the start of {name}",
    )
    if layers:
        same = all(torch.equal(one[0], one[layer]) for one in tables for layer in range(1, LAYERS))
        require(not same, f"expected noise of its own in every layer, came the same, for the start of {name}")


def _running_means(operator: Operator) -> None:
    """Check two training steps, with and without an averaged number predicted from the query or the token."""
    means = {name: number for name, number in operator.numbers().items() if isinstance(number, RunningMean)}
    if not means:
        raise NothingStated
    for each in (operator, predict_numbers(operator, "query"), predict_numbers(operator, "token")):
        numbers, made = attentions(model_of(each))[0].numbers, torch.Generator().manual_seed(9)
        for parameter in numbers.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=made, dtype=torch.float64))
        heads, channels = fit(each).heads, fit(each).channels
        sizes = (_BATCH, heads, _LENGTH, channels + each.added_channels), (_BATCH, _LENGTH, heads * channels)
        state = {name: [number.init] * heads for name, number in means.items()}
        for step in (1, 2):
            q, x = (torch.randn(size, generator=made, dtype=torch.float64) for size in sizes)
            values = numbers.eval().values(q, x)
            came = numbers.train().values(q, x)
            for name, number in means.items():
                averaged = values[f"{name.rpartition('.')[0]}.{number.of}"].expand(_BATCH, heads, _LENGTH, 1).tolist()
                for h in range(heads):
                    batch = fmean(value for sequence in averaged for (value,) in sequence[h])
                    state[name][h] = number.momentum * state[name][h] + (1 - number.momentum) * batch
                expected = torch.tensor(state[name], dtype=torch.float64)[None, :, None, None]
                near(came[name], expected, f"{name} in step {step} of training", rtol=1e-6)
                require(not came[name].requires_grad, f"expected no gradient, came one, through {name}")


LAWS = (
    Law("start", "Numbers start where they say at each layer, and what is drawn has the spread it says.", _start),
    Law("running means", "A running mean is the moving average that its number says, per head.", _running_means),
)
