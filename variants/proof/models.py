"""Laws of an operator inside a model: granularities, training, and what is counted as its parameters."""

from typing import cast

import torch
from torch import Tensor

from variants.backbone import Backbone, gpt2, llama2
from variants.block import Attention, Block
from variants.number import Contrast, KeyVector, Matrix, Number, Vector
from variants.operator import Operator, head_shape
from variants.papers.baselines import softmax
from variants.proof.inputs import fit, refined
from variants.proof.law import Law, LawBroken, near, require
from variants.transformer import Scalars, Transformer

_LAYERS, _LENGTH = 2, 11


def tiny(operator: Operator) -> Backbone:
    """The smallest backbone of two layers that carries it."""
    found = fit(operator)
    width, heads = found.heads * found.channels, found.heads * operator.merge.heads_joined
    if found.rotary:
        return llama2(layers=_LAYERS, heads=heads, width=width, feedforward_width=8)
    return gpt2(layers=_LAYERS, heads=heads, width=width, max_positions=16)


def _model(operator: Operator) -> Transformer:
    return Transformer(tiny(operator), [operator] * _LAYERS, inputs=Scalars(), seed=5).double()


def _x() -> Tensor:
    return torch.randn(3, _LENGTH, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def _shape(operator: Operator) -> tuple[int, int]:
    found = fit(operator)
    return found.heads, found.channels + operator.added_channels


def _granularity(operator: Operator) -> None:
    """Without the noise that some numbers start with: their tables as they are before it is drawn."""
    for name in operator.numbers():
        expected, coarsest, start = None, refined(operator, name)[0][0], None
        for per, each in refined(operator, name):
            model = _model(each).eval()
            start = _without_noise(model, each, name, start)
            came = model(_x()).detach()
            if expected is None:
                expected = came
            words = f"{name} along {per or 'no axis'} against {coarsest or 'no axis'}"
            near(came, expected, words, rtol=1e-5, atol=1e-7)


def _without_noise(
    model: Transformer, operator: Operator, name: str, start: list[Tensor] | None
) -> list[Tensor] | None:
    """Of a matrix, which is all noise, the tables of the coarsest granularity everywhere."""
    number = operator.numbers()[name]
    if not (number.trained and number.random):
        return start
    heads, query = _shape(operator)
    shape = head_shape(operator, heads=heads, query=query, value=fit(operator).channels, width=model.backbone.width)
    tables = [_table(attention.numbers.table, name) for attention in _attentions(model)]
    if isinstance(number, Matrix) and start is None:
        return [table.detach().clone() for table in tables]
    for layer, table in enumerate(tables):
        wanted = start[layer] if start is not None and isinstance(number, Matrix) else number.table(shape, layer)
        table.data.copy_(wanted.expand_as(table))
    return start


def _table(tables: torch.nn.ParameterDict, name: str) -> torch.nn.Parameter:
    found = tables[name.replace(".", "_")]
    assert isinstance(found, torch.nn.Parameter)
    return found


def _trained(operator: Operator) -> None:
    """On large logits, with numbers near to and far from where they start: on both sides of thresholds."""
    for name in operator.numbers():
        for per, each in refined(operator, name):
            if each.numbers()[name].trained and not any(_receives(each, name, seed) for seed in range(3)):
                raise LawBroken(f"expected a gradient in every layer, came none, for {name} along {per or 'no axis'}")


def _receives(operator: Operator, name: str, seed: int) -> bool:
    """Whether the number, and its projection where it has one, has a gradient in every layer."""
    model, made = _model(operator), torch.Generator().manual_seed(seed)
    for attention in _attentions(model):
        attention.qkv.weight.data *= 30
        for table in attention.numbers.table.values():
            table.data += 0.5 * 4**seed * torch.randn(table.shape, generator=made, dtype=torch.float64)
    model(_x()).square().sum().backward()
    numbers = [attention.numbers for attention in _attentions(model)]
    parameters = [_table(each.table, name) for each in numbers]
    if {"query", "token"} & set(operator.numbers()[name].per):
        parameters += [_table(each.projection, name) for each in numbers]
    return all(each.grad is not None and bool(each.grad.abs().max() > 0) for each in parameters)


def _attentions(model: Transformer) -> list[Attention]:
    return [cast(Block, layer).attention for layer in model.layers]


def _parameters(operator: Operator) -> None:
    variants = [operator, *(each for name in operator.numbers() for _, each in refined(operator, name))]
    for each in variants:
        model = _model(each)
        expected = sum(
            _size(each, number, model.backbone.width) for number in each.numbers().values() if number.trained
        )
        heads = fit(each).heads
        gates = 2 * heads * each.added_channels * _LAYERS
        expected += gates * (model.backbone.width + (tiny(each).norm == "layer"))  # GPT-2 has biases, Llama-2 none
        pers = {name: number.per for name, number in each.numbers().items()}
        came = model.operator_parameters()
        require(came == expected, f"expected {expected} parameters of the operator, came {came}, for {pers}")
        own = sum(p.numel() for p in model.parameters())
        plain = Transformer(tiny(each), [softmax()] * _LAYERS, inputs=Scalars(), seed=5)
        added = own - sum(p.numel() for p in plain.parameters())
        require(added == expected, f"expected {expected} parameters more than softmax has, came {added}, for {pers}")


def _size(operator: Operator, number: Number, width: int) -> int:
    """How many parameters a trained number is, by what its axes say."""
    heads, query = _shape(operator)
    layers = _LAYERS if "layer" in number.per else 1
    entries = _entries(operator, number)
    size = layers * (heads if "head" in number.per else 1) * entries
    if "query" in number.per:
        size += layers * heads * query
    if "token" in number.per:
        size += layers * heads * entries * width
    return size


def _entries(operator: Operator, number: Number) -> int:
    """How many entries a number has: of one head, one layer."""
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
    """After a step of training, which moves what is averaged over steps."""
    model = _model(operator)
    model(_x())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (model.eval()(_x()).detach() for _ in range(2))
    near(second, first, "a second evaluation of a model")
    for name, value in model.state_dict().items():
        near(value, state[name], f"{name} after two evaluations")


LAWS = (
    Law("granularity", "At step 0 every granularity of every number computes the same function.", _granularity),
    Law("training", "Every trained number receives a gradient, at every granularity.", _trained),
    Law("evaluation", "An evaluation changes nothing.", _evaluation),
    Law("parameters", "It has as many parameters as the axes of its numbers say.", _parameters),
)
