"""A sink or a learned key beside a fused kernel: values and gradients of the definition."""

from typing import Any

import pytest
import torch
from path_outcomes import outcome
from torch._subclasses.fake_tensor import FakeTensorMode

from variants import Heads, Operator
from variants.laws.inputs import random_inputs
from variants.paths import sdpa
from variants.paths.choose import find_path
from variants.paths.fused_column import KERNELS, find_kernel

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


@pytest.mark.parametrize("choices", COLUMNS, ids=str)
def test_a_column_beside_the_kernel_is_that_of_the_definition(
    choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(**choices)
    inputs = random_inputs(operator, length=13)
    expected = outcome(operator, find_path(operator, "reference").run, inputs)
    monkeypatch.setattr(sdpa, "column_kernel", lambda *_: "cpu")
    found = outcome(operator, sdpa.run, inputs)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-10, msg=name)


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
    ("generation", "deterministic", "name"),
    [((9, 0), False, "cudnn"), ((9, 0), True, "flash"), ((8, 6), False, "flash"), ((7, 5), False, None)],
)
def test_the_kernel_follows_the_gpu(
    generation: tuple[int, int], deterministic: bool, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: generation)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    with FakeTensorMode():
        q = torch.empty(2, 3, 17, 64, device="cuda", dtype=torch.bfloat16)
        assert find_kernel(q, q) == name
        assert find_kernel(torch.empty(q.shape, device="cuda"), torch.empty(q.shape, device="cuda")) is None
        odd, narrow = (torch.empty(2, 3, 17, width, device="cuda", dtype=torch.bfloat16) for width in (60, 32))
        assert find_kernel(odd, odd) is None
        assert find_kernel(narrow, q) is None
        heads, mask = Heads(q, q, q), torch.ones(17, 17, dtype=torch.bool)
        assert [sdpa.column_kernel(Operator(**choices), heads) for choices in COLUMNS] == [name] * len(COLUMNS)
        assert {sdpa.column_kernel(Operator(**choices), heads._replace(mask=mask)) for choices in COLUMNS} == {None}
        assert {sdpa.column_kernel(Operator(**choices), heads) for choices in OTHERS} == {None}


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_blocks_add_up_to_the_running_sum(length: int) -> None:
    v = torch.randn(2, 3, length, 5, dtype=torch.float64)
    torch.testing.assert_close(sdpa.sum_in_blocks(v), v.cumsum(-2), rtol=1e-12, atol=1e-12)
