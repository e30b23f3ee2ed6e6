"""Inputs of the laws: the smallest heads and models that fit an operator, and random values for its numbers."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants.attend import AttentionOutput, attend
from ablate.variants.granularity import Axis
from ablate.variants.model.attention import Attention
from ablate.variants.model.backbone import Backbone, gpt2, llama2
from ablate.variants.model.transformer import Scalars, Transformer
from ablate.variants.number import HeadShape, Matrix, Number
from ablate.variants.operator import NumberValues, Operator, head_shape
from ablate.variants.stages.positions import NoPositions, Rotary

LAYERS, LENGTH = 2, 11
"""Layers and tokens of the models."""
_WIDTHS = (8, 16, 24, 32, 48, 64, 96, 128)
_HEADS = (2, 4, 3, 6, 8, 12, 16)


class InputFit(NamedTuple):
    """Heads that fit an operator."""

    heads: int
    """Heads of the operator; fewer than the model's if it joins some."""
    channels: int
    """Channels of a value, and of a query without the gate's added channels."""
    rotary: bool
    """True if the operator is valid only with rotary positions."""


@lru_cache(maxsize=4096)
def fit(operator: Operator) -> InputFit:
    """Find the smallest heads that fit `operator`; SpecError if none of up to 128 channels do."""
    joined, reason = operator.merge.heads_joined, ""
    for width in _WIDTHS:
        for heads in _HEADS:
            for positions in (NoPositions(), Rotary()):
                try:
                    operator.check(heads=heads * joined, kv_heads=heads * joined, head_width=width, positions=positions)
                except ValueError as error:
                    reason = reason or str(error)
                else:
                    return InputFit(heads, width * joined, positions.rotates)
    raise SpecError(f"no heads of up to {_WIDTHS[-1]} channels carry {operator.label!r}: {reason}")


def with_number(operator: Operator, name: str, number: Number) -> Operator:
    """Return the operator with another number at "stage.field"; SpecError if it refuses that."""
    stage, _, field = name.partition(".")
    choice = getattr(operator, stage)
    part, _, inner = field.partition(".")
    if not inner:
        return operator.changed(**{stage: choice.changed(**{field: number})})
    for several in type(choice).model_fields:  # a number of one of a choice's parts, "score.0.n"
        parts = getattr(choice, several)
        if isinstance(parts, tuple) and part.isdigit() and int(part) < len(parts):
            changed = (*parts[: int(part)], parts[int(part)].changed(**{inner: number}), *parts[int(part) + 1 :])
            return operator.changed(**{stage: choice.changed(**{several: changed})})
    raise SpecError(f"{operator.label!r} has no number {name!r}; it has {', '.join(operator.numbers())}")


@lru_cache(maxsize=4096)
def granularities_of(operator: Operator, name: str) -> tuple[tuple[tuple[Axis, ...], Operator], ...]:
    """Return the operator with its number `name` at every granularity it accepts, coarse to fine."""
    number, options = operator.numbers()[name], []
    for per in number.allowed:
        try:
            options.append((per, with_number(operator, name, number.at(per))))
        except SpecError:
            continue
    return tuple(sorted(options, key=lambda item: len(item[0])))


@lru_cache(maxsize=4096)
def granularity_levels(operator: Operator) -> tuple[Operator, ...]:
    """List the operator with its numbers from coarsest to finest; those that do not combine follow one by one."""
    choices = {name: granularities_of(operator, name) for name in operator.numbers()}
    levels, missing = list[Operator](), {(name, per) for name, options in choices.items() for per, _ in options}
    for level in range(max(map(len, choices.values()), default=0)):
        refined = operator
        for name, options in choices.items():
            number = options[min(level, len(options) - 1)][1].numbers()[name]
            try:
                refined = with_number(refined, name, number)
            except SpecError:
                continue
        missing -= {(name, number.per) for name, number in refined.numbers().items()}
        levels.append(refined)
    levels += [each for name, options in choices.items() for per, each in options if (name, per) in missing]
    return tuple(levels)


