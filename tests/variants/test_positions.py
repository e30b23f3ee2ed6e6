"""Positions: what each scheme adds or turns, against plain Python and published numbers."""

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from ablate.variants import Learned, NoPositions, Operator, Rotary, Tokens, Transformer, Yarn, softmax, ssa
from ablate.variants.model.named_backbones import tiny
from ablate.variants.operator import causal, distances
from ablate.variants.papers.integral import differential
from ablate.variants.stages.positions import T5, Alibi, Bucket, Positions, Sinusoidal

EVERY: list[Positions] = [
    NoPositions(),
    Learned(count=63),
    Sinusoidal(),
    Rotary(),
    Rotary(share=0.5),
    Yarn(factor=4, original=64),
    Alibi(),
    T5(),
    Bucket(),
]
BIASES: list[Positions] = [Alibi(), T5(), T5(count=8, max_distance=20), Bucket(), Bucket(count=6, max_distance=9)]


def by_kind(positions: Positions) -> str:
    return "-".join(str(value) for value in positions.data().values())


def table(positions: Positions, heads: int) -> Tensor | None:
    made = torch.Generator().manual_seed(0)
    return torch.randn(positions.buckets, heads, generator=made) if positions.buckets else None


def test_every_scheme_is_tried_here() -> None:
    assert {get_args(member.model_fields["kind"].annotation)[0] for member in Positions.members().values()} == {
        positions.label for positions in EVERY
    }


@pytest.mark.parametrize("encoder", [False, True], ids=["causal", "encoder"])
@pytest.mark.parametrize("positions", EVERY, ids=by_kind)
def test_a_model_with_any_positions_learns_its_tables(positions: Positions, encoder: bool) -> None:
    backbone = tiny("llama2").changed(positions=positions, causal=not encoder)
    model = Transformer(backbone, [softmax()] * 2, inputs=Tokens(11), seed=0)
    model(torch.arange(13)[None] % 11).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    tables = 13 * 64 if positions.table else 32 * 4 if positions.buckets else 0
    found = [p for name, p in model.named_parameters() if name.startswith("position")]
    assert sum(int((p.grad != 0).sum()) for p in found) <= tables
    assert bool(found) == bool(tables)


@pytest.mark.parametrize("causal_model", [True, False], ids=["causal", "encoder"])
@pytest.mark.parametrize("positions", BIASES, ids=by_kind)
def test_what_is_added_depends_on_the_distance_alone(positions: Positions, causal_model: bool) -> None:
    bias = positions.bias(distances(63, 63), 4, table(positions, 4), causal=causal_model)
    assert bias is not None
    assert positions.adds_bias
    for offset in range(-62, 1 if causal_model else 63):
        diagonal = bias.diagonal(offset, -2, -1)
        assert (diagonal == diagonal[:, :1]).all()
    assert len(bias[0][causal(63, 63)].unique()) > 3


def test_alibi_of_eight_heads_halves_from_head_to_head() -> None:
    bias = Alibi().bias(distances(7, 7), 8, None, causal=True)
    assert bias[:, 5, 4].tolist() == [-1 / 2**h for h in range(1, 9)]
    assert bias[0, 6].tolist() == [-3.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0]


