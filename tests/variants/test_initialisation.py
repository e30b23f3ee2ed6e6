"""Initial weights are drawn with the spread that the backbone says, from the seed and their own path."""

import math

import pytest
import torch

from variants import Backbone, Scalars, Tokens, Transformer, principled, softmax
from variants.model.named_backbones import sink_1b, sink_60m, tiny
from variants.stages.positions.t5 import T5

LAYERS, WIDTH, INNER = 3, 64, 160


def build_sized(**fields: object) -> Backbone:
    return tiny("llama2").changed(layers=LAYERS, feedforward_width=INNER, tied=False, **fields)


def weights(backbone: Backbone, *, inputs: Scalars | Tokens = Tokens(64)) -> dict[str, torch.Tensor]:  # noqa: B008
    model = Transformer(backbone, [principled()] * backbone.layers, inputs=inputs, seed=4)
    drawn = (torch.nn.Linear, torch.nn.Embedding)
    return {name: module.weight.detach() for name, module in model.named_modules() if isinstance(module, drawn)}


def expected_spread(name: str, *, scalars: bool = False) -> float:
    """The released code of paper 004, by hand: by what a weight multiplies."""
    if name.endswith("feedforward.down"):
        return 1 / math.sqrt(INNER) / LAYERS
    return math.sqrt(2 / 5 / (1 if scalars and name == "read_in" else WIDTH))


@pytest.mark.parametrize("fields", [{}, {"feedforward": "gelu"}, {"sink_tokens": 40}, {"bias": "all"}], ids=str)
def test_fan_in_draws_every_weight_with_its_own_spread(fields: dict[str, object]) -> None:
    found = weights(build_sized(initialisation="fan_in", **fields))
    assert {name.split(".")[-1] for name in found} >= {"read_in", "read_out", "qkv", "gate", "out", "up", "down"}
    for name, weight in found.items():
        bound = 5 / math.sqrt(2 * weight.numel())  # five standard errors of a standard deviation
        assert weight.std(correction=0).item() == pytest.approx(expected_spread(name), rel=bound), name
        assert abs(weight.mean().item()) <= 5 * expected_spread(name) / math.sqrt(weight.numel()), name


def test_both_schemes_scale_the_same_draws() -> None:
    """A change of scheme leaves runs paired: each weight is the other's times one number."""
    gpt2, fan_in = weights(build_sized()), weights(build_sized(initialisation="fan_in"))
    assert gpt2.keys() == fan_in.keys()
    for name, weight in fan_in.items():
        residual = name.endswith(("attention.out", "feedforward.down"))
        own = 0.02 / math.sqrt(2 * LAYERS) if residual else 0.02
        torch.testing.assert_close(weight, gpt2[name] * (expected_spread(name) / own), rtol=1e-5, atol=0)


def test_scalars_are_read_in_by_their_fan_in_both() -> None:
    inputs, backbone = Scalars(), tiny("llama2").changed(layers=LAYERS, feedforward_width=INNER)
    gpt2, fan_in = (weights(backbone.changed(initialisation=each), inputs=inputs) for each in ("gpt2", "fan_in"))
    ratio = expected_spread("read_in", scalars=True) * math.sqrt(3)
    torch.testing.assert_close(fan_in["read_in"], ratio * gpt2["read_in"], rtol=1e-5, atol=0)


def test_biases_are_zero_and_tables_of_logits_small() -> None:
    backbone = build_sized(initialisation="fan_in", bias="all", positions=T5(count=128, max_distance=256))
    model = Transformer(backbone, [softmax()] * LAYERS, inputs=Tokens(64), seed=4)
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    assert len(biases) == 5 * LAYERS
    assert not any(bias.any() for bias in biases)
    assert model.position_bias is not None
    table = model.position_bias["4"].weight.detach()
    assert table.std(correction=0).item() == pytest.approx(0.02, rel=5 / math.sqrt(2 * table.numel()))


def test_the_models_of_paper_004_are_drawn_as_its_code_draws_them() -> None:
    assert {sink_60m().initialisation, sink_1b().initialisation} == {"fan_in"}
    assert tiny("llama2").initialisation == "gpt2"
