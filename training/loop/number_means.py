"""A trained model whose numbers are replaced by their mean over tokens, heads or layers."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from ablate.training.loop.refit import last_batches
from ablate.training.tasks.task import Batch, Data, Predict, once
from ablate.training.trial import Trial
from ablate.variants import Transformer
from ablate.variants.granularity import Axis
from ablate.variants.operator import NumberValues

Sums = dict[str, tuple[Tensor, Tensor]]
"""Sum and count of each number [1, H, rows, columns], by name."""


@contextmanager
def use_means(
    trial: Trial, model: Transformer, data: Data, predict: Predict, means: Mapping[str, Sequence[Axis]]
) -> Iterator[None]:
    """Replace each number that `means` names by its mean over all axes but those given there.

    Means over queries and tokens are those of the last training batches, without padding.
    """
    averages = _average(_sums(trial, model, data, predict, means), means)

    def replace(layer: int, numbers: NumberValues, present: Tensor | None) -> NumberValues:  # noqa: ARG001
        own = {
            name: mean.to(numbers[name]).expand_as(numbers[name]).contiguous() for name, mean in averages[layer].items()
        }
        return {**numbers, **own}

    with model.adjust_numbers(replace):
        yield


def _sums(
    trial: Trial, model: Transformer, data: Data, predict: Predict, names: Mapping[str, Sequence[Axis]]
) -> list[Sums]:
    """Sum the numbers over the tokens of the last training batches, by layer."""
    totals: list[Sums] = [{} for _ in model.layers]
    for part in last_batches(trial, data):
        for total, sums in zip(totals, once(predict, partial(_sum, model, predict, part.batch, names)), strict=True):
            for name, (values, count) in sums.items():
                before = total.get(name, (0.0, 0.0))
                total[name] = (before[0] + values, before[1] + count)
    return totals


def _sum(model: Transformer, predict: Predict, batch: Batch, names: Mapping[str, Sequence[Axis]]) -> list[Sums]:
    sums: list[Sums] = [{} for _ in model.layers]
    operators = [each.operator for each in model.attentions()]

    def watch(layer: int, numbers: NumberValues, present: Tensor | None) -> NumberValues:
        for name in names.keys() & numbers.keys():
            value, predicted = numbers[name].double(), operators[layer].numbers()[name].predicted
            there = torch.ones_like(value) * (present if predicted and present is not None else 1)
            over = (0, 2) if predicted else (0,)
            sums[layer][name] = ((value * there).sum(over, keepdim=True), there.sum(over, keepdim=True))
        return numbers

    with model.adjust_numbers(watch):
        predict(batch.inputs, batch.visible)
    return [{name: (total.cpu(), count.cpu()) for name, (total, count) in each.items()} for each in sums]


def _average(sums: Sequence[Sums], means: Mapping[str, Sequence[Axis]]) -> list[dict[str, Tensor]]:
    """Return the means by layer; a mean over layers is one over those whose number has the same shape."""
    averages: list[dict[str, Tensor]] = [{} for _ in sums]
    for name, axes in means.items():
        layers = {layer: torch.div(*each[name]) for layer, each in enumerate(sums) if name in each}
        if "head" not in axes:
            layers = {layer: mean.mean(1, keepdim=True) for layer, mean in layers.items()}
        for layer, mean in layers.items():
            alike = [mean] if "layer" in axes else [each for each in layers.values() if each.shape == mean.shape]
            averages[layer][name] = torch.stack(alike).mean(0)
    return averages
