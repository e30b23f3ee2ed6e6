"""Models of the papers, every operator in every family, and which layers get the operator."""

import pytest
import torch

from ablate import LinearFunctions, Text, Training, Trial
from ablate.grid.errors import SpecError
from ablate.variants import Backbone, Operator, Placement, Scalars, Tokens, Transformer, gpt2, integral, softmax, ssa
from ablate.variants.laws.examples import every_choice
from ablate.variants.model import named_backbones
from ablate.variants.model.named_backbones import FAMILIES, Family, tiny
from ablate.variants.model.shapes import shapes_only
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.stages.visible import Prefix

NAMED = {f"named {name}": known.make() for name, known in catalogue().items()}
KNOWN = {operator.key for operator in NAMED.values()}
EVERY = {operator.name: operator for operator in every_choice() if operator.key not in KNOWN} | NAMED
BACKBONES: dict[str, Backbone] = {family: tiny(family) for family in FAMILIES}
REFUSED: dict[Family, set[str]] = {
    **{family: set() for family in FAMILIES},
    "pythia": {"named integral", "named integral_weights"},  # a quarter of the 2 channels of each of 8 signals
    "babyberta": {"visible prefix", "named prefix_lm"},  # an encoder hides nothing
}


def is_refused(operator: Operator, backbone: Backbone) -> bool:
    try:
        backbone.check(operator)
    except ValueError:
        return True
    return False


SIZES: dict[str, tuple[int | None, int]] = {
    "llama2_125m": (32_000, 125_015_808),
    "llama2_1b2": (32_000, 1_195_993_088),
    "pythia_125m": (32_000, 125_020_416),
    "qwen2_125m": (32_000, 125_015_808),
    "icl": (None, 9_609_473),
    "gpt2_small": (50_257, 124_439_808),
    "babyberta_8m": (8_192, 8_524_032),  # RoBERTa has one token-type vector of 256 more
    "sink_60m": (50_432, 58_998_528 + 2 * 50_432 * 768),
    "sink_1b": (50_432, 1_130_457_088 + 2 * 50_432 * 2048),
    "qwen1_5_0b5": (151_936, 463_987_712),
    "llama3_1b": (128_256, 1_235_814_400),
    "llama3_3b": (128_256, 3_212_749_824),
}
"""Vocabulary and parameters of the papers' models."""


@pytest.mark.parametrize("name", SIZES)
def test_models_of_papers_have_their_size(name: str) -> None:
    vocabulary, expected = SIZES[name]
    backbone = getattr(named_backbones, name)()
    inputs = Scalars() if vocabulary is None else Tokens(vocabulary)
    with shapes_only():
        model = Transformer(backbone, [softmax()] * backbone.layers, inputs=inputs, seed=0)
    assert sum(p.numel() for p in model.parameters()) == expected


FEW = ("named softmax", "named ssa", "named principled", "named differential", "named affine_scaled")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operator_trains_in_a_grouped_decoder_and_in_an_encoder_and_a_few_in_every_family(family: Family) -> None:
    """One step of a model with a layer for each operator: finite predictions, gradients and parameters."""
    tried = EVERY if family in ("llama3", "babyberta") else FEW
    names = [name for name in tried if name not in REFUSED[family]]
    backbone = BACKBONES[family].changed(layers=len(names))
    model = Transformer(backbone, [EVERY[name] for name in names], inputs=Tokens(11), seed=0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = torch.randint(11, (2, 13), generator=torch.Generator().manual_seed(0))
    predictions = model(x)
    assert predictions.shape == (2, 13, 11)
    torch.nn.functional.cross_entropy(predictions.flatten(0, 1), x.flatten()).backward()
    for name, layer in zip(names, model.layers, strict=True):
        assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters()), name
        assert layer.attention.qkv.weight.grad.abs().max() > 0, name
    optimiser.step()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert model(x).isfinite().all()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_cannot_carry_is_known(family: Family) -> None:
    assert {name for name, operator in EVERY.items() if is_refused(operator, BACKBONES[family])} == REFUSED[family]


TASK = LinearFunctions(points=5, batch=8)
WORDS = Text(content_hash="0" * 32, source="/nowhere/text.txt", context=13)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": tiny("gpt2").changed(causal=False)}, "model.causal=False sees what comes next, .* use .*True"),
        ({"task": WORDS, "model": tiny("babyberta")}, "model.causal=False sees what comes next"),
        ({"operator": Operator(visible=Prefix(length=3))}, "a query inside the prefix sees the prefix's later keys"),
        ({"model": tiny("llama2").changed(read_out="mlm")}, "read_out='mlm' predicts tokens, and the task has none"),
        ({"model": gpt2(layers=1, heads=1, width=8, max_positions=9).changed(sink_tokens=1)}, "9 positions, 1 of"),
        ({"operator": catalogue()["differential"].make(), "model": tiny("llama3").changed(kv_heads=1)}, "kv_heads"),
        ({"placement": {"side": "inner"}}, "2 layers have none"),
    ],
)
def test_a_trial_that_cannot_be_meant_is_refused(fields: dict[str, object], said: str) -> None:
    trial = Trial(task=TASK, model=tiny("gpt2"), operator=softmax(), training=Training(steps=1))
    with pytest.raises(SpecError, match=said):
        trial.changed(**fields)


THERE = ssa()


def layers(placement: Placement, count: int) -> list[int]:
    return [layer for layer, operator in enumerate(placement.operators(THERE, count)) if operator == THERE]


@pytest.mark.parametrize(
    ("placement", "count", "expected"),
    [
        (Placement(share=0.5), 20, range(10, 20)),  # paper 002
        (Placement(share=0.5), 22, range(11, 22)),
        (Placement(share=0.5, side="bottom"), 22, range(11)),
        (Placement(share=0.25), 22, range(16, 22)),  # 5.5, rounded up
        (Placement(share=0.3), 10, range(7, 10)),  # not 4, although 0.3 * 10 > 3 in binary
        (Placement(), 7, range(7)),
        (Placement(side="inner"), 7, range(1, 6)),  # Cog
        (Placement(side="inner"), 3, [1]),
        (Placement(side="alternate"), 7, [0, 2, 4, 6]),
        (Placement(side="alternate"), 6, [1, 3, 5]),
        (Placement(side="alternate"), 1, [0]),
    ],
    ids=lambda value: value.label if isinstance(value, Placement) else str(value),
)
def test_a_placement_selects_its_layers(placement: Placement, count: int, expected: object) -> None:
    assert layers(placement, count) == list(expected)
    assert layers(placement.on(count), count) == list(expected)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 13])
def test_placements_of_the_same_layers_are_one_spec(count: int) -> None:
    every = [Placement(side=side, share=share) for side in ("top", "bottom") for share in (0.01, 0.3, 0.5, 0.7, 1)]
    every += [Placement(side="alternate"), *([Placement(side="inner")] if count > 2 else [])]
    exact = [placement.on(count) for placement in every]
    for one in exact:
        assert one.on(count) == one
        for other in exact:
            assert (one == other) is (layers(one, count) == layers(other, count))


@pytest.mark.parametrize(
    "placement", [Placement(share=0.9, rest=integral(2)), Placement(share=0.01, rest=integral(2))], ids=["most", "few"]
)
def test_a_rest_without_layers_is_refused(placement: Placement) -> None:
    with pytest.raises(ValueError, match=f"share {placement.share:g} of 1 layers is all of them"):
        placement.on(1)
    with pytest.raises(ValueError, match="side='alternate' of 1 layers is all of them"):
        Placement(side="alternate", rest=integral(2)).on(1)
