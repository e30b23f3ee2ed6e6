"""The host Transformer: sizes, seeds, what is shared and what is not."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants import (
    Backbone,
    NoPositions,
    Operator,
    Placement,
    Rotary,
    Scalars,
    Tokens,
    Transformer,
    Yarn,
    affine_scaled,
    differential,
    fox,
    gpt2,
    integral,
    linear_elu,
    llama2,
    principled,
    softmax,
    ssa,
)
from ablate.variants.model.block import FeedForward
from ablate.variants.model.named_backbones import tiny
from ablate.variants.paths.choose import PathName
from ablate.variants.stages.positions import Alibi, Positions

TINY = gpt2(layers=2, heads=2, width=16, max_positions=32)


SCALARS = Scalars()


def build(
    operator: Operator, backbone: Backbone = TINY, *, seed: int = 0, inputs: Scalars | Tokens = SCALARS
) -> Transformer:
    return Transformer(backbone, [operator] * backbone.layers, inputs=inputs, seed=seed)


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_adding_a_component_leaves_all_other_weights_alone() -> None:
    plain, rich = build(softmax()).state_dict(), build(principled("query", gate_width=4)).state_dict()
    assert set(plain) < set(rich)
    assert all(torch.equal(rich[name], value) for name, value in plain.items())
    assert not torch.equal(build(softmax(), seed=1).read_in.weight, plain["read_in.weight"])


def test_the_top_half_may_differ_from_the_bottom() -> None:
    placed = Placement(share=0.5).operators(ssa(), 2)
    model = Transformer(TINY, placed, inputs=Scalars(), seed=0)
    assert model.paths(32) == ["sdpa", "reference"]
    assert model.paths(100) == ["sdpa", "cpu"]
    assert {layer for layer, *_ in model.numbers()} == {1}


def test_a_named_path_computes_every_call_or_is_refused() -> None:
    def model(backbone: Backbone) -> Transformer:
        return Transformer(backbone, [ssa()] * 2, inputs=Scalars(), seed=0, path="cpu")

    assert model(TINY).paths(7) == ["cpu", "cpu"]
    refused = "path 'cpu' cannot run 'SSA': cpu computes logits without a position bias only; use path='auto'"
    with pytest.raises(SpecError, match=refused):
        model(TINY.changed(positions=Alibi()))
    with pytest.raises(SpecError, match="sdpa computes score 'exponential' only, not 'ssa'"):
        Transformer(TINY, [ssa()] * 2, inputs=Scalars(), seed=0, path="sdpa")


@pytest.mark.parametrize(("path", "operator"), [("linear", linear_elu()), ("cpu", fox())])
def test_a_named_path_refuses_masks_that_it_leaves_to_the_definition(path: PathName, operator: Operator) -> None:
    """Only values of a mask tell that it is of documents. Path "auto" computes it by the definition."""
    half = torch.arange(80) >= 40
    documents, x = (half[:, None] == half)[None], torch.ones(1, 80, 1)
    long = gpt2(layers=2, heads=2, width=16, max_positions=96)
    names: tuple[PathName, PathName] = (path, "auto")
    by_path = {name: Transformer(long, [operator] * 2, inputs=Scalars(), seed=0, path=name) for name in names}
    torch.testing.assert_close(by_path[path](x), by_path["auto"](x))
    by_path["auto"](x, documents)
    with pytest.raises(SpecError, match=f"path '{path}' computes causal masks and padding only; use path='auto'"):
        by_path[path](x, documents)


@pytest.mark.parametrize("shape", [(2, 1, 1, 9), (1, 1, 9, 1), (1, 9)], ids=str)
def test_a_mask_of_a_layer_may_broadcast(shape: tuple[int, ...]) -> None:
    """The running mean counts tokens that see themselves."""
    layer = build(affine_scaled()).blocks()[0].attention
    x, mask = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0)), torch.ones(shape, dtype=torch.bool)
    mask.view(-1)[-2:] = False
    one, whole = copy.deepcopy(layer), copy.deepcopy(layer)
    torch.testing.assert_close(one(x, mask), whole(x, mask.expand(2, 1, 9, 9)))
    assert torch.equal(one.numbers.rescale_mean, whole.numbers.rescale_mean)
    assert not torch.equal(one.numbers.rescale_mean, layer.numbers.rescale_mean)


@pytest.mark.parametrize(
    "backbone", [TINY, llama2(layers=1, heads=2, width=16, feedforward_width=16)], ids=["gpt2", "llama2"]
)
def test_a_model_first_seen_in_an_evaluation_can_be_trained(backbone: Backbone) -> None:
    model, x = build(ssa(), backbone), torch.ones(1, 23, 1)  # a length no other test uses
    with torch.inference_mode():
        model(x)
    model(x).sum().backward()
    assert model.read_in.weight.grad is not None


TOKENS = Tokens(11)
OPERATORS = [softmax(), ssa(), principled("query", gate_width=4), differential()]


def words(length: int = 13) -> Tensor:
    return torch.randint(11, (2, length), generator=torch.Generator().manual_seed(0))


def sharpen(model: Transformer) -> Transformer:
    """Attention that is far from uniform."""
    for layer in model.layers:
        layer.attention.qkv.weight.data *= 20
    return model


def in_groups(weight: Tensor, backbone: Backbone, channels: int, kinds: str) -> Tensor:
    """Rows of a projection of grouped queries with those of keys and values repeated for every head of their group."""
    size, group = channels, backbone.heads // backbone.key_heads
    counts = {"q": backbone.heads, "k": backbone.key_heads, "v": backbone.key_heads}
    rows, start = [], 0
    for kind in kinds:
        part = weight[start * size : (start + counts[kind]) * size].unflatten(0, (counts[kind], size))
        rows.append(part if kind == "q" else part.repeat_interleave(group, 0))
        start += counts[kind]
    return torch.cat(rows).flatten(0, 1)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.label)
def test_grouped_queries_are_heads_that_share_keys_and_values(operator: Operator) -> None:
    grouped = tiny("llama3").changed(kv_heads=2)
    joined = operator.merge.heads_joined
    seen = grouped.changed(heads=grouped.heads // joined, kv_heads=2 // joined)  # as the operator counts heads
    model = sharpen(build(operator, grouped, inputs=TOKENS))
    full = build(operator, grouped.changed(kv_heads=None), inputs=TOKENS)
    state = model.state_dict()
    for layer in range(2):
        name = f"layers.{layer}.attention"
        state[f"{name}.qkv.weight"] = in_groups(state[f"{name}.qkv.weight"], seen, 16 * joined, "qkv")
        if operator.added_channels:
            state[f"{name}.gate.weight"] = in_groups(state[f"{name}.gate.weight"], seen, 4, "qk")
    full.load_state_dict(state)
    torch.testing.assert_close(model(words()), full(words()), rtol=1e-5, atol=1e-6)
    assert parameters(model) < parameters(full)


def test_added_heads_are_concatenated_ones_with_one_output_projection() -> None:
    backbone = tiny("llama2")
    added = sharpen(build(softmax(), backbone.changed(head_outputs="added"), inputs=TOKENS))
    concatenated = build(softmax(), backbone, inputs=TOKENS)
    state = added.state_dict()
    for layer in range(2):
        name = f"layers.{layer}.attention.out.weight"
        assert state[name].shape == (64, 16)
        state[name] = state[name].repeat(1, 4)
    concatenated.load_state_dict(state)
    torch.testing.assert_close(added(words()), concatenated(words()), rtol=1e-5, atol=1e-6)


def test_a_parallel_layer_is_its_formula() -> None:
    block = sharpen(build(softmax(), tiny("pythia"), inputs=TOKENS)).layers[0]
    x = torch.randn(2, 13, 64, generator=torch.Generator().manual_seed(0))
    expected = x + block.attention(block.attention_norm(x)) + block.feedforward(block.feedforward_norm(x))
    torch.testing.assert_close(block(x), expected)
    block.parallel = False
    assert not torch.allclose(block(x), expected, atol=1e-4)


def test_a_post_norm_layer_is_its_formula_and_the_model_has_no_last_norm() -> None:
    backbone = tiny("llama2").changed(norm_position="post", norm="layer")
    model = build(softmax(), backbone, inputs=TOKENS)
    assert model.norm is None
    block = model.layers[0]
    x = torch.randn(2, 13, 64, generator=torch.Generator().manual_seed(0))
    middle = F.layer_norm(x + block.attention(x), (64,))
    expected = F.layer_norm(middle + block.feedforward(middle), (64,))
    torch.testing.assert_close(block(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(expected.std(-1, correction=0), torch.ones(2, 13), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("kind", "formula"),
    [
        ("relu", lambda x: max(x, 0.0)),
        ("gelu", lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
        ("gelu_tanh", lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("swish", lambda x: x / (1 + math.exp(-x))),
        ("reglu", lambda x: max(2 * x, 0.0) * x),
        ("geglu", lambda x: 2 * x * (1 + math.erf(2 * x / math.sqrt(2))) / 2 * x),
        ("swiglu", lambda x: 2 * x / (1 + math.exp(-2 * x)) * x),
    ],
)
def test_a_feedforward_is_its_formula(kind: str, formula: object) -> None:
    """One channel; what is gated is multiplied by 1, what gates it by 2, the result by 3."""
    backbone = llama2(layers=1, heads=1, width=1, feedforward_width=1).changed(feedforward=kind)
    part = FeedForward(backbone).double()
    part.up.weight.data.fill_(1)
    part.down.weight.data.fill_(3)
    if part.gate is not None:
        part.gate.weight.data.fill_(2)
    for x in (-3.0, -0.7, 0.0, 0.1, 2.5):
        assert part(torch.tensor([[[x]]], dtype=torch.float64)).item() == pytest.approx(3 * formula(x), abs=1e-12)


@pytest.mark.parametrize(
    ("bias", "expected"), [("none", []), ("qkv", ["gate", "qkv"]), ("all", ["gate", "out", "qkv"])]
)
def test_projections_have_the_biases_of_their_family(bias: str, expected: list[str]) -> None:
    model = build(principled(gate_width=4), tiny("llama2").changed(bias=bias))
    block = model.layers[0]
    parts = dict(block.attention.named_children())
    assert sorted(name for name, part in parts.items() if getattr(part, "bias", None) is not None) == expected
    assert (block.feedforward.up.bias is not None) is (bias == "all")


@pytest.mark.parametrize("family", ["gpt2", "llama2"])
def test_a_sink_token_is_one_more_token_in_front(family: str) -> None:
    """With the embedding of token 5 as the sink, the model is the plain one on 5 and the sequence."""
    with_sink = sharpen(build(ssa(), tiny(family).changed(sink_tokens=1), inputs=TOKENS))
    plain = build(ssa(), tiny(family), inputs=TOKENS)
    with_sink.sink.weight.data[0] = with_sink.read_in.weight.data[5]
    plain.load_state_dict(
        {name: value for name, value in with_sink.state_dict().items() if not name.startswith("sink")}
    )
    longer = torch.cat((torch.full((2, 1), 5), words()), 1)
    torch.testing.assert_close(with_sink(words()), plain(longer)[:, 1:], rtol=1e-5, atol=1e-6)


def test_sink_tokens_leave_other_weights_alone_and_take_positions() -> None:
    backbone = gpt2(layers=1, heads=2, width=16, max_positions=13)
    plain, rich = (build(softmax(), backbone.changed(sink_tokens=count)) for count in (0, 2))
    assert set(rich.state_dict()) - set(plain.state_dict()) == {"sink.weight"}
    assert all(torch.equal(rich.state_dict()[name], value) for name, value in plain.state_dict().items())
    with pytest.raises(SpecError, match="a sequence of 14 is longer than the 13 learned positions"):
        rich(torch.zeros(1, 12, 1))


def test_dropout_is_off_in_evaluation_and_on_in_training() -> None:
    backbone = tiny("gpt2").changed(dropout=0.3)
    dropping, keeping = build(softmax(), backbone, inputs=TOKENS), build(softmax(), tiny("gpt2"), inputs=TOKENS)
    torch.manual_seed(3)
    first = dropping(words())
    assert not torch.equal(first, dropping(words()))
    torch.manual_seed(3)
    assert torch.equal(first, dropping(words()))
    dropping.eval()
    assert torch.equal(dropping(words()), keeping(words()))


def test_embeddings_and_both_parts_of_a_layer_are_dropped() -> None:
    model = build(softmax(), tiny("gpt2").changed(dropout=0.5), inputs=TOKENS)
    assert 0.4 < (model.embed(words(63)) == 0).float().mean() < 0.6
    block, x = model.layers[0], torch.randn(2, 63, 64, generator=torch.Generator().manual_seed(0))
    for part in (block.attention, block.feedforward):
        part.register_forward_hook(lambda *call: torch.zeros_like(call[-1]))
    assert torch.equal(block(x), x)
    for part in (block.attention, block.feedforward):
        part._forward_hooks.clear()
        part.register_forward_hook(lambda *call: torch.ones_like(call[-1]))
    added = block(x) - x  # each part adds 0 or 1 / (1 - 0.5)
    assert {round(value, 3) for value in added.flatten().tolist()} == {0.0, 2.0, 4.0}


def test_an_encoder_sees_the_future() -> None:
    """A decoder does not: the law "causality in a model"."""
    changed = words().clone()
    changed[:, -1] = (changed[:, -1] + 1) % 11
    for operator in OPERATORS:
        encoder = sharpen(build(operator, tiny("llama2").changed(causal=False), inputs=TOKENS))
        assert (encoder(words())[:, 0] != encoder(changed)[:, 0]).any(-1).all()


def test_a_masked_read_out_is_dense_gelu_norm_and_a_tied_projection_with_bias() -> None:
    model = build(softmax(), tiny("babyberta"), inputs=TOKENS).eval()
    assert model.read_out.weight is model.read_in.weight
    model.read_out.bias.data = torch.arange(11.0)
    found: list[Tensor] = []
    model.layers[-1].register_forward_hook(lambda *call: found.append(call[-1]))
    predictions = model(words())
    dense = F.linear(found[0], model.predictor.dense.weight, model.predictor.dense.bias)
    expected = F.layer_norm(F.gelu(dense), (64,)) @ model.read_in.weight.T + torch.arange(11.0)
    torch.testing.assert_close(predictions, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "positions", [Rotary(base=100.0), NoPositions(), Yarn(factor=4, original=20)], ids=lambda each: each.label
)
def test_a_trained_model_can_be_given_other_positions_for_a_while(positions: Positions) -> None:
    own = llama2(layers=2, heads=2, width=16, feedforward_width=24)
    model, other = (
        build(softmax(), own, inputs=TOKENS),
        build(softmax(), own.changed(positions=positions), inputs=TOKENS),
    )
    before = model(words())
    with model.use_positions(positions):
        torch.testing.assert_close(model(words()), other(words()), rtol=0, atol=0)
    torch.testing.assert_close(model(words()), before, rtol=0, atol=0)
    assert not torch.allclose(before, other(words()))
    with (
        pytest.raises(SpecError, match="differ in learned parameters"),
        build(softmax()).use_positions(positions),
    ):
        pass


@pytest.mark.parametrize("operator", [*OPERATORS[:3], integral(2)], ids=lambda operator: operator.label)
def test_watching_changes_nothing_and_shows_what_attention_did(operator: Operator) -> None:
    model = build(operator, inputs=TOKENS).double().eval()
    whole = words(7)
    visible = (torch.arange(7) < torch.tensor([[7], [4]]))[:, None, :]
    before = model(whole, visible)
    layers = list(model.trace_layers(whole, visible))
    torch.testing.assert_close(model(whole, visible), before)
    assert [each.layer for each in layers] == [0, 1]
    torch.testing.assert_close(layers[0].entering, model.embed(whole))
    torch.testing.assert_close(layers[0].leaving, layers[1].entering)
    torch.testing.assert_close(model.read_out(model.norm(layers[1].leaving)), before)
    for each in layers:
        weights = each.worked.attended.weights
        assert weights.shape == (2, 2, 7, 7)
        assert weights[..., torch.ones(7, 7).triu(1).bool()].abs().max() == 0
        assert weights[1, :, :, 4:].abs().max() == 0
        assert each.worked.attended.logits.shape[-4:] == (2, 2, 7, 7)
        assert each.operator is operator
    assert all(block.attention.watched is None for block in model.blocks())
