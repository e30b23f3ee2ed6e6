"""Operators of one score on GPUs: `ablate.variants.paths.score_rows` by `ablate.variants.paths.triton_ops`.

Memory is linear in T without a window or a mask, which are [T, T].

Queries, keys and values stay in their precision; logits, numbers, weights and sums are float32.
"""

import math
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.variants.attend import Heads, definition, without_autocast
from ablate.variants.operator import NumberValues, Operator, by_stage
from ablate.variants.paths.case import Case
from ablate.variants.paths.score_rows import ScoreRows, cannot_fold, fold, rule_of, unfold
from ablate.variants.paths.tiles import MapInputs

WIDEST = 128
"""Channels of the widest head, and of the widest gate."""
_NORMALISERS = ("total", "absolute", "ground", "none", "count", "sink")
_INSTALLED = find_spec("triton") is not None
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_LOG2_E = 1 / math.log(2)


def cannot(operator: Operator) -> str | None:
    """Return why this path cannot run `operator`, or None if it can."""
    if operator.gate.channels > WIDEST:
        return f"triton computes gates of up to {WIDEST} channels, not {operator.gate.channels}"
    score, normaliser = operator.score.label, operator.normaliser.label
    if not operator.normaliser.shared and score not in ("sigmoid", "elu_plus_one"):
        return f"triton computes score {score!r} only where weights are divided by their sum, not {normaliser!r}"
    return cannot_fold(operator, "triton", normaliser=_NORMALISERS, forgetting=("none",))


def cannot_call(case: Case) -> str | None:
    """Return why this path cannot compute a call, or None if it can."""
    if case.device != "cuda":
        return f"triton computes on GPUs only, not on {case.device}"
    if case.dtype not in _DTYPES:
        return f"triton computes in float32, bfloat16 and float16, not in {str(case.dtype).removeprefix('torch.')}"
    if case.channels > WIDEST:
        return f"triton computes heads of up to {WIDEST} channels, not {case.channels}"
    if case.biased:
        return "triton computes logits without a position bias only"
    if case.dropout:
        return "triton drops no weights"
    return "triton needs as many queries as keys" if case.queries != case.keys else None


def slower(operator: Operator, case: Case) -> str | None:
    """Return why path "auto" does not take this path."""
    if operator.normaliser.label == "sink":
        return "triton's sinks were not run on a GPU yet"
    if not _INSTALLED:
        return "triton is not installed; the CUDA build of torch brings it"
    return "triton computes float32 without tensor cores, at an unknown speed" if case.dtype == torch.float32 else None


def run(operator: Operator, heads: Heads, numbers: NumberValues) -> Float[Tensor, "batch heads tokens values"]:
    """Compute the output; of shapes alone, by the definition.

    Raises:
        EnvironmentProblem: triton is not installed.
        SpecError: inputs have another precision than float32, bfloat16 or float16.
    """
    if heads.q.is_meta:
        return definition(operator, heads, numbers).output
    if not _INSTALLED:
        raise EnvironmentProblem(
            "path 'triton' needs the package triton, which the CUDA build of torch brings; install it, "
            "or use path='auto'"
        )
    from ablate.variants.paths.triton_ops import attend_by_triton

    dtype, value = heads.v.dtype, by_stage(numbers)
    working = torch.promote_types(dtype, torch.promote_types(heads.q.dtype, heads.k.dtype))
    if working not in _DTYPES:
        raise SpecError(f"path 'triton' computes in float32, bfloat16 and float16, not in {working}; use path='auto'")
    front = heads.q.shape[:2]
    k, v = (x.to(working).expand(*front, *x.shape[2:]) for x in (heads.k, heads.v))
    heads = heads._replace(q=heads.q.to(working), k=k, v=v)
    with without_autocast(heads.q.device.type):
        causal = heads.mask is None and operator.visible.label in ("everything", "window")  # others may show later keys
        if causal and operator.visible.label == "everything":
            shown, length = None, heads.q.shape[-2]
            count = torch.arange(1, length + 1, dtype=torch.float32, device=heads.q.device)[:, None]
        else:
            shown = operator.visible.restrict(heads.model_mask, heads.distance)
            count = shown.sum(-1, keepdim=True, dtype=torch.float32)
        rows = _in_base_2(operator, fold(operator, heads, value, count), value["transform"].get("tau"))
        output, ground = attend_by_triton(rule_of(operator, causal=causal), rows, shown)
        return unfold(operator, output, ground.view(*output.shape[:3], 1), count, value).to(dtype)


def _in_base_2(operator: Operator, folded: ScoreRows, tau: Tensor | None) -> MapInputs:
    """Return numbers as rows [B H, T] for scores in base 2. SSA takes the logits themselves, in natural units.

    `tau` is the temperature, which the factors contain.
    """
    unit = 1.0 if operator.score.label == "ssa" else _LOG2_E
    scale = folded.scale * unit
    factor = _row(scale if folded.factor is None else scale * folded.factor, folded.q)
    floor = _row(None if folded.floor is None else folded.floor * _LOG2_E, folded.q)
    if operator.score.label == "exponential" and folded.factor is not None and folded.gamma is not None:
        gamma = folded.gamma if tau is None else folded.gamma * tau
        at_gamma = _row(gamma / folded.scale, folded.q)
        assert factor is not None
        assert at_gamma is not None
        floor = factor * at_gamma  # the bits that a logit of gamma has
    return MapInputs(
        q=folded.q,
        k=folded.k,
        v=folded.v,
        factor=factor,
        q_gate=folded.q_gate,
        k_gate=folded.k_gate,
        strength=_row(None if folded.strength is None else folded.strength * (unit / _LOG2_E), folded.q),
        exponent=_row(folded.exponent, folded.q),
        shift=_row(None if folded.shift is None else folded.shift * unit, folded.q),
        floor=floor,
    )


def _row(x: Tensor | float | None, q: Tensor) -> Tensor | None:
    """Return a number as rows [B H, T] in float32."""
    if x is None:
        return None
    if not isinstance(x, Tensor):  # filled on the device, without a wait for the host
        x = torch.full((), x, dtype=torch.float32, device=q.device)
    wide = x.to(torch.float32).expand(*q.shape[:-1], 1)
    return wide.reshape(-1, q.shape[-2]).contiguous()
