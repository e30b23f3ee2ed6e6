"""Tokens one after another with kept keys and values. That every operator can is the law "decoding"."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.variants import (
    T5,
    Alibi,
    Attention,
    AttentionOp,
    Bucket,
    Learned,
    NoPositions,
    Operator,
    Prefix,
    Rotary,
    Sinusoidal,
    Tokens,
    Transformer,
    Yarn,
    affine_scaled,
    cosformer,
    differential,
    fox,
    gpt2,
    llama2,
    principled,
    qk_norm,
    selective,
    softmax,
    tiny,
)
from ablate.variants.laws.examples import every_choice, named_operators
from ablate.variants.laws.inputs import tiny as tiny_of
from ablate.variants.model.cache import KeyCache, NoCache

OPERATORS = {each.key: each for each in (*named_operators(), *every_choice())}
VOCABULARY = 13


def prompt(rows: int = 2, length: int = 9) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def sharp(operator: Operator, backbone: Any) -> Transformer:
    """A model whose tokens differ."""
    operators = [operator] * backbone.layers
    model = Transformer(backbone, operators, inputs=Tokens(VOCABULARY), seed=3).double()
    made = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=made))
    return model


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda each: each.label)
def test_generated_tokens_are_those_without_a_cache(operator: Operator) -> None:
    backbone, length = tiny_of(operator), max(9, operator.visible.ahead + 1)
    model = sharp(operator, backbone.changed(positions=Learned(count=32)) if backbone.positions.table else backbone)
    if operator.no_cache is not None:
        with pytest.raises(NoCache) as refused:
            model.generate(prompt(), 5)
        assert len(str(refused.value).splitlines()) == 1
        assert model.generate(prompt(), 5, cache=False).shape == (2, 14)
        return
    whole, cached = (model.generate(prompt(4, length), 6, cache=cache) for cache in (False, True))
    assert whole.shape == (4, length + 6)
    assert torch.equal(whole, cached)
    assert model.training


def test_operators_that_need_the_whole_sequence_are_these() -> None:
    for each in OPERATORS.values():
        whole = each.forgetting.label == "selective" or getattr(each.product, "length", 0) is None
        assert (each.no_cache is not None) is whole, each.label
    assert affine_scaled(n="context").no_cache is not None
    assert cosformer(length=64).no_cache is None


@pytest.mark.parametrize(
    "backbone",
    [
        *(tiny(family) for family in ("gpt2", "llama3", "pythia")),
        *(
            tiny("llama2").changed(positions=each)
            for each in (Alibi(), Bucket(), T5(), NoPositions(), Sinusoidal(), Yarn(factor=4, original=8))
        ),
        tiny("llama2").changed(sink_tokens=2),
        tiny("gpt2").changed(sink_tokens=1),
        *(tiny("llama3").changed(token_shift=each) for each in ("keys", "values", "both")),
        tiny("llama2").changed(norm_position="post", head_outputs="added"),
    ],
    ids=lambda each: f"{each.name} {each.positions.label} {each.sink_tokens} {each.token_shift} {each.norm_position}",
)
@pytest.mark.parametrize("operator", [principled("query", gate_width=4), fox(), qk_norm(), differential()])
def test_every_part_of_a_backbone_goes_on_where_it_was(operator: Operator, backbone: Any) -> None:
    model, tokens = sharp(operator, backbone).eval(), prompt(length=16)
    with torch.no_grad():
        whole, cache = model(tokens), model.start_cache(5)
        came = torch.cat([model(part, None, cache) for part in tokens.split([5, 3, 1, 1, 4, 1, 1], 1)], 1)
    assert cache.length == 16
    torch.testing.assert_close(came, whole, rtol=1e-9, atol=1e-10)


def test_a_prefix_comes_whole_and_an_encoder_has_no_cache() -> None:
    model = sharp(Operator(visible=Prefix(length=4)), tiny("llama2"))
    with pytest.raises(NoCache):
        model.generate(prompt(length=3), 2)
    assert torch.equal(model.generate(prompt(length=4), 4), model.generate(prompt(length=4), 4, cache=False))
    layer = Attention(Operator(visible=Prefix(length=4)), width=16, heads=2)
    with pytest.raises(SpecError):
        layer(torch.zeros(1, 3, 16), cache=KeyCache())
    with pytest.raises(NoCache):
        sharp(softmax(), tiny("llama2").changed(causal=False)).generate(prompt(), 2)


def test_a_sequence_beyond_the_learned_positions_is_refused() -> None:
    model = sharp(softmax(), gpt2(layers=1, heads=2, width=16, max_positions=10))
    model.generate(prompt(), 2)
    with pytest.raises(SpecError):
        model.generate(prompt(), 3)


def test_a_knocked_out_model_decodes_by_what_it_computes() -> None:
    model = sharp(selective(), llama2(layers=2, heads=2, width=16, feedforward_width=8))
    with model.knock_out(["forgetting"]):
        assert torch.equal(model.generate(prompt(), 4), model.generate(prompt(), 4, cache=False))
    gates = sharp(fox(), tiny("llama2"))

    def mean(_: int, numbers: Any, present: Tensor | None) -> dict[str, Tensor]:
        return {name: value.mean((0, 2), keepdim=True) for name, value in numbers.items()}

    with gates.adjust_numbers(mean):
        gates(prompt())  # a mean has no tokens of its own
        gates.generate(prompt(), 2)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_layers_in_other_code_decode(kv_heads: int) -> None:
    torch.manual_seed(0)
    size: dict[str, Any] = {"heads": 4, "kv_heads": kv_heads, "positions": Rotary()}
    layer = Attention(principled("query", gate_width=4), width=32, **size).double().eval()
    op = AttentionOp(fox(), width=32, head_width=8, **size).double().eval()
    projections = nn.ModuleList(nn.Linear(32, 8 * count).double() for count in (4, kv_heads, kv_heads))
    x = torch.randn(2, 9, 32, dtype=torch.float64)

    def own(x: Tensor, cache: KeyCache | None = None) -> Tensor:
        return op(*(each(x).unflatten(-1, (-1, 8)).transpose(1, 2) for each in projections), x, cache=cache)

    for module, tokens in ((layer, 1), (own, 2)):
        cache = KeyCache()
        parts = [module(part, cache=cache) for part in x.split([4, 1, 3, 1], 1)]
        torch.testing.assert_close(torch.cat(parts, tokens), module(x), rtol=1e-10, atol=1e-12)
        assert cache.length == 9
    refused = Attention(selective(), width=32, heads=4)
    refused(x.float()[:, :3], cache=(cache := KeyCache()))
    with pytest.raises(SpecError):
        refused(x.float()[:, 3:4], cache=cache)
