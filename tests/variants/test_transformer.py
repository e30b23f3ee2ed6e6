"""The host Transformer: sizes, seeds, what is shared and what is not."""

import pytest
import torch

from grid.errors import SpecError
from variants import (
    Backbone,
    Ground,
    LogCount,
    Number,
    Operator,
    Placement,
    Scalars,
    Suppress,
    Tokens,
    Transformer,
    gpt2,
    integral,
    llama2,
    principled,
    softmax,
    ssa,
)

TINY = gpt2(layers=2, heads=2, width=16, max_positions=32)


SCALARS = Scalars()


def build(
    operator: Operator, backbone: Backbone = TINY, *, seed: int = 0, inputs: Scalars | Tokens = SCALARS
) -> Transformer:
    return Transformer(backbone, [operator] * backbone.layers, inputs=inputs, seed=seed)


def parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_the_model_of_paper_003_has_its_used_parameters() -> None:
    assert parameters(build(softmax(), gpt2(layers=12, heads=8, width=256))) == 9_609_473


def test_the_small_model_of_paper_002_has_its_parameters() -> None:
    with torch.device("meta"):
        blocks = llama2(layers=20, heads=8, width=768, feedforward_width=1155)
    assert parameters(build(softmax(), blocks, inputs=Tokens(32_000))) == 125_015_808


@pytest.mark.parametrize(
    ("per", "expected"),
    [
        ("constant", 0),
        ("layer", 3 * 2 + 8 * 2),
        ("head", 3 * 4 + 8 * 4),
        ("query", 3 * 4 * (1 + 8 + 4) + 8 * 4),
    ],
)
def test_parameters_follow_from_the_granularity(per: str, expected: int) -> None:
    """2 layers, 2 heads of 8 channels, a gate of 4 added channels: three scalars and one vector."""
    model = build(principled(per, gate_width=4))
    gates = 2 * (16 + 1) * 2 * 2 * 4
    assert model.operator_parameters() == expected + gates
    assert parameters(model) == parameters(build(softmax())) + expected + gates


def test_a_split_gate_adds_no_parameters() -> None:
    split = principled(gate_width=4, gate_dims="split")
    assert parameters(build(split)) == parameters(build(softmax()))


def test_adding_a_component_leaves_all_other_weights_alone() -> None:
    plain, rich = build(softmax()).state_dict(), build(principled("query", gate_width=4)).state_dict()
    assert set(plain) < set(rich)
    assert all(torch.equal(rich[name], value) for name, value in plain.items())


def test_adding_a_layer_leaves_the_projections_of_the_others_alone() -> None:
    short = build(softmax()).state_dict()
    long = build(softmax(), gpt2(layers=3, heads=2, width=16, max_positions=32)).state_dict()
    assert torch.equal(short["layers.1.attention.qkv.weight"], long["layers.1.attention.qkv.weight"])


def test_another_seed_is_another_model() -> None:
    one, other = build(softmax()).state_dict(), build(softmax(), seed=1).state_dict()
    matrices = [name for name in one if name.endswith("weight") and "norm" not in name]
    assert not any(torch.equal(one[name], other[name]) for name in matrices)


def test_a_learned_constant_is_one_parameter_for_all_layers() -> None:
    gate = Suppress(width=4, dims="split", strength=Number(init=-5.0, learned=True))
    model = build(Operator(gate=gate))
    assert len(model.number_parameters()) == 1
    assert {round(value, 6) for *_, value in model.numbers()} == {-5.0}


def test_per_signal_rotary_is_not_a_temperature() -> None:
    backbone = llama2(layers=1, heads=2, width=16, feedforward_width=16)
    x = torch.randn(2, 9, 1, generator=torch.Generator().manual_seed(0))
    per_signal, before = (build(integral(2, rotary=each), backbone) for each in ("per_signal", "before_split"))
    for model in (per_signal, before):
        model.layers[0].attention.qkv.weight.data *= 30
    assert not torch.allclose(per_signal(x), before(x))


def test_rotary_positions_are_relative() -> None:
    positions = llama2(layers=1, heads=1, width=8, feedforward_width=8).positions
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned_q, turned_k = (positions.rotate(x.expand(1, 1, 20, 8), signals=2).double() for x in (q, k))
    products = turned_q[0, 0] @ turned_k[0, 0].T
    for offset in (0, 3, 7):
        diagonal = products.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-5, atol=1e-6)


def test_the_top_half_may_differ_from_the_bottom() -> None:
    placed = Placement(share=0.5).operators(ssa(), 2)
    model = Transformer(TINY, placed, inputs=Scalars(), seed=0)
    assert model.paths() == ["sdpa", "reference"]
    assert {layer for layer, *_ in model.numbers()} == {1}


def test_a_sequence_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(SpecError, match="33 is longer than the 32 learned positions"):
        build(softmax())(torch.zeros(1, 33, 1))


def test_a_path_that_cannot_is_refused_with_the_reason() -> None:
    with pytest.raises(SpecError, match="sdpa computes score 'exponential' only, not 'ssa'"):
        Transformer(TINY, [ssa()] * 2, inputs=Scalars(), seed=0, path="sdpa")


def test_tokens_share_the_read_out_when_tied() -> None:
    model = build(softmax(), inputs=Tokens(11))
    assert model(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 5, 11)
    assert model.read_out.weight is model.read_in.weight


@pytest.mark.parametrize(
    "backbone", [TINY, llama2(layers=1, heads=2, width=16, feedforward_width=16)], ids=["gpt2", "llama2"]
)
def test_a_model_first_seen_in_an_evaluation_can_be_trained(backbone: Backbone) -> None:
    model, x = build(ssa(), backbone), torch.ones(1, 23, 1)  # a length no other test uses
    with torch.inference_mode():
        model(x)
    model(x).sum().backward()
    assert model.read_in.weight.grad is not None


def test_a_constant_may_lie_on_the_border_of_its_range() -> None:
    model = build(ssa(n=1.0, per="constant"))  # n >= 1; training could only approach 1
    assert model.number_parameters() == []
    assert model(torch.ones(1, 3, 1)).isfinite().all()


def test_different_operators_share_no_constant() -> None:
    learned = Ground(threshold=Number(init=0.0, learned=True))
    rest, top = Operator(normaliser=learned), Operator(margin=LogCount(), normaliser=learned)
    model = Transformer(TINY, Placement(share=0.5, rest=rest).operators(top, 2), inputs=SCALARS, seed=0)
    assert len(model.number_parameters()) == 2


def test_a_large_exponent_can_be_trained() -> None:
    model = build(ssa(n=1000.0))
    assert {round(value, 2) for _, _, name, value in model.numbers() if name == "score.n"} == {1000.0}
