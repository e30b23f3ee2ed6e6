"""Laws of an operator inside a model: granularities, training and parameter counts."""

from functools import lru_cache

import torch

from variants.laws.inputs import fit, granularities_of
from variants.laws.law import Law, LawBroken, NothingStated, near, require
from variants.laws.tiny import LAYERS, attentions, model_of, own_heads, sequences, table, tiny
from variants.model.backbone import Backbone
from variants.model.transformer import Scalars, Transformer
from variants.number import Contrast, KeyVector, Matrix, Number, Vector
from variants.operator import Operator, head_shape
from variants.papers.baselines import softmax

_SEEDS = 12
_OF_LOGITS = ("preparation", "product", "transform", "forgetting", "margin", "gate", "normaliser")
"""Stages whose numbers act on logits only."""


def _shape(operator: Operator) -> tuple[int, int]:
    found = fit(operator)
    return found.heads, found.channels + operator.added_channels


def _granularity(operator: Operator) -> None:
    """Compare granularities without the noise that some numbers start with."""
    if not operator.numbers():
        raise NothingStated
    for name in operator.numbers():
        expected, coarsest, start = None, granularities_of(operator, name)[0][0], None
        for per, each in granularities_of(operator, name):
            model = model_of(each).eval()
            for attention in attentions(model):
                attention.qkv.weight.data *= 30  # numbers that act on logits matter,
                attention.out.weight.data *= 30  # and what attention gives is not small beside the rest
            start = _without_noise(model, each, name, start)
            came = model(sequences()).detach()
            if expected is None:
                expected = came
            words = f"{name} along {per or 'no axis'} against {coarsest or 'no axis'}"
            near(came, expected, words, rtol=1e-5, atol=1e-7)


def _without_noise(
    model: Transformer, operator: Operator, name: str, start: list[torch.Tensor] | None
) -> list[torch.Tensor] | None:
    """Remove noise from a number's tables; a matrix, which is all noise, keeps those of the coarsest granularity."""
    number = operator.numbers()[name]
    if not (number.trained and number.random):
        return start
    heads, query = _shape(operator)
    shape = head_shape(operator, heads=heads, query=query, value=fit(operator).channels, width=model.backbone.width)
    tables = [table(attention.numbers.table, name) for attention in attentions(model)]
    if isinstance(number, Matrix) and start is None:
        return [each.detach().clone() for each in tables]
    for layer, each in enumerate(tables):
        wanted = start[layer] if start is not None and isinstance(number, Matrix) else number.table(shape, layer)
        each.data.copy_(wanted.expand_as(each))
    return start


def _training(operator: Operator) -> None:
    """Check on large logits, with numbers near and far from their start, on both sides of thresholds."""
    if not operator.numbers():
        raise NothingStated
    for name in operator.numbers():
        for per, each in granularities_of(operator, name):
            if each.numbers()[name].trained:
                _require_gradients(each, name, f"{name} along {per or 'no axis'}")


def _require_gradients(operator: Operator, name: str, words: str) -> None:
    """Require a gradient for every layer's and head's entries of the number and of its projection."""
    left, deaf = None, _deaf(operator, name)
    for seed in range(_SEEDS):
        slopes = _slopes(operator, name, seed)
        without = {place for place, slope in slopes.items() if not slope > 0 and place[2] not in deaf}
        left = without if left is None else left & without
        if not left:
            return
    layer, what, head = min(left or ())
    raise LawBroken(f"expected a gradient, came none, in the {what} of layer {layer}, head {head}, for {words}")


def _deaf(operator: Operator, name: str) -> set[int]:
    """Return the heads with a constant score, if the number acts on logits only."""
    heads = fit(operator).heads
    of_ground = ("readout",) if operator.readout.needs_ground else ()
    if name.partition(".")[0] not in (*_OF_LOGITS, *of_ground):
        return set()
    return {head for head in range(heads) if operator.score.of_head(head, heads)[0].range == "constant"}


def _slopes(operator: Operator, name: str, seed: int) -> dict[tuple[int, str, int], float]:
    """Return the largest gradient by layer, "table" or "projection", and head."""
    model, made = model_of(operator), torch.Generator().manual_seed(seed)
    for attention in attentions(model):
        attention.qkv.weight.data *= (30, 5, 1, 1)[seed // 3]
        for each in attention.numbers.table.values():
            each.data += 0.5 * 4 ** (seed % 3) * torch.randn(each.shape, generator=made, dtype=torch.float64)
    model(sequences()).square().sum().backward()
    found = {}
    for layer, attention in enumerate(attentions(model)):
        own = table(attention.numbers.table, name)
        slope, heads = {"table": own.grad}, own.shape[1]
        if {"query", "token"} & set(operator.numbers()[name].per):
            slope["projection"] = table(attention.numbers.projection, name).grad
        for what, gradient in slope.items():
            for head in range(heads):
                one = None if gradient is None else gradient.reshape(heads, -1)[head]
                found[layer, what, head] = 0.0 if one is None else float(one.abs().max())
    return found


def _parameters(operator: Operator) -> None:
    variants = [operator, *(each for name in operator.numbers() for _, each in granularities_of(operator, name))]
    for each in variants:
        model = model_of(each)
        expected = sum(
            _size(each, name, model.backbone.width) for name, number in each.numbers().items() if number.trained
        )
        heads = fit(each).heads
        gates = 2 * heads * each.added_channels * LAYERS
        expected += gates * (model.backbone.width + (tiny(each).norm == "layer"))  # GPT-2 has biases, Llama-2 none
        pers = {name: number.per for name, number in each.numbers().items()}
        came = model.operator_parameters()
        require(came == expected, f"expected {expected} parameters of the operator, came {came}, for {pers}")
        added = sum(p.numel() for p in model.parameters()) - _plain(tiny(each))
        require(added == expected, f"expected {expected} parameters more than softmax has, came {added}, for {pers}")


@lru_cache(maxsize=256)
def _plain(backbone: Backbone) -> int:
    """Count the parameters of the same model with softmax."""
    model = Transformer(backbone, [softmax()] * LAYERS, inputs=Scalars(), seed=5)
    return sum(p.numel() for p in model.parameters())


def _size(operator: Operator, name: str, width: int) -> int:
    """Count the parameters of a trained number from its axes."""
    number, heads, (_, query) = operator.numbers()[name], len(own_heads(operator, name)), _shape(operator)
    layers = LAYERS if "layer" in number.per else 1
    entries = _entries(operator, number)
    size = layers * (heads if "head" in number.per else 1) * entries
    if "query" in number.per:
        size += layers * heads * query
    if "token" in number.per:
        size += layers * heads * entries * width
    return size


def _entries(operator: Operator, number: Number) -> int:
    """Count the entries of a number for one head and layer."""
    value = fit(operator).channels
    semantic = value - operator.split_channels
    signal = semantic // operator.signals.count
    if isinstance(number, Contrast):
        return 4 * signal if number.random else 1
    if isinstance(number, Matrix):
        return signal**2
    if isinstance(number, Vector):
        return semantic if isinstance(number, KeyVector) else value
    return 1


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
    Law(
        "training", "Every trained number receives a gradient in every layer and head, at every granularity.", _training
    ),
    Law("evaluation", "An evaluation changes nothing.", _evaluation),
    Law("parameters", "It has as many parameters as the axes of its numbers say.", _parameters),
)
