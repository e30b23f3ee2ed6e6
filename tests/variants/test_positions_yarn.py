"""YaRN: the frequencies it stretches and those it leaves alone, against plain Python and published numbers."""

import math

import pytest
import torch
from torch import Tensor

from variants import Rotary, Yarn

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


@pytest.mark.parametrize(("turning", "bounds"), [(64, (8, 21)), (96, (12, 31)), (12, (1, 4)), (8, (1, 3))])
def test_the_ramp_lies_where_it_was_published(turning: int, bounds: tuple[int, int]) -> None:
    """Heads of 64 and 96 channels, and signals of 12 and 8, stretched from 2048 to 8192."""
    assert FOUR.bounds(turning) == bounds
    found, plain = FOUR.frequencies(turning), Yarn(factor=1, original=2048).frequencies(turning)
    low, high = bounds
    assert torch.equal(found[: low + 1], plain[: low + 1])
    assert torch.equal(found[high:], plain[high:] / 4)
    inside = found[low + 1 : high] / plain[low + 1 : high]
    assert len(inside) == high - low - 1
    assert ((inside > 0.25) & (inside < 1) & (inside.diff(prepend=torch.ones(1)) < 0)).all()


def test_logits_are_multiplied_by_the_published_number() -> None:
    assert FOUR.scale == pytest.approx(1.1386, abs=5e-5)
    q, k = random(2, 1, 1, 1, 64)
    product = FOUR.rotate(q, signals=1)[0, 0, 0] @ FOUR.rotate(k, signals=1)[0, 0, 0]
    assert product / (q[0, 0, 0] @ k[0, 0, 0]) == pytest.approx(1.2965, abs=5e-5)  # position 0 turns nothing


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
