"""The fused path computes the definition: values and gradients, for whatever can be folded into it."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from grid.errors import SpecError
from variants import Heads, Operator, attend, causal
from variants.attend import prepare
from variants.laws.inputs import random_inputs
from variants.number import Number
from variants.paths import sdpa
from variants.paths.choose import choose
from variants.stages.positions.alibi import Alibi
from variants.stages.positions.none import NoPositions

STAGES: dict[str, tuple[dict[str, Any], ...]] = {
    "extra": ({"kind": "none"}, {"kind": "key_bias"}, {"kind": "key_value_bias"}),
    "normaliser": ({"kind": "total"}, {"kind": "sink"}),
    "merge": ({"kind": "logits"}, {"kind": "mean"}, {"kind": "difference"}),
    "rescale": ({"kind": "none"}, {"kind": "scale"}, {"kind": "affine"}, {"kind": "affine", "n": "context"}),
}
MORE: tuple[dict[str, Any], ...] = (
    {"margin": {"kind": "log_count"}, "transform": {"kind": "temperature"}, "output_gate": {"kind": "per_head"}},
    {"margin": {"kind": "ssmax"}, "normaliser": {"kind": "sink"}, "readout": {"kind": "ground_value"}},
    {"transform": {"kind": "temperature"}, "readout": {"kind": "value_bias"}, "head_norm": {"kind": "rms"}},
    {"visible": {"kind": "window", "size": 3}, "rescale": {"kind": "affine"}},
    {"visible": {"kind": "prefix", "length": 4}, "extra": {"kind": "key_value_bias"}},
    {"preparation": {"kind": "rms_norm"}, "output_gate": {"kind": "per_channel"}},
)


def operators() -> list[Operator]:
    combined = [dict(zip(STAGES, each, strict=True)) for each in product(*STAGES.values())]
    found = [
        Operator(**choices, signals={"count": 1 if choices["merge"]["kind"] == "logits" else 2}) for choices in combined
    ]
    return [*found, *(Operator(**choices) for choices in MORE), Operator(signals={"count": 4})]


def run(operator: Operator, path: Any, mask: Tensor | None, *, alibi: bool = False) -> list[Tensor]:
    """Output, and the gradients of inputs and numbers."""
    inputs = random_inputs(operator, length=13)
    q, k, v = (x.clone().requires_grad_() for x in (inputs.q, inputs.k, inputs.v))
    numbers = {name: value.clone().requires_grad_() for name, value in inputs.numbers.items()}
    heads = Heads(*prepare(operator, q, k, NoPositions(), numbers), v, mask)
    if alibi:
        heads = heads._replace(bias=Alibi().bias(heads.distance, q.shape[1], None, causal=True).double())
    output = path.run(operator, heads, numbers)
    output.square().sum().backward()
    return [output, *(torch.zeros_like(x) if x.grad is None else x.grad for x in (q, k, v, *numbers.values()))]


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.label)
def test_values_and_gradients_are_those_of_the_definition(operator: Operator) -> None:
    holes = causal(13, 13).clone()
    holes[:, 4], holes[6] = False, False
    for mask in (None, holes, torch.ones(2, 1, 13, 13, dtype=torch.bool)):
        for found, expected in zip(
            run(operator, choose(operator, "sdpa"), mask),
            run(operator, choose(operator, "reference"), mask),
            strict=True,
        ):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_fewer_queries_than_keys_are_the_last_ones() -> None:
    operator = Operator(normaliser={"kind": "sink"}, extra={"kind": "key_bias"})
    inputs = random_inputs(operator, length=13)
    heads = Heads(inputs.q[:, :, -3:], inputs.k, inputs.v)
    whole = attend(operator, inputs.q, inputs.k, inputs.v, numbers=inputs.numbers).output[:, :, -3:]
    last = {name: value[:, :, -3:] for name, value in inputs.numbers.items()}
    torch.testing.assert_close(sdpa.run(operator, heads, last), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"score": {"kind": "ssa"}}, "sdpa computes score 'exponential' only, not 'ssa'"),
        ({"normaliser": {"kind": "ground"}}, "'total' or 'sink' only, not 'ground'"),
    ],
)
def test_what_it_cannot_run_it_refuses_with_the_reason(choices: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        choose(Operator(**choices), "sdpa")


@pytest.mark.parametrize("choices", [{"margin": {"kind": "ssmax"}}, {"transform": {"kind": "temperature"}}], ids=str)
def test_large_logits_keep_their_digits_in_low_precision(choices: dict[str, Any]) -> None:
    operator = Operator(**choices)
    inputs = random_inputs(operator, length=63)
    numbers = {name: value.float() for name, value in inputs.numbers.items()}
    heads = Heads((6 * inputs.q).bfloat16(), (6 * inputs.k).bfloat16(), inputs.v.bfloat16())
    exact = choose(operator, "reference").run(operator, Heads(*(x.double() for x in heads[:3])), numbers)
    definition, fused = (choose(operator, name).run(operator, heads, numbers) for name in ("reference", "sdpa"))
    assert (fused - exact).abs().max() <= 2 * (definition - exact).abs().max()


def test_low_precision_inputs_stay_what_they_are() -> None:
    operator = Operator(margin={"kind": "log_count", "amplification": Number(init=0.0)}, rescale={"kind": "affine"})
    inputs = random_inputs(operator, length=13)
    heads = Heads(*(x.bfloat16() for x in (inputs.q, inputs.k, inputs.v)))
    numbers = {name: value.float() for name, value in inputs.numbers.items()}
    assert sdpa.run(operator, heads, numbers).dtype == torch.bfloat16
