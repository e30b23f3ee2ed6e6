"""Knock-out: a model computed with stages at their default choice, against models that were built so."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from ablate.variants import (
    Alibi,
    Backbone,
    NoPositions,
    Number,
    Operator,
    Placement,
    Rotary,
    Tokens,
    Transformer,
    Uniform,
    fox,
    gpt2,
    principled,
    principled_ground,
    sliding_window,
    softmax,
    ssa,
)
from ablate.variants.laws.examples import examples, named_operators
from ablate.variants.laws.inputs import fit
from ablate.variants.model.head_attention import HeadScales
from ablate.variants.model.knockout import changed_stages, components, differing_stages, without

NAMED = {operator.name: operator for operator in named_operators()}
TOKENS = Tokens(7)
X = torch.randint(7, (3, 32), generator=torch.Generator().manual_seed(0))


def backbone_of(operator: Operator) -> Backbone:
    """Build the smallest model that an operator fits."""
    found, joined = fit(operator), operator.merge.heads_joined
    heads = found.heads * joined
    positions = Rotary() if found.rotary else NoPositions()
    backbone = gpt2(layers=2, heads=heads, width=heads * found.channels // joined, max_positions=32)
    return backbone.changed(positions=positions)


def trained(backbone: Backbone, operators: Sequence[Operator], path: str = "auto") -> Transformer:
    """Build a model whose every parameter is away from its start."""
    model = Transformer(backbone, operators, inputs=TOKENS, seed=0, path=path).eval()  # type: ignore[arg-type]
    drawn = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn) * 0.3)
    return model


def rebuilt(model: Transformer, operators: Sequence[Operator]) -> Transformer:
    """Build another model of the same weights, where it has them. Joined heads stay as wide as they are."""
    heads = next(iter(model.blocks())).attention.heads * operators[0].merge.heads_joined
    other = Transformer(model.backbone.changed(heads=heads), operators, inputs=TOKENS, seed=5).eval()
    known = model.state_dict()
    other.load_state_dict({name: known[name] for name in other.state_dict()})
    return other


@torch.inference_mode()
def output(model: Transformer, x: Tensor = X) -> Tensor:
    return model(x)  # type: ignore[no-any-return]


def test_there_are_fifty_named_operators() -> None:
    assert len(NAMED) == 50


@pytest.mark.parametrize("name", NAMED)
def test_all_components_out_leave_softmax_with_the_same_weights(name: str) -> None:
    operator = NAMED[name]
    model = trained(backbone_of(operator), [operator] * 2)
    before, own = copy.deepcopy(model.state_dict()), output(model)
    with model.knock_out(changed_stages(operator)):
        found = output(model)
    assert torch.equal(found, output(rebuilt(model, [softmax()] * 2)))
    assert torch.equal(output(model), own)
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[each], value) for each, value in after.items())


@pytest.mark.parametrize("name", NAMED)
def test_uniform_attention_is_that_of_a_constant_score(name: str) -> None:
    operator = NAMED[name]
    model = trained(backbone_of(operator), [operator] * 2)
    own = output(model)
    with model.attend_uniformly():
        found = output(model)
    torch.testing.assert_close(found, output(rebuilt(model, [Operator(score=Uniform())] * 2)), rtol=1e-5, atol=1e-5)
    assert torch.equal(output(model), own)


def test_uniform_attention_knows_no_position_bias() -> None:
    model = trained(backbone_of(softmax()).changed(positions=Alibi()), [softmax()] * 2)
    seen = torch.ones(1, 1, 32, dtype=torch.bool)
    seen[..., :5] = False
    with torch.inference_mode():
        expected = rebuilt(model, [Operator(score=Uniform())] * 2)(X, seen)
        with model.attend_uniformly():
            torch.testing.assert_close(model(X, seen)[:, 5:], expected[:, 5:], rtol=1e-5, atol=1e-5)


def test_factors_of_heads_are_a_temperature_and_a_size() -> None:
    warm = softmax().changed(transform={"kind": "temperature", "tau": {"init": 4.0, "link": "positive"}})
    model = trained(backbone_of(softmax()).changed(positions=Rotary()), [warm] * 2)
    sizes = torch.tensor([0.5, 3.0]).view(2, 1, 1)
    with (
        model.knock_out(["transform"]),
        model.scale_heads([HeadScales(torch.full((2, 1, 1), 0.25), sizes), HeadScales(torch.tensor(0.25), sizes)]),
    ):
        found = output(model)
    with torch.no_grad():
        for block in model.blocks():
            block.attention.out.weight.mul_(sizes.flatten().repeat_interleave(block.attention.channels))
    torch.testing.assert_close(found, output(model), rtol=1e-5, atol=1e-5)


def test_adjusted_numbers_compute_and_come_back() -> None:
    cool, warm = (ssa().changed(score=ssa().score.changed(n=Number(init=each, link="positive"))) for each in (1.0, 2.0))
    model = trained(backbone_of(cool), [cool] * 2)
    own = output(model)
    with model.adjust_numbers(lambda layer, numbers, _: {**numbers, "score.n": numbers["score.n"] * (1 + layer)}):
        found = output(model)
    assert torch.equal(found, output(rebuilt(model, [cool, warm])))
    assert torch.equal(output(model), own)


@pytest.mark.parametrize("name", [name for name, operator in NAMED.items() if len(components(operator)) > 1])
def test_each_component_alone_is_the_operator_without_it(name: str) -> None:
    operator = NAMED[name]
    model = trained(backbone_of(operator), [operator] * 2)
    own = output(model)
    for component in components(operator):
        left = without(operator, component)
        assert changed_stages(left) == tuple(each for each in changed_stages(operator) if each not in component)
        with model.knock_out(component):
            found = output(model)
        assert torch.equal(found, output(rebuilt(model, [left] * 2)))
        assert found.isfinite().all()
        assert not torch.equal(found, own)


def test_every_operator_has_components_that_can_go() -> None:
    for operator in examples():
        found = components(operator)
        assert sorted(stage for each in found for stage in each) == sorted(changed_stages(operator))
        for component in found:
            assert not set(component) & set(changed_stages(without(operator, component)))
        assert without(operator, changed_stages(operator)).key == Operator().key


def test_stages_that_need_each_other_go_together() -> None:
    found = {name: components(operator) for name, operator in NAMED.items()}
    assert found["principled"] == (("margin",), ("gate",), ("normaliser", "readout"))
    assert found["differential"] == (("signals", "merge"), ("head_norm",))
    assert found["cog"] == (("score", "normaliser"),)
    assert found["cosformer"] == (("product", "score"),)
    assert changed_stages(without(NAMED["principled"], ("readout",))) == ("margin", "gate")


def test_only_what_differs_can_be_named() -> None:
    weaker = principled("head", gate_width=4)
    assert differing_stages(weaker, principled("query", gate_width=4)) == ("margin", "gate", "normaliser")
    assert differing_stages(weaker, weaker.changed(name="other")) == ()


@pytest.mark.parametrize("per", ["head", "query"])
def test_a_gate_out_is_a_gate_of_no_strength(per: str) -> None:
    """Numbers per query keep reading the gate channels, which no model without a gate has."""
    operator = principled(per, gate_width=4)  # type: ignore[arg-type]
    model = trained(gpt2(layers=2, heads=2, width=16, max_positions=32), [operator] * 2)
    with model.knock_out(["gate"]):
        found = output(model)
    with torch.no_grad():
        for block in model.blocks():
            block.attention.numbers.table["gate_strength"].fill_(-200)
            if "gate_strength" in block.attention.numbers.projection:
                block.attention.numbers.projection["gate_strength"].zero_()
    torch.testing.assert_close(found, output(model), rtol=1e-5, atol=1e-5)


def test_a_gate_that_splits_leaves_the_other_channels() -> None:
    operator = principled("head", gate_width=4, gate_dims="split")
    model = trained(gpt2(layers=1, heads=2, width=16, max_positions=32).changed(positions=Rotary()), [operator])
    with model.knock_out(["gate"]):
        found = output(model)
    with torch.no_grad():
        for block in model.blocks():
            block.attention.numbers.table["gate_strength"].fill_(-200)
    torch.testing.assert_close(found, output(model), rtol=1e-5, atol=1e-5)


def test_what_does_nothing_changes_nothing_when_it_goes() -> None:
    window = trained(gpt2(layers=2, heads=2, width=16, max_positions=32), [sliding_window(32)] * 2)
    own = output(window)
    with window.knock_out(["visible"]):
        torch.testing.assert_close(output(window), own, rtol=0, atol=1e-6)
    operator = principled_ground("head")
    ground = operator.changed(normaliser=operator.normaliser.changed(threshold=Number(init=-60.0)))
    model = Transformer(gpt2(layers=2, heads=2, width=16, max_positions=32), [ground] * 2, inputs=TOKENS, seed=0).eval()
    own = output(model)
    with model.knock_out(["normaliser"]):
        torch.testing.assert_close(output(model), own, rtol=0, atol=1e-6)


def test_layers_lose_what_they_have() -> None:
    backbone = gpt2(layers=2, heads=2, width=16, max_positions=32)
    operators = Placement(share=0.5, rest=fox()).operators(ssa(), 2)
    model = trained(backbone, operators)
    assert components(*operators) == (("forgetting",), ("score",))
    for stages, left in (
        (["score"], [fox(), softmax()]),
        (["forgetting"], [softmax(), ssa()]),
        (["forgetting", "score"], [softmax()] * 2),
    ):
        with model.knock_out(stages):
            found = output(model)
        assert torch.equal(found, output(rebuilt(model, left)))


def test_a_path_by_name_is_left_for_what_it_cannot_run() -> None:
    backbone = gpt2(layers=1, heads=2, width=16, max_positions=32)
    model = trained(backbone, [ssa()], "cpu")
    with model.knock_out(["score"]):
        torch.testing.assert_close(output(model), output(rebuilt(model, [softmax()])))


def test_traces_show_what_computes() -> None:
    model = trained(gpt2(layers=1, heads=2, width=16, max_positions=32), [ssa()])
    with model.knock_out(["score"]):
        (trace,) = model.trace_layers(X)
        assert trace.operator.key == Operator().key
    assert next(iter(model.trace_layers(X))).operator == ssa()


def test_an_exception_restores_the_model() -> None:
    model = trained(gpt2(layers=1, heads=2, width=16, max_positions=32), [ssa()])
    own = output(model)
    with pytest.raises(ZeroDivisionError), model.knock_out(["score"]):
        raise ZeroDivisionError
    assert torch.equal(output(model), own)
