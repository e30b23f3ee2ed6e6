"""Attention as a module of its own, in code that is not ours."""

import copy
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ablate.grid.errors import SpecError
from ablate.variants import (
    MLP,
    Alibi,
    Attention,
    AttentionOp,
    Backbone,
    Learned,
    Matrix,
    NoPositions,
    Number,
    Operator,
    PerHead,
    Positions,
    Rotary,
    Scalars,
    Transformer,
    affine_scaled,
    cog,
    differential,
    four_scores,
    fox,
    llama2,
    principled,
    softmax,
    ssa,
    undecayed_parameters,
    value_bias,
)
from ablate.variants.laws.examples import every_choice, named_operators
from ablate.variants.laws.inputs import granularity_levels

WIDTH, HEADS, LENGTH = 48, 4, 11
OPERATORS = {each.key: each for each in (*named_operators(), *every_choice())}


def backbone_of(operator: Operator, **fields: Any) -> Backbone | None:
    """A backbone that takes the operator, with rotary positions if it can; None if no heads of 12 channels do."""
    backbone = llama2(layers=2, heads=HEADS, width=WIDTH, feedforward_width=8)
    for positions in (Rotary(), NoPositions()):
        try:
            found = Backbone.model_validate({**backbone.data(), **fields, "positions": positions.data()})
            found.check(operator)
        except ValueError:
            continue
        return found
    return None


def layer_of(operator: Operator, **fields: Any) -> Attention:
    backbone = backbone_of(operator, **fields)
    if backbone is None:
        pytest.skip("it needs other heads")
    torch.manual_seed(0)
    return Attention(
        operator,
        width=WIDTH,
        heads=HEADS,
        kv_heads=backbone.kv_heads,
        layer=1,
        layers=2,
        positions=backbone.positions,
        shared={},
    )


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kv_heads", [None, 2])
@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda each: each.label)
def test_it_is_the_attention_of_the_transformer_and_of_projected_heads(
    operator: Operator, kv_heads: int | None
) -> None:
    """One layer three times: as a module, in the Transformer, and as projections around `AttentionOp`."""
    layer = layer_of(operator, kv_heads=kv_heads).eval()
    backbone = backbone_of(operator, kv_heads=kv_heads)
    assert backbone is not None
    inside = Transformer(backbone, [operator] * 2, inputs=Scalars(), seed=0).eval().blocks()[1].attention
    inside.load_state_dict(layer.state_dict())
    x = draw(2, LENGTH, WIDTH)
    torch.testing.assert_close(layer(x), inside(x), rtol=0, atol=0)

    op = AttentionOp(
        operator,
        heads=HEADS,
        head_width=12,
        width=WIDTH,
        kv_heads=kv_heads,
        layer=1,
        layers=2,
        positions=backbone.positions,
        shared={},
    ).eval()
    op.load_state_dict({name: value for name, value in layer.state_dict().items() if name in op.state_dict()})
    q, k, v = layer.qkv(x).split([12 * count for count in (HEADS, kv_heads or HEADS, kv_heads or HEADS)], -1)
    y = op(*(each.unflatten(-1, (-1, 12)).transpose(1, 2) for each in (q, k, v)), x)
    assert y.shape == (2, HEADS, LENGTH, 12)
    torch.testing.assert_close(layer.out(y.transpose(1, 2).flatten(2)), layer(x))


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda each: each.label)
def test_parameters_with_two_dimensions_are_those_under_weight_decay_at_every_granularity(operator: Operator) -> None:
    for each in (operator, *granularity_levels(operator)):
        layer = layer_of(each)
        few = {name for name, parameter in layer.named_parameters() if parameter.dim() < 2}
        spared = {id(parameter) for parameter in undecayed_parameters(layer)}
        assert few == {name for name, parameter in layer.named_parameters() if id(parameter) in spared}


def test_matrices_and_projections_from_the_input_are_under_weight_decay() -> None:
    kernel, gated = layer_of(Operator(product=MLP(inner=Matrix(), outer=Matrix()))), layer_of(fox())
    assert undecayed_parameters(kernel) == []
    (table,) = undecayed_parameters(gated)
    assert table is gated.numbers.table["forgetting_gate"]
    assert len(undecayed_parameters(nn.ModuleList([gated, layer_of(ssa())]))) == 3


