"""Laws of an operator inside a model: granularities, training and parameter counts."""

import torch

from ablate.variants.laws.inputs import (
    LAYERS,
    attentions,
    fit,
    granularity_levels,
    model_of,
    own_heads,
    sequences,
    table,
)
from ablate.variants.laws.law import Law, LawBroken, NothingStated, near, require
from ablate.variants.model.transformer import Transformer
from ablate.variants.number import Contrast, KeyVector, Matrix, Vector
from ablate.variants.operator import Operator, head_shape

_SEEDS = 12
_OF_LOGITS = ("preparation", "product", "transform", "forgetting", "margin", "gate", "normaliser")
"""Stages whose numbers act on logits only."""


def _granularity(operator: Operator) -> None:
    """Compare granularities without the noise that some numbers start with."""
    if not operator.numbers():
        raise NothingStated
    expected, start = None, dict[str, list[torch.Tensor]]()
    for each in granularity_levels(operator):
        model = model_of(each).eval()
        for attention in attentions(model):
            attention.qkv.weight.data *= 30  # numbers that act on logits matter,
            attention.out.weight.data *= 30  # and the output of attention is large enough
        for name in each.numbers():
            _remove_noise(model, each, name, start)
        came = model(sequences()).detach()
        expected = came if expected is None else expected
        near(came, expected, f"{_granularities(each)} against the coarsest granularity", rtol=1e-5, atol=1e-7)


def _granularities(operator: Operator) -> str:
    return ", ".join(f"{name} along {number.per or 'no axis'}" for name, number in operator.numbers().items())


def _remove_noise(model: Transformer, operator: Operator, name: str, start: dict[str, list[torch.Tensor]]) -> None:
    """Remove noise from a number's start; a matrix, which is all noise, keeps that of the coarsest granularity."""
    number = operator.numbers()[name]
    if number.projection_std:
        for attention in attentions(model):
            table(attention.numbers.projection, name).data.zero_()
    if not (number.trained and number.random):
        return
    heads, channels, _ = fit(operator)
    query, width = channels + operator.added_channels, model.backbone.width
    shape = head_shape(operator, heads=heads, query=query, value=channels, width=width)
    tables = [attention.numbers.raw_table(name).data for attention in attentions(model)]
    if isinstance(number, Matrix):
        wanted = start.setdefault(name, [each.clone() for each in tables])
    else:
        wanted = [number.table(shape, layer) for layer in range(len(tables))]
    for each, value in zip(tables, wanted, strict=True):
        each.copy_(value.expand_as(each))


def _training(operator: Operator) -> None:
    """Check on large logits, with numbers near and far from their start, on both sides of thresholds."""
    if not operator.numbers():
        raise NothingStated
    for each in granularity_levels(operator):
        if any(number.trained for number in each.numbers().values()):
            _require_gradients(each)


def _require_gradients(operator: Operator) -> None:
    """Require a gradient for every layer's and head's entries of every number and of its projection."""
    left, deaf = None, {name: _deaf(operator, name) for name in operator.numbers()}
    for seed in range(_SEEDS):
        slopes = _slopes(operator, seed)
        without = {place for place, slope in slopes.items() if not slope > 0 and place[3] not in deaf[place[0]]}
        left = without if left is None else left & without
        if not left:
            return
    name, layer, what, head = min(left or ())
    words = f"{name} along {operator.numbers()[name].per or 'no axis'}"
    raise LawBroken(f"expected a gradient, came none, in the {what} of layer {layer}, head {head}, for {words}")


def _deaf(operator: Operator, name: str) -> set[int]:
    """Return the heads with a constant score, if the number acts on logits only."""
    heads = fit(operator).heads
    of_ground = ("readout",) if operator.readout.needs_ground else ()
    if name.partition(".")[0] not in (*_OF_LOGITS, *of_ground):
        return set()
    return {head for head in range(heads) if operator.score.of_head(head, heads)[0].range == "constant"}


def _slopes(operator: Operator, seed: int) -> dict[tuple[str, int, str, int], float]:
    """Return the largest gradient by number, layer, "table" or "projection", and head."""
    model, made = model_of(operator), torch.Generator().manual_seed(seed)
    for attention in attentions(model):
        attention.qkv.weight.data *= (30, 5, 1, 1)[seed // 3]
        for each in attention.numbers.table.values():
            each.data += 0.5 * 4 ** (seed % 3) * torch.randn(each.shape, generator=made, dtype=torch.float64)
    model(sequences()).square().sum().backward()
    slopes = dict[tuple[str, int, str, int], float]()
    for name, number in operator.numbers().items():
        for layer, attention in enumerate(attentions(model) if number.trained else ()):
            own = table(attention.numbers.table, name)
            gradients, heads = {"table": own.grad}, attention.numbers.raw_table(name).shape[1]
            if number.predicted:
                gradients["projection"] = table(attention.numbers.projection, name).grad
            for what, gradient in gradients.items():
                sizes = [0.0] * heads if gradient is None else gradient.reshape(heads, -1).abs().amax(1).tolist()
                slopes.update({(name, layer, what, head): size for head, size in enumerate(sizes)})
    return slopes


def _parameters(operator: Operator) -> None:
    for each in dict.fromkeys((operator, *granularity_levels(operator))):
        model = model_of(each)
        width = model.backbone.width
        expected = sum(_size(each, name, width) for name, number in each.numbers().items() if number.trained)
        gates = 2 * fit(each).heads * each.added_channels * LAYERS
        expected += gates * (width + (model.backbone.norm == "layer"))  # GPT-2 has biases, Llama-2 none
        came, words = model.operator_parameters(), _granularities(each)
        require(came == expected, f"expected {expected} parameters more than softmax has, came {came}, for {words}")


def _size(operator: Operator, name: str, width: int) -> int:
    number, heads, value = operator.numbers()[name], len(own_heads(operator, name)), fit(operator).channels
    semantic = value - operator.split_channels
    signal, entries = semantic // operator.signals.count, 1
    if isinstance(number, Contrast):
        entries = 4 * signal if number.random else 1
    elif isinstance(number, Matrix):
        entries = signal**2
    elif isinstance(number, Vector):
        entries = semantic if isinstance(number, KeyVector) else value
    layers = LAYERS if "layer" in number.per else 1
    size = layers * (heads if "head" in number.per else 1) * entries if number.bias else 0
    if "query" in number.per:
        size += layers * heads * (value + operator.added_channels)
    if "token" in number.per:
        size += layers * heads * entries * width
    return size


def _evaluation(operator: Operator) -> None:
    """Check after a training step, which moves running means."""
    model = model_of(operator)
    model(sequences())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (model.eval()(sequences()).detach() for _ in range(2))
    near(second, first, "a second evaluation of a model")
    for name, value in model.state_dict().items():
        near(value, state[name], f"{name} after two evaluations")


LAWS = (
    Law("granularity", "At step 0 every granularity of every number computes the same function.", _granularity),
    Law("training", "Every trained number has a gradient in every layer and head, at every granularity.", _training),
    Law("evaluation", "An evaluation changes nothing.", _evaluation),
    Law("parameters", "It has as many parameters as the axes of its numbers say.", _parameters),
)
