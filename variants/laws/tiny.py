"""The smallest models that fit an operator, for laws of an operator inside a model."""

from typing import cast

import torch
from torch import Tensor

from grid.errors import SpecError
from variants.laws.inputs import fit, with_number
from variants.model.backbone import Backbone, gpt2, llama2
from variants.model.block import Attention, Block
from variants.model.transformer import Scalars, Transformer
from variants.operator import Operator

LAYERS, LENGTH = 2, 11


def tiny(operator: Operator) -> Backbone:
    """Build the smallest backbone of two layers that fits the operator."""
    found = fit(operator)
    width, heads = found.heads * found.channels, found.heads * operator.merge.heads_joined
    if found.rotary:
        return llama2(layers=LAYERS, heads=heads, width=width, feedforward_width=8)
    return gpt2(layers=LAYERS, heads=heads, width=width, max_positions=16)


def model_of(operator: Operator, seed: int = 5) -> Transformer:
    """Build a float64 model at step 0 with the operator in both layers."""
    return Transformer(tiny(operator), [operator] * LAYERS, inputs=Scalars(), seed=seed).double()


def sequences() -> Tensor:
    """Draw three sequences [3, T, 1]."""
    return torch.randn(3, LENGTH, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def attentions(model: Transformer) -> list[Attention]:
    """List the attention of every layer, bottom first."""
    return [cast(Block, layer).attention for layer in model.layers]


def table(tables: torch.nn.ParameterDict, name: str) -> torch.nn.Parameter:
    """Return the parameter of the number "stage.field"."""
    found = tables[name.replace(".", "_")]
    assert isinstance(found, torch.nn.Parameter)
    return found


def predict_numbers(operator: Operator, axis: str) -> Operator:
    """Return the operator with every number along the axis "query" or "token" if the number can be."""
    for name, number in operator.numbers().items():
        try:
            operator = with_number(operator, name, number.at(("layer", "head", axis)))  # type: ignore[arg-type]
        except SpecError:
            continue
    return operator


def own_heads(operator: Operator, name: str) -> list[int]:
    """List the heads that the number "stage.field" is for: all, or those of one part of a score."""
    stage, _, field = name.partition(".")
    heads, score = range(fit(operator).heads), operator.score
    return [h for h in heads if stage != "score" or field.startswith(score.of_head(h, len(heads))[1])]