@pytest.mark.parametrize("per", ["constant", "layer", "head", "query", "token"])
@pytest.mark.parametrize("build", [Attention, AttentionOp])
def test_numbers_have_their_value_at_the_first_step(build: type, per: str) -> None:
    gate = Number(init=0.3, per=per, link="unit", learned=True if per == "constant" else None)
    more = {"head_width": 12} if build is AttentionOp else {}
    module = build(Operator(output_gate=PerHead(opening=gate)), width=WIDTH, heads=HEADS, **more)
    values = module.numbers.values(draw(2, HEADS, LENGTH, 12), draw(2, LENGTH, WIDTH))
    torch.testing.assert_close(values["output_gate.opening"], torch.full_like(values["output_gate.opening"], 0.3))


def test_what_starts_at_random_differs_by_layer_and_follows_the_global_seed() -> None:
    def factors(seed: int) -> list[float]:
        torch.manual_seed(seed)
        layers = [Attention(differential(), width=WIDTH, heads=HEADS, layer=layer, layers=2) for layer in (0, 0, 1)]
        x = draw(1, 1, WIDTH)
        return [layer.numbers.values(draw(1, 2, 1, 24), x)["merge.factor"].item() for layer in layers]

    first, other, deeper = factors(0)
    assert first != other
    assert first == pytest.approx(0.2, abs=0.2)
    assert deeper == pytest.approx(0.36, abs=0.2)
    assert factors(0) == [first, other, deeper]


def test_weights_start_like_those_of_gpt2() -> None:
    layer = Attention(principled("head"), width=256, heads=4, layer=0, layers=8, bias="all")
    assert layer.gate is not None
    assert layer.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.gate.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert layer.out.weight.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.05)
    assert not layer.qkv.bias.any()
    assert not layer.out.bias.any()


def test_layers_share_a_learned_constant() -> None:
    operator = value_bias().changed(readout={"kind": "value_bias", "value_bias": {"init": 0.0, "learned": True}})
    shared = dict[str, nn.Parameter]()
    layers = [Attention(operator, width=WIDTH, heads=HEADS, layer=n, layers=2, shared=shared) for n in (0, 1)]
    one, two = (layer.numbers.table["readout_value_bias"] for layer in layers)
    assert one is two
    assert len(undecayed_parameters(nn.ModuleList(layers))) == 1


@pytest.mark.parametrize("operator", [ssa(), fox(), differential(), principled("query"), affine_scaled()])
def test_it_is_saved_whole_by_its_weights_and_by_those_of_earlier_releases(operator: Operator) -> None:
    layer = layer_of(operator)
    model = Transformer(llama2(layers=1, heads=4, width=48, feedforward_width=8), [operator], inputs=Scalars(), seed=0)
    for module, x in ((layer, draw(1, LENGTH, WIDTH)), (model, draw(1, LENGTH, 1))):
        file = io.BytesIO()
        torch.save(module.eval(), file)
        file.seek(0)
        torch.testing.assert_close(torch.load(file, weights_only=False)(x), module(x), rtol=0, atol=0)
    numbers, shaped = layer.numbers, dict[str, Tensor]()
    for kind, view in (("table", numbers.raw_table), ("projection", numbers.raw_projection)):
        for name in numbers.numbers:
            if (place := name.replace(".", "_")) in getattr(numbers, kind):
                shaped[f"numbers.{kind}.{place}"] = view(name).detach()
    assert all(value.dim() > 1 for value in shaped.values())
    other = layer_of(operator)
    for parameter in other.parameters():
        parameter.data.fill_(0.1)
    state = {name: value.detach().clone() for name, value in layer.state_dict().items()}
    other.load_state_dict({name: shaped.get(name, value) for name, value in state.items()})
    x = draw(1, LENGTH, WIDTH)
    torch.testing.assert_close(other.eval()(x), layer(x), rtol=0, atol=0)
    assert {name: value.shape for name, value in other.state_dict().items()} == {n: s.shape for n, s in state.items()}


