"""The fused path computes the definition: values and gradients, for whatever can be folded into it."""

from itertools import product
from typing import Any

import pytest
import torch
from path_outcomes import outcome, turn
from torch import Tensor
from torch.nn import functional

from ablate.grid.errors import SpecError
from ablate.variants import Heads, Operator, attend, causal, differential, integral, principled, ssa
from ablate.variants.attend import prepare
from ablate.variants.laws.examples import named_operators
from ablate.variants.laws.inputs import random_inputs
from ablate.variants.operator import NumberValues
from ablate.variants.paths import sdpa
from ablate.variants.paths.case import Case
from ablate.variants.paths.choose import PATHS, find_path
from ablate.variants.stages.positions import NoPositions

STAGES: dict[str, tuple[dict[str, Any], ...]] = {
    "extra": ({"kind": "none"}, {"kind": "key_value_bias"}),
    "normaliser": ({"kind": "total"}, {"kind": "sink"}),
    "merge": ({"kind": "logits"}, {"kind": "mean"}, {"kind": "difference"}),
    "rescale": ({"kind": "none"}, {"kind": "affine"}, {"kind": "affine", "n": "context"}),
}
"""Choices that meet in one row; the battery tries every pair of choices, and every choice alone."""
MORE: tuple[dict[str, Any], ...] = (
    {"margin": {"kind": "log_count"}, "transform": {"kind": "temperature"}, "output_gate": {"kind": "per_head"}},
    {"margin": {"kind": "ssmax"}, "normaliser": {"kind": "sink"}, "readout": {"kind": "ground_value"}},
    {"rescale": {"kind": "scale"}, "normaliser": {"kind": "sink"}, "readout": {"kind": "ground_value"}},
    {"rescale": {"kind": "affine"}, "normaliser": {"kind": "sink"}, "readout": {"kind": "ground_value"}},
    {"transform": {"kind": "temperature"}, "readout": {"kind": "value_bias"}, "head_norm": {"kind": "rms"}},
    {"visible": {"kind": "window", "size": 3}, "rescale": {"kind": "affine"}},
    {"visible": {"kind": "prefix", "length": 4}, "extra": {"kind": "key_value_bias"}},
    {"preparation": {"kind": "rms_norm"}, "output_gate": {"kind": "per_channel"}},
)


def operators() -> list[Operator]:
    combined = [dict(zip(STAGES, each, strict=True)) for each in product(*STAGES.values())]
    found = [
        Operator(**choices, signals={"count": 1 if choices["merge"]["kind"] == "logits" else 2}) for choices in combined
    ]
    return [*found, *(Operator(**choices) for choices in MORE), Operator(signals={"count": 4})]


def run(operator: Operator, path: Any, mask: Tensor | None) -> dict[str, Tensor]:
    return outcome(operator, path.run, random_inputs(operator, length=13), mask)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-10, msg=name)


SINKS = [Operator(normaliser={"kind": "sink"}, readout={"kind": readout}) for readout in ("values", "ground_value")]