def test_sinusoidal_waves_are_those_of_plain_python() -> None:
    found = Sinusoidal().embedding(13, 7, torch.device("cpu"))
    for t, row in enumerate(found.tolist()):
        for channel, value in enumerate(row):
            angle = t / 10_000 ** (channel // 2 * 2 / 7)
            assert value == pytest.approx(math.cos(angle) if channel % 2 else math.sin(angle), abs=1e-6)


def t5_bucket(distance: int, count: int, max_distance: int, *, encoder: bool) -> int:
    """T5's own rule, in its own words: logarithms, rounded down."""
    start = 0
    if encoder:
        count //= 2
        start = count if distance < 0 else 0
        distance = abs(distance)
    distance, exact = max(distance, 0), count // 2
    if distance < exact:
        return start + distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (count - exact)
    return start + min(exact + int(grown), count - 1)


@pytest.mark.parametrize("encoder", [False, True], ids=["causal", "encoder"])
@pytest.mark.parametrize(("count", "max_distance"), [(32, 128), (8, 20), (16, 100), (12, 63)])
def test_buckets_are_those_of_t5(count: int, max_distance: int, encoder: bool) -> None:
    positions = T5(count=count, max_distance=max_distance)
    numbered = torch.arange(count, dtype=torch.float64)[:, None].expand(count, 3)
    distance = distances(257, 257)
    found = positions.bias(distance, 3, numbered, causal=not encoder)
    expected = [[t5_bucket(d, count, max_distance, encoder=encoder) for d in row] for row in distance.tolist()]
    assert found.tolist() == [expected] * 3


@pytest.mark.parametrize("positions", BIASES, ids=by_kind)
def test_what_is_added_may_not_turn_a_mass_negative(positions: Positions) -> None:
    kernel = Operator(product={"kind": "relu"}, score={"kind": "identity"})
    with pytest.raises(ValueError, match="add to the logits, which score 'identity' then takes below zero"):
        kernel.check(heads=4, kv_heads=4, head_width=16, positions=positions)
    for harmless in (Rotary(), Sinusoidal(), Learned(count=7), NoPositions()):
        kernel.check(heads=4, kv_heads=4, head_width=16, positions=harmless)
    softmax().check(heads=4, kv_heads=4, head_width=16, positions=positions)


@pytest.mark.parametrize("operator", [softmax(), ssa()], ids=["softmax", "ssa"])  # one on each path
@pytest.mark.parametrize(("encoder", "learned", "step"), [(False, 1, -1), (True, 1, -1), (True, 17, 1)])
def test_what_positions_add_reaches_every_layer(operator: Operator, encoder: bool, learned: int, step: int) -> None:
    """With a large number in the bucket of one distance, a query attends to the key there and to nothing else."""
    backbone = tiny("llama2").changed(positions=T5(), causal=not encoder)
    model = Transformer(backbone, [operator] * 2, inputs=Tokens(11), seed=0)
    model.position_bias["4"].weight.data.zero_()[learned] = 1e9
    for layer in model.layers:
        layer.attention.out.weight.data = torch.eye(64)
        layer.attention.register_forward_hook(lambda module, given, found: read.append((module, given[0], found)))
    read: list[tuple[torch.nn.Module, Tensor, Tensor]] = []
    model(torch.arange(11)[None])
    assert len(read) == 2
    for attention, x, found in read:
        values = attention.qkv(x)[0, :, 128:]
        inner = slice(1, 10)
        torch.testing.assert_close(found[0, inner], values.roll(-step, 0)[inner], rtol=1e-5, atol=1e-6)


def test_layers_of_other_head_counts_have_a_table_of_their_own() -> None:
    backbone = tiny("gpt2").changed(positions=T5())
    model = Transformer(backbone, [softmax(), differential()], inputs=Tokens(11), seed=0)
    tables = {name: tuple(p.shape) for name, p in model.named_parameters() if name.startswith("position_bias")}
    assert tables == {"position_bias.2.weight": (32, 2), "position_bias.4.weight": (32, 4)}
    plain = Transformer(backbone, [softmax()] * 2, inputs=Tokens(11), seed=0)
    assert torch.equal(plain.position_bias["4"].weight, model.position_bias["4"].weight)


FOUR = Yarn(factor=4, original=2048)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_at_factor_one_it_is_rotary_bit_for_bit(dtype: torch.dtype, share: float) -> None:
    x = random(2, 3, 63, 32).to(dtype)
    for signals in (1, 2):
        found = Yarn(factor=1, original=64, base=100.0, share=share).rotate(x, signals=signals)
        assert torch.equal(found, Rotary(base=100.0, share=share).rotate(x, signals=signals))


def test_the_ramp_and_the_factor_of_logits_are_the_published_ones() -> None:
    """Heads of 64 and 96 channels, and signals of 12 and 8, stretched from 2048 to 8192."""
    assert [FOUR.bounds(turning) for turning in (64, 96, 12, 8)] == [(8, 21), (12, 31), (1, 4), (1, 3)]
    assert FOUR.scale == pytest.approx(1.1386, abs=5e-5)


def turn(row: list[float], t: int, spec: Yarn) -> list[float]:
    """Plain Python: one signal whose first share of channels turns."""
    turning = round(spec.share * len(row))
    places = [
        turning * math.log(spec.original / beta / 2 / math.pi) / math.log(spec.base) / 2
        for beta in (spec.beta_fast, spec.beta_slow)
    ]
    low, high = (math.floor(places[0]), math.ceil(places[1])) if spec.rounded else places
    low = max(low, 0)
    scale, out = 1 + math.log(spec.factor) / 10, list(row)
    for i in range(turning // 2):
        slow = 0.0 if i <= low else 1.0 if i >= high else (i - low) / (high - low)
        usual = 1 / spec.base ** (2 * i / turning)
        angle = t * (slow * usual / spec.factor + (1 - slow) * usual)
        pair = complex(row[i], row[i + turning // 2]) * complex(math.cos(angle), math.sin(angle)) * scale
        out[i], out[i + turning // 2] = pair.real, pair.imag
    return out


@pytest.mark.parametrize(
    "spec",
    [
        FOUR,
        Yarn(factor=3, original=100, base=500.0, share=0.5),
        Yarn(factor=2.5, original=63, beta_fast=7, beta_slow=2, rounded=False),
        Yarn(factor=32, original=4096, base=150_000.0, rounded=False),  # gpt-oss
    ],
    ids=lambda spec: f"{spec.factor:g}-{spec.original}",
)
@pytest.mark.parametrize("signals", [1, 2])
def test_angles_are_those_of_plain_python(spec: Yarn, signals: int) -> None:
    x = random(1, 1, 7, 32)
    found = spec.rotate(x.repeat(1, 1, 20, 1), signals=signals)[0, 0, -7:].tolist()
    width = 32 // signals
    for t, row in enumerate(x[0, 0].tolist(), start=133):
        expected = [value for at in range(0, 32, width) for value in turn(row[at : at + width], t, spec)]
        assert found[t - 133] == pytest.approx(expected, abs=1e-12)