TOKEN = granularity_levels(principled())[-1].changed(name="principled per token")
SCORED = ssa().changed(score={"kind": "ssa", "n": Number(init=1.5, per="query", link="at_least_one").data()})


@pytest.mark.parametrize(
    "operator",
    [softmax(), ssa(), fox(), principled("query"), cog(), SCORED, *granularity_levels(affine_scaled()), TOKEN],
    ids=lambda each: each.label,
)
def test_autocast_and_the_compiler_compute_the_same(operator: Operator) -> None:
    """Gradients too, which a compiler computes from what it keeps, and from what a running mean has moved to."""
    torch._dynamo.reset()  # it keeps eight graphs of a function
    layer, x = layer_of(operator), draw(2, LENGTH, WIDTH)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * draw(*parameter.shape))
    compiled = torch.compile(copy.deepcopy(layer), backend="aot_eager", fullgraph=True)
    expected = copy.deepcopy(layer)(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = copy.deepcopy(layer)(x)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.05, atol=0.01 * expected.abs().max().item())
    for step in range(2):
        came, own = compiled(x), layer(x)
        torch.testing.assert_close(came, own)
        came.square().sum().backward()
        own.square().sum().backward()
        for one, other in zip((*layer.parameters(),), (*compiled.parameters(),), strict=True):
            torch.testing.assert_close(one.grad, other.grad, msg=f"step {step}")


def test_alibi_adds_to_the_logits_of_a_layer() -> None:
    backbone = llama2(layers=2, heads=4, width=48, feedforward_width=8).changed(positions=Alibi())
    layer = Attention(softmax(), width=WIDTH, heads=HEADS, positions=Alibi())
    model = Transformer(backbone, [softmax()] * 2, inputs=Scalars(), seed=0)
    inside, x = model.blocks()[0].attention, draw(2, LENGTH, WIDTH)
    inside.load_state_dict(layer.state_dict())
    bias = model.bind_layers(LENGTH, x.device)[0].keywords["bias"]  # type: ignore[attr-defined]
    torch.testing.assert_close(layer(x), inside(x, None, bias))


@pytest.mark.parametrize(
    ("operator", "fields"),
    [
        (softmax(), {"heads": 5}),
        (softmax(), {"kv_heads": 3}),
        (softmax(), {"positions": Learned(count=8)}),
        (softmax(), {"layer": 2, "layers": 2}),
        (differential(), {}),  # its numbers start by depth
        (differential(), {"heads": 3, "layer": 0}),
        (four_scores(), {"heads": 2}),
        (Operator(output_gate=PerHead(opening=Number(init=0.5, link="unit", learned=True))), {"layer": 0, "layers": 2}),
    ],
    ids=str,
)
def test_what_has_no_meaning_in_a_layer_is_refused(operator: Operator, fields: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        Attention(operator, **{"width": WIDTH, "heads": HEADS, **fields})
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("wrong", ["q", "k", "v", "x"])
def test_heads_of_another_shape_are_refused(wrong: str) -> None:
    op = AttentionOp(softmax(), heads=4, kv_heads=2, head_width=12, width=WIDTH)
    right = {"q": draw(1, 4, 5, 12), "k": draw(1, 2, 5, 12), "v": draw(1, 2, 5, 12), "x": draw(1, 5, WIDTH)}
    op(**right)
    with pytest.raises(SpecError):
        op(**{**right, wrong: right[wrong][..., :-1]})


PAGE = (Path(__file__).parents[2] / "docs" / "your-model.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("section", PAGE.split("\n## ")[1:], ids=lambda each: each.splitlines()[0])
def test_the_page_runs(section: str) -> None:
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)), "your-model.md", "exec"), {})


def test_both_are_imported_from_the_package() -> None:
    import ablate

    assert ablate.Attention is Attention
    assert ablate.AttentionOp is AttentionOp
    assert ablate.undecayed_parameters is undecayed_parameters
    assert issubclass(ablate.Positions, Positions)