@pytest.mark.parametrize("operator", SINKS, ids=lambda operator: operator.label)
def test_channels_of_a_sink_are_aligned_off_the_cpu(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, 129 channels would be computed with maps of all weights; eight aligned ones say the same."""

    def fused(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
        widths.append([x.shape[-1] for x in (q, k, v)])
        return attention(q, k, v, **how)

    attention, widths = functional.scaled_dot_product_attention, list[list[int]]()
    expected = run(operator, find_path(operator, "reference"), None)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", fused)
    monkeypatch.setattr(sdpa, "_align", lambda x: functional.pad(x, (0, -x.shape[-1] % 8)))
    monkeypatch.setattr("ablate.variants.paths.sdpa.find_kernel", lambda *_: None)
    assert_equal(run(operator, find_path(operator, "sdpa"), None), expected)
    monkeypatch.undo()
    monkeypatch.setattr(functional, "scaled_dot_product_attention", fused)
    inputs = random_inputs(operator, length=13)
    off_cpu = Heads(*(x.to("meta") for x in (inputs.q, inputs.k, inputs.v)))
    sdpa.run(operator, off_cpu, {name: value.to("meta") for name, value in inputs.numbers.items()})
    assert all(width % 8 == 0 for each in widths for width in each)
    assert len(widths) == 2


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.label)
def test_values_and_gradients_are_those_of_the_definition(operator: Operator) -> None:
    holes = causal(13, 13).clone()
    holes[:, 4], holes[6] = False, False
    for mask in (None, holes, torch.ones(2, 1, 13, 13, dtype=torch.bool)):
        assert_equal(*(run(operator, find_path(operator, name), mask) for name in ("sdpa", "reference")))


@pytest.mark.parametrize(
    "choices", [{"visible": {"kind": "window", "size": 3}}, {"rescale": {"kind": "affine"}}], ids=str
)
@pytest.mark.parametrize("biased", [False, True])
def test_kernels_get_no_query_without_a_visible_key(
    choices: dict[str, Any], biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of such queries were wrong on a GPU."""

    def fused(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, **how: Any) -> Tensor:
        seen = attn_mask if attn_mask.dtype == torch.bool else attn_mask > -float("inf")
        assert seen.any(-1).all()
        return attention(q, k, v, attn_mask, **how)

    attention, operator = functional.scaled_dot_product_attention, Operator(**choices)
    inputs, mask = random_inputs(operator, length=13), torch.ones(2, 1, 1, 13, dtype=torch.bool)
    mask[0, ..., :5] = mask[1, ..., 6:] = False
    bias = torch.zeros(inputs.q.shape[1], 13, 13, dtype=torch.float64) if biased else None
    expected = outcome(operator, find_path(operator, "reference").run, inputs, mask & causal(13, 13), bias)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", fused)
    assert_equal(outcome(operator, sdpa.run, inputs, mask & causal(13, 13), bias), expected)


SINK: dict[str, Any] = {"normaliser": {"kind": "sink"}}


@pytest.mark.parametrize(
    "operator",
    [
        Operator(**SINK),
        Operator(**SINK, margin={"kind": "ssmax"}),
        Operator(**SINK, extra={"kind": "key_value_bias"}, readout={"kind": "ground_value"}),
        Operator(**SINK, merge={"kind": "mean"}, signals={"count": 2}),
        Operator(extra={"kind": "key_bias"}),
    ],
    ids=lambda operator: operator.label,
)
def test_padding_with_a_bias_and_strides_beside_a_sink_are_those_of_the_definition(operator: Operator) -> None:
    inputs = random_inputs(operator, length=13)
    bias = torch.randn(inputs.q.shape[1], 13, 13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    padding = torch.ones(2, 1, 1, 13, dtype=torch.bool)
    padding[1, ..., 9:] = False
    turned = inputs._replace(q=turn(inputs.q), k=turn(inputs.k), v=turn(inputs.v))
    for given, mask, added in ((inputs, padding, bias), (inputs, causal(13, 13)[None], None), (turned, None, None)):
        assert_equal(
            *(outcome(operator, find_path(operator, at).run, given, mask, added) for at in ("sdpa", "reference"))
        )


def test_fewer_queries_than_keys_are_the_last_ones() -> None:
    operator = Operator(normaliser={"kind": "sink"}, extra={"kind": "key_bias"})
    inputs = random_inputs(operator, length=13)
    heads = Heads(inputs.q[:, :, -3:], inputs.k, inputs.v)
    whole = attend(operator, inputs.q, inputs.k, inputs.v, numbers=inputs.numbers).output[:, :, -3:]
    last = {name: value[:, :, -3:] for name, value in inputs.numbers.items()}
    torch.testing.assert_close(sdpa.run(operator, heads, last), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("choices", [{"margin": {"kind": "ssmax"}}, {"transform": {"kind": "temperature"}}], ids=str)
def test_large_logits_keep_their_digits_in_low_precision(choices: dict[str, Any]) -> None:
    operator = Operator(**choices)
    inputs = random_inputs(operator, length=63)
    numbers = {name: value.float() for name, value in inputs.numbers.items()}
    heads = Heads((6 * inputs.q).bfloat16(), (6 * inputs.k).bfloat16(), inputs.v.bfloat16())
    exact = find_path(operator, "reference").run(operator, Heads(*(x.double() for x in heads[:3])), numbers)
    definition, fused = (find_path(operator, name).run(operator, heads, numbers) for name in ("reference", "sdpa"))
    assert (fused - exact).abs().max() <= 2 * (definition - exact).abs().max()


BEYOND_QUERIES_AND_KEYS: tuple[dict[str, Any], ...] = (
    {"margin": {"kind": "ssmax"}},
    {"margin": {"kind": "log_count"}, "rescale": {"kind": "affine"}},
    {"transform": {"kind": "temperature"}},
    {"preparation": {"kind": "rms_norm"}},
    {"normaliser": {"kind": "sink"}, "readout": {"kind": "ground_value"}},
    {"extra": {"kind": "key_value_bias"}},
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("choices", BEYOND_QUERIES_AND_KEYS, ids=str)
def test_what_logits_have_beyond_queries_and_keys_is_rounded_once(choices: dict[str, Any], dtype: torch.dtype) -> None:
    operator = Operator(**choices)
    given = random_inputs(operator, length=63, scale=3.0).to(torch.float32)
    q, k, v = (x.to(dtype) for x in (given.q, given.k, given.v))
    exact = along("reference", operator, q.double(), k.double(), v.double(), given.numbers)
    for autocast in (False, True):
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            came = along("sdpa", operator, q, k, v, given.numbers)
        assert came.dtype == dtype
        half_unit = exact.abs() * torch.finfo(dtype).eps / 2
        assert ((came.double() - exact).abs() <= half_unit + 1e-5).all()


def along(path: Any, operator: Operator, q: Tensor, k: Tensor, v: Tensor, numbers: NumberValues) -> Tensor:
    return find_path(operator, path).run(operator, Heads(*prepare(operator, q, k, NoPositions(), numbers), v), numbers)


def test_a_position_bias_keeps_its_digits_under_autocast() -> None:
    operator = Operator()
    given = random_inputs(operator, length=63, scale=3.0).to(torch.float32)
    heads = Heads(given.q.bfloat16(), given.k.bfloat16(), given.v.bfloat16())
    bias = 30 * torch.randn(1, heads.q.shape[1], 63, 63, generator=torch.Generator().manual_seed(1))
    exact = find_path(operator, "reference").run(
        operator, Heads(*(x.double() for x in heads[:3]), None, bias.double()), {}
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        came = sdpa.run(operator, heads._replace(bias=bias), {})
    assert ((came.double() - exact).abs() <= exact.abs() * 2**-8 + 1e-5).all()


@pytest.mark.parametrize("merge", ["mean", "difference"])
def test_long_maps_of_narrow_signals_are_those_of_the_definition(merge: str) -> None:
    """From 512 keys on, queries are padded to the width of the values."""
    operator = Operator(merge={"kind": merge}, signals={"count": 2})
    inputs = random_inputs(operator, length=513)
    came, expected = (
        along(path, operator, inputs.q, inputs.k, inputs.v, inputs.numbers) for path in ("sdpa", "reference")
    )
    torch.testing.assert_close(came, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("logit", [-6e4, -4e4, 4e4, 6e4])
def test_a_far_sink_in_float16_takes_all_or_nothing(logit: float) -> None:
    operator = Operator(normaliser={"kind": "sink"})
    given = random_inputs(operator, length=13).to(torch.float16)
    far = {"normaliser.logit": torch.full_like(given.numbers["normaliser.logit"], logit)}
    came = along("sdpa", operator, given.q, given.k, given.v, far)
    plain = along("reference", Operator(), given.q, given.k, given.v, {})
    torch.testing.assert_close(came, plain * (logit < 0), rtol=2**-10, atol=1e-4)


def test_other_types_of_heads_and_masks_are_refused() -> None:
    x = torch.ones(1, 1, 3, 4)
    for dtype in (torch.int32, torch.bool, torch.float8_e4m3fn):
        with pytest.raises(SpecError, match=f"float16, bfloat16, float32 or float64, not {dtype}"):
            attend(Operator(), x, x, x.to(dtype))
    for dtype in (torch.float32, torch.int64):
        with pytest.raises(SpecError, match=f"the mask is {dtype}; give a boolean one"):
            attend(Operator(), x, x, x, mask=torch.ones(3, 3, dtype=dtype))


SSA_NUMBERS = "numbers of 'SSA' are score.n, score.b; got"
REFUSED: list[tuple[Operator, int, tuple[str, ...] | None, str]] = [
    (principled(), 16, None, "adds 16 channels to those of queries and keys, 16 in all; say with head_width= how many"),
    (principled(gate_width=16, gate_dims="split"), 16, None, "the gate takes 16 of a head's 16 channels .*; use gate"),
    (integral(signals=3), 16, None, "signals.count divides a head's 16 channels; got 3, use other heads"),
    (ssa(), 16, ("score.n",), f"{SSA_NUMBERS} score.n; pass each of them"),
    (ssa(), 16, ("score.n", "score.b", "score.c"), f"{SSA_NUMBERS} score.n, score.b, score.c; pass each of them"),
    (ssa(), 16, (), f"{SSA_NUMBERS} none; pass each of them"),
    (Operator(), 16, ("tau",), "numbers of 'softmax' are none; got tau; pass each of them"),
]


@pytest.mark.parametrize(("operator", "channels", "names", "words"), REFUSED, ids=[each[-1] for each in REFUSED])
def test_channels_and_numbers_that_do_not_fit_are_refused(
    operator: Operator, channels: int, names: tuple[str, ...] | None, words: str
) -> None:
    x = torch.ones(1, 2, 3, channels)
    numbers = None if names is None else dict.fromkeys(names, torch.ones(1, 1, 1, 1))
    with pytest.raises(SpecError, match=words):
        attend(operator, x, x, x, numbers=numbers)


@pytest.mark.parametrize("heads", [1, 2])
def test_keys_of_fewer_heads_than_queries_are_refused(heads: int) -> None:
    q, few = torch.ones(2, 4, 9, 8), torch.ones(2, heads, 9, 8)
    for k, v in ((few, few), (q, few), (few, q)):
        with pytest.raises(SpecError, match=r"\[2, 4\] of queries, .*; repeat their heads"):
            attend(Operator(), q, k, v)


@pytest.mark.parametrize("path", ["sdpa", "reference"])
def test_a_norm_of_empty_rows_in_float16_has_finite_gradients(path: Any) -> None:
    operator = differential()
    given = random_inputs(operator, length=13).to(torch.float16).following()
    holes = causal(13, 13).clone()
    holes[5] = False
    heads = Heads(*prepare(operator, given.q, given.k, NoPositions(), given.numbers), given.v, holes)
    find_path(operator, path).run(operator, heads, given.numbers).sum().backward()
    for name, x in given.tensors().items():
        assert x.grad is None or torch.isfinite(x.grad).all(), name


HIDDEN = torch.ones(2, 1, 1, 13, dtype=torch.bool)
HIDDEN[0, ..., 3] = HIDDEN[1, ..., 7:] = False
BROADCAST = {"keys": HIDDEN, "queries": HIDDEN.mT, "one row": HIDDEN[0, 0, 0]}


@pytest.mark.parametrize("shape", BROADCAST)
@pytest.mark.parametrize("operator", [*named_operators()], ids=lambda operator: operator.label)
def test_a_mask_that_broadcasts_is_the_mask_written_out(operator: Operator, shape: str) -> None:
    """Margins, Affine and scores divided by the number of keys count keys of the whole mask."""
    whole = BROADCAST[shape].expand(2, 1, 13, 13).clone()
    expected = run(operator, find_path(operator, "reference"), whole)
    for path in PATHS:
        if path.reason(operator, Case(13, 13, dtype=torch.float64, channels=4)) is None:
            assert_equal(run(operator, path, BROADCAST[shape]), expected)