class Inputs(NamedTuple):
    """Queries, keys, values and an operator's numbers in float64."""

    q: Float[Tensor, "batch heads tokens channels"]
    k: Float[Tensor, "batch heads tokens channels"]
    v: Float[Tensor, "batch heads tokens values"]
    numbers: dict[str, Tensor]

    def attend(
        self, operator: Operator, numbers: NumberValues | None = None, mask: Tensor | None = None
    ) -> AttentionOutput:
        """Compute the definition, with these numbers unless others are passed."""
        width = self.q.shape[-1] - operator.added_channels
        numbers = self.numbers if numbers is None else numbers
        return attend(operator, self.q, self.k, self.v, mask=mask, numbers=numbers, head_width=width)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        numbers = {name: change(value) for name, value in self.numbers.items()}
        return Inputs(change(self.q), change(self.k), change(self.v), numbers)

    def heads(self, *, chosen: list[int]) -> "Inputs":
        return self.map(lambda x: x[:, chosen] if x.shape[1] > 1 else x)

    def batch(self, *, chosen: list[int]) -> "Inputs":
        return self.map(lambda x: x[chosen] if x.shape[0] > 1 else x)

    def prefix(self, length: int) -> "Inputs":
        return self.map(lambda x: x[:, :, :length] if x.shape[2] == self.q.shape[2] else x)

    def to(self, dtype: torch.dtype) -> "Inputs":
        return self.map(lambda x: x.to(dtype))

    def following(self) -> "Inputs":
        """Copy all tensors with gradients recorded."""
        return self.map(lambda x: x.detach().clone().requires_grad_())

    def tensors(self) -> dict[str, Tensor]:
        return {"q": self.q, "k": self.k, "v": self.v, **self.numbers}

    def replace(self, changed: Mapping[str, Tensor]) -> "Inputs":
        q, k, v, *numbers = {**self.tensors(), **changed}.values()
        return Inputs(q, k, v, dict(zip(self.numbers, numbers, strict=True)))

    def join(self, other: "Inputs", after: int) -> "Inputs":
        """Join these inputs up to position `after` with `other` from there on, numbers of every token too."""
        mine = {name: x for name, x in self.tensors().items() if x.shape[2] == self.q.shape[2]}
        others = other.tensors()
        return self.replace({n: torch.cat((x[:, :, :after], others[n][:, :, after:]), 2) for n, x in mine.items()})


def random_inputs(
    operator: Operator,
    *,
    batch: int = 2,
    fitted: InputFit | None = None,
    length: int = 13,
    seed: int = 0,
    scale: float = 1.0,
) -> Inputs:
    """Draw standard normal q, k (times `scale`) and v, and numbers away from their start, as fine as they can be."""
    made = torch.Generator().manual_seed(seed)
    heads, value, _ = fit(operator) if fitted is None else fitted
    query = value + operator.added_channels
    q, k, v = (
        torch.randn((batch, heads, length, size), generator=made, dtype=torch.float64) for size in (query, query, value)
    )
    shape = head_shape(operator, heads=heads, query=query, value=value, width=1)
    numbers = {}
    for name, number in operator.numbers().items():
        finest = granularities_of(operator, name)[-1][0] if granularities_of(operator, name) else number.per
        numbers[name] = _draw(number, finest, shape, (batch, length), made)
    return Inputs(q * scale, k * scale, v, numbers)


def _draw(
    number: Number, finest: tuple[Axis, ...], shape: HeadShape, tokens: tuple[int, int], made: torch.Generator
) -> Tensor:
    at = number.at(finest) if finest != number.per else number
    raw = at.table(shape, 0).double() if at.trained else at.fixed_value(shape, 0).double()
    raw = raw.expand(1, shape.heads, *raw.shape[2:])
    if {"query", "token"} & set(finest):
        raw = raw.expand(tokens[0], -1, tokens[1], -1)
    spread = 0.3 if isinstance(number, Matrix) else 0.5
    raw = raw + spread * torch.randn(raw.shape, generator=made, dtype=torch.float64)
    return at.value(raw, 0) if at.trained else raw


def tiny(operator: Operator) -> Backbone:
    """Build the smallest backbone of two layers that fits the operator."""
    shape = fit(operator)
    width, heads = shape.heads * shape.channels, shape.heads * operator.merge.heads_joined
    if shape.rotary:
        return llama2(layers=LAYERS, heads=heads, width=width, feedforward_width=8)
    return gpt2(layers=LAYERS, heads=heads, width=width, max_positions=16)


def model_of(operator: Operator, seed: int = 5) -> Transformer:
    """Build a float64 model at step 0 with the operator in both layers."""
    return Transformer(tiny(operator), [operator] * LAYERS, inputs=Scalars(), seed=seed).double()


def sequences() -> Float[Tensor, "3 tokens 1"]:
    """Draw three sequences."""
    return torch.randn(3, LENGTH, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def attentions(model: Transformer) -> list[Attention]:
    """List the attention of every layer, bottom first."""
    return model.attentions()


def table(tables: torch.nn.ParameterDict, name: str) -> torch.nn.Parameter:
    """Return the parameter of the number "stage.field"."""
    parameter = tables[name.replace(".", "_")]
    assert isinstance(parameter, torch.nn.Parameter)
    return parameter


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
