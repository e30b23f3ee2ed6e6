"""Initial weights are drawn with the spread that the backbone says, from the seed and their own path."""

import math

import pytest
import torch

from ablate.variants import Backbone, Scalars, Tokens, Transformer, principled, softmax, ssa
from ablate.variants.model.named_backbones import babyberta_8m, tiny
from ablate.variants.stages.positions import T5

LAYERS, WIDTH, INNER = 3, 64, 160


def build_sized(**fields: object) -> Backbone:
    sizes: dict[str, object] = {"layers": LAYERS, "feedforward_width": INNER, "tied": False}
    return tiny("llama2").changed(**{**sizes, "initialisation": "gpt2", **fields})


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


def test_biases_are_zero_and_tables_of_logits_small() -> None:
    backbone = build_sized(initialisation="fan_in", bias="all", positions=T5(count=128, max_distance=256))
    model = Transformer(backbone, [softmax()] * LAYERS, inputs=Tokens(64), seed=4)
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    assert len(biases) == 5 * LAYERS
    assert not any(bias.any() for bias in biases)
    assert model.position_bias is not None
    table = model.position_bias["4"].weight.detach()
    assert table.std(correction=0).item() == pytest.approx(0.02, rel=5 / math.sqrt(2 * table.numel()))


@pytest.mark.parametrize(
    ("scheme", "inputs", "own"),
    [
        ("gpt2_scalars", Scalars(5), {"read_in", "read_out"}),
        ("gpt2_scalars", Tokens(300), set()),
        ("pytorch", Tokens(300), {"layers.0.attention.qkv", "layers.0.feedforward.down", "read_out"}),
    ],
)
def test_layers_of_their_own_start_are_drawn_as_pytorch_draws_them(
    scheme: str, inputs: Scalars | Tokens, own: set[str]
) -> None:
    """Compare range and spread, of weights and biases, with those of freshly made layers."""
    backbone = tiny("gpt2").changed(initialisation=scheme, tied=False, width=256, heads=4)
    model = Transformer(backbone, [softmax()] * 2, inputs=inputs, seed=4)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and (name in own or scheme == "pytorch"):
            bound = 1 / math.sqrt(module.in_features)
            weight, bias = module.weight.detach(), module.bias
            assert 0.7 * bound < weight.abs().max().item() <= bound, name
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1), name
            assert bias is None or 0 < bias.abs().max().item() <= bound, name
        elif isinstance(module, torch.nn.Linear):
            assert module.weight.abs().max() < 0.15, name
            assert module.bias is None or not module.bias.any(), name
    if scheme == "pytorch":
        assert model.read_in.weight.std().item() == pytest.approx(1, rel=0.05)


def test_a_model_without_feedforward_is_attention_and_its_norm() -> None:
    backbone = tiny("gpt2").changed(feedforward="none", feedforward_width=0)
    model = Transformer(backbone, [softmax(), ssa()], inputs=Tokens(20), seed=1).double()
    assert not [name for name, _ in model.named_parameters() if "feedforward" in name]
    tokens = torch.arange(12).view(2, 6) % 20
    hidden = model.embed(tokens)
    for block in model.blocks():
        hidden = hidden + block.attention(block.attention_norm(hidden))
    assert model.norm is not None
    torch.testing.assert_close(model(tokens), model.read_out(model.norm(hidden)))
    post = Transformer(backbone.changed(norm_position="post"), [softmax()] * 2, inputs=Tokens(20), seed=1).double()
    traced = list(post.trace_layers(tokens))
    assert all(trace.unnormed is not None for trace in traced)
    torch.testing.assert_close(post(tokens), post.read_out(traced[-1].leaving))


def test_every_token_has_the_first_token_type() -> None:
    model = Transformer(babyberta_8m().changed(layers=1), [softmax()], inputs=Tokens(8192), seed=1)
    with_types = sum(p.numel() for p in model.parameters())
    without = Transformer(babyberta_8m().changed(layers=1, token_types=0), [softmax()], inputs=Tokens(8192), seed=1)
    assert with_types == sum(p.numel() for p in without.parameters()) + 512
    assert model.token_type is not None
    assert without.position is not None
    tokens = torch.arange(6)[None]
    model.eval(), without.eval()
    without.position.weight.data += model.token_type.weight[0].detach()
    torch.testing.assert_close(model(tokens), without(tokens))
