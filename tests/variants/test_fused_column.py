"""A sink or a learned key beside a fused kernel: values and gradients of the definition."""

from typing import Any

import pytest
import torch
from path_outcomes import outcome
from torch._subclasses.fake_tensor import FakeTensorMode

from ablate.variants import Heads, Operator
from ablate.variants.laws.inputs import random_inputs
from ablate.variants.paths import sdpa
from ablate.variants.paths.choose import find_path
from ablate.variants.paths.fused_column import KERNELS, find_kernel
from ablate.variants.paths.running_sum import sum_in_blocks

COLUMNS: list[dict[str, Any]] = [
    {"normaliser": {"kind": "sink"}},
    {"extra": {"kind": "key_bias"}},
    {"extra": {"kind": "key_value_bias"}, "rescale": {"kind": "affine"}},
    {"extra": {"kind": "key_value_bias"}, "signals": {"count": 2}},
]
OTHERS: list[dict[str, Any]] = [
    {},
    {"normaliser": {"kind": "sink"}, "extra": {"kind": "key_bias"}},
    {"normaliser": {"kind": "sink"}, "readout": {"kind": "ground_value"}},
    {"normaliser": {"kind": "sink"}, "margin": {"kind": "ssmax"}},
    {"normaliser": {"kind": "sink"}, "visible": {"kind": "window", "size": 3}},
    {"normaliser": {"kind": "sink"}, "signals": {"count": 2}, "merge": {"kind": "mean"}},
]


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-9), (torch.bfloat16, 2**-6), (torch.float16, 2**-9)])
@pytest.mark.parametrize("choices", COLUMNS, ids=str)
def test_a_column_beside_the_kernel_is_that_of_the_definition(
    choices: dict[str, Any], dtype: torch.dtype, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(**choices)
    inputs = random_inputs(operator, length=13)
    inputs = inputs._replace(**{name: getattr(inputs, name).to(dtype).double() for name in ("q", "k", "v")})
    expected = outcome(operator, find_path(operator, "reference").run, inputs)
    monkeypatch.setattr(sdpa, "column_kernel", lambda *_: "cpu")
    if dtype != torch.float64:
        inputs = inputs.to(torch.float32)
        inputs = inputs._replace(**{name: getattr(inputs, name).to(dtype) for name in ("q", "k", "v")})
    found = outcome(operator, sdpa.run, inputs)
    for name, value in expected.items():
        largest = float((found[name].double() - value).abs().max())
        assert largest <= error * float(value.abs().max()) + 1e-12, name


@pytest.mark.parametrize("name", ["cudnn", "flash"])
def test_kernels_of_gpus_take_and_return_what_the_column_needs(name: str) -> None:
    """Shapes alone, without a GPU; the kernels themselves are in `benchmarks/exactness.py`."""
    with FakeTensorMode():
        q, k, v = (torch.empty(2, 3, 17, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        output, log_sum, *besides = KERNELS[name].forward(q, k, v, None, 0.125)
        gradients = KERNELS[name].backward(output, q, k, v, None, 0.125, output, log_sum, *besides)
    assert (output.shape, log_sum.numel(), log_sum.dtype) == (q.shape, 2 * 3 * 17, torch.float32)
    assert [x.shape for x in gradients] == [q.shape] * 3


@pytest.mark.parametrize(
    ("capability", "without", "name"),
    [
        ((9, 0), "", "cudnn"),
        ((9, 0), "deterministic", "flash"),
        ((9, 0), "cudnn", "flash"),
        ((9, 0), "flash", "cudnn"),
        ((10, 3), "", "flash"),
        ((8, 6), "flash", None),
        ((7, 5), "", None),
    ],
)
def test_the_kernel_follows_the_gpu(
    capability: tuple[int, int], without: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: without == "deterministic")
    for kernel in ("cudnn", "flash"):
        monkeypatch.setattr(torch.backends.cuda, f"{kernel}_sdp_enabled", lambda kernel=kernel: kernel != without)
    with FakeTensorMode():
        q = torch.empty(2, 3, 17, 64, device="cuda", dtype=torch.bfloat16)
        assert find_kernel(q, q) == name
        assert find_kernel(torch.empty(q.shape, device="cuda"), torch.empty(q.shape, device="cuda")) is None
        odd, narrow = (torch.empty(2, 3, 17, width, device="cuda", dtype=torch.bfloat16) for width in (60, 32))
        assert find_kernel(odd, odd) is None
        one = torch.empty(2, 3, 1, 64, device="cuda", dtype=torch.bfloat16)
        assert find_kernel(one, one) is None  # cuDNN computes no single key
        assert find_kernel(narrow, q) is None
        heads, mask = Heads(q, q, q), torch.ones(17, 17, dtype=torch.bool)
        assert [sdpa.column_kernel(Operator(**choices), heads) for choices in COLUMNS] == [name] * len(COLUMNS)
        assert {sdpa.column_kernel(Operator(**choices), heads._replace(mask=mask)) for choices in COLUMNS} == {None}
        assert {sdpa.column_kernel(Operator(**choices), heads) for choices in OTHERS} == {None}


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_blocks_add_up_to_the_running_sum(length: int) -> None:
    v = torch.randn(2, 3, length, 5, dtype=torch.float64)
    sums = v.cumsum(-2)
    torch.testing.assert_close(sum_in_blocks(v), sums, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sum_in_blocks(v, own=False), sums - v, rtol=1e-12, atol=1e-12)
