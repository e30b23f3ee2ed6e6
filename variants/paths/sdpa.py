"""PyTorch's fused scaled-dot-product attention, with other stages folded into its inputs or applied to its output.

    margin, temperature      row factors c_i / tau go into the queries
    learned key and value    on a GPU as the sink; else one extra key
    sink with logit s        from the kernel's log-sum-exp (`fused_column`). On a GPU this needs causal heads in half
                             precision without padding, window, bias or dropout. Otherwise one extra key and one extra
                             channel: s / scale in every query, 1 in the sink's key, 0 in other keys
    its value v0             an extra key, and one extra channel of the values, which is the sink's weight
    several signals          merged logits: one product with a common scale. Merged maps: each signal is an entry of the
                             batch, and all share the values
    affine                   alpha o + (mean - alpha) / N times a running sum of the values

In bfloat16 and float16, what follows the kernel is computed in float32. The kernel, too, runs in float32 where half
precision would round large logits: with row factors, normalised queries, a bias or an extra key. If the mask is causal,
one empty query per extra key goes in front, so that the mask stays causal. Kernels never get a query without a visible
key, where gradients were wrong on an H100: such a query sees all keys, and its output is set to 0.
"""

from typing import final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from ablate.variants.attend import Heads, Keywords, postprocess, without_autocast
from ablate.variants.axes import HeadOutput, HeadValues, Keys, Queries
from ablate.variants.derivatives import scaled_dot_product
from ablate.variants.operator import NumberValues, Operator, by_stage
from ablate.variants.paths.case import refuse_kinds, row_factor
from ablate.variants.paths.fused_column import Column, attend_with_column, find_kernel
from ablate.variants.paths.running_sum import sum_in_blocks
from ablate.variants.stages.families import split_signals
from ablate.variants.stages.products import Dot
from ablate.variants.stages.rescales import Affine

_DOT = Dot()
_KINDS = {
    "extra": ("none", "key_bias", "key_value_bias"),
    "product": ("dot",),
    "transform": ("none", "temperature"),
    "forgetting": ("none",),
    "margin": ("none", "log_count", "ssmax"),
    "gate": ("none",),
    "score": ("exponential",),
    "normaliser": ("total", "sink"),
    "merge": ("logits", "mean", "difference"),
    "rescale": ("none", "scale", "affine"),
    "readout": ("values", "ground_value", "value_bias"),
}

_PADDED_FROM = 512
"""Keys from which on queries and keys are padded to the width of values, which the CPU's fused kernel requires.

With fewer keys, padding costs more than it saves.
"""
_AFTER_KERNEL = {"merge": "logits", "rescale": "none", "readout": "values", "head_norm": "none", "output_gate": "none"}
"""Neutral choices of the stages that act on the kernel's output."""


def cannot(operator: Operator) -> str | None:
    """Return why this path cannot run `operator`, or None if it can."""
    return refuse_kinds("sdpa", _KINDS, operator)


def run(operator: Operator, heads: Heads, numbers: NumberValues) -> HeadOutput:
    """Compute the output. A query that sees nothing gets 0, or the extra keys' values."""
    dtype = heads.v.dtype
    working = torch.promote_types(dtype, torch.promote_types(heads.q.dtype, heads.k.dtype))
    kernel = column_kernel(operator, heads._replace(q=heads.q.to(working)))
    if kernel is None and (_needs_float32_logits(operator) or heads.bias is not None):
        working = torch.promote_types(working, torch.float32)
    heads = heads._replace(q=heads.q.to(working), k=heads.k.to(working), v=heads.v.to(working))
    with without_autocast(heads.q.device.type):
        return _Folded(operator, heads, by_stage(numbers), kernel).output().to(dtype)


def _needs_float32_logits(operator: Operator) -> bool:
    """Return True if logits depend on more than queries and keys, which few bits would move."""
    return scales_logits(operator) or operator.extra.label != "none" or operator.normaliser.label == "sink"


def scales_logits(operator: Operator) -> bool:
    """Return True if logits have factors by query."""
    return operator.margin.label != "none" or operator.transform.label != "none"


def column_kernel(operator: Operator, heads: Heads) -> str | None:
    """Name the kernel of a GPU that computes a sink or a learned key beside half-precision heads; None without one."""
    if heads.q.device.type != "cuda":
        return None
    learned, sink = operator.extra.label != "none", operator.normaliser.label == "sink"
    causal = heads.mask is None and operator.visible.label == "everything" and heads.q.shape[-2] == heads.k.shape[-2]
    maps, own_value = not operator.merge.of_logits, operator.readout.label == "ground_value"
    refused = maps or own_value or heads.bias is not None or heads.dropout > 0 or scales_logits(operator)
    return None if learned == sink or not causal or refused else find_kernel(heads.q, heads.v)


@final
class _Folded:
    """One computation: fold stages into the inputs, run the fused kernel, apply the rest to its output."""

    def __init__(self, operator: Operator, heads: Heads, value: Keywords, kernel: str | None) -> None:
        self._operator, self._heads, self._value, self._kernel = operator, heads, value, kernel
        self._working = torch.promote_types(heads.q.dtype, torch.float32)
        self._pair = operator.extra.pair(**value["extra"])
        square = heads.q.shape[-2] == heads.k.shape[-2]
        self._causal = square and heads.mask is None and operator.visible.label == "everything"
        self._grounded = operator.readout.label == "ground_value"
        self._nothing_after_kernel = all(
            getattr(operator, stage).label == neutral for stage, neutral in _AFTER_KERNEL.items()
        )
        counts = operator.margin.label != "none" or isinstance(operator.rescale, Affine)
        masked = not self._causal or heads.bias is not None
        self._seen = operator.visible.restrict(heads.model_mask, heads.distance) if masked else None
        self._blind: Tensor | None = None
        may_be_blind = heads.mask is not None or not square  # else every query sees itself
        if self._seen is not None and may_be_blind and self._pair is None and operator.normaliser.label != "sink":
            self._blind = ~self._seen.any(-1, keepdim=True)
        self._count, self._margin = None, None
        if counts:
            if self._seen is None:
                every = torch.arange(1, heads.q.shape[-2] + 1, device=heads.q.device)
                self._count = every[:, None].to(self._working)
            else:
                self._count = self._seen.sum(-1, keepdim=True, dtype=self._working)
            self._margin = operator.margin.factor(self._count, **value["margin"])

    def output(self) -> HeadOutput:
        operator, value = self._operator, self._value
        output, ground = self._split(self._merge_maps(self._run_fused()))
        output = self._rescale(output)
        if ground is not None:
            output = output + ground * value["readout"]["ground_value"]
        if operator.readout.label == "value_bias":
            output = output + value["readout"]["value_bias"]
        return postprocess(operator, output, value)

    def _split(
        self, output: Float[Tensor, "batch heads queries more_values"]
    ) -> tuple[HeadOutput, Float[Tensor, "batch heads queries 1"] | None]:
        """Split off the sink's weight, which is one more channel of the output."""
        if not self._grounded:
            return output, None
        ground = output[..., -1:]
        rescale = self._value["rescale"]
        factor = rescale.get("factor", rescale.get("scale"))
        return output[..., :-1], ground if factor is None else factor * ground

    def _run_fused(self) -> Float[Tensor, "*signals batch heads queries values"]:
        """Run the kernel; signals come first, if their logits are not merged."""
        operator, heads, signals = self._operator, self._heads, self._operator.signals.count
        one_map, width = operator.merge.of_logits, heads.q.shape[-1]
        scale = _DOT.scale(width, signals) if one_map else _DOT.scale(width // signals)
        q, k, v = heads.q, heads.k, heads.v
        if self._pair is not None and self._kernel is None:
            k = torch.cat((self._pair.key.to(k).expand_as(k[..., :1, :]), k), -2)
            v = torch.cat((self._extra_value(self._pair.value), v), -2)
        factor = row_factor(operator, self._margin, self._value)
        q = q if factor is None else (q * factor).to(q.dtype)
        if not one_map:
            q, k = split_signals(q, signals), split_signals(k, signals)
        column = None if self._pair is None or self._kernel is None else self._learned_column(q, scale, self._kernel)
        if operator.normaliser.label == "sink":
            sink = self._value["normaliser"]["logit"].to(self._working).expand_as(q[..., :1])
            kernel = self._kernel
            if kernel is None and not (self._grounded or heads.dropout or heads.bias is not None):
                kernel = find_kernel(q, v)
            if kernel is None:
                q, k = _with_sink(q, k, sink.to(q) / scale)
                v = torch.cat((self._extra_value(None), v), -2)
            else:
                column = Column(sink[..., 0], None, kernel)
            if self._grounded:
                v = torch.cat((v, F.pad(torch.zeros_like(v[..., 1:, :1]), (0, 0, 1, 0), value=1.0)), -1)
        v = v if v.shape[:-1] == k.shape[:-1] else v.expand(*k.shape[:-1], -1)
        return self._attention(q, k, v, column, scale)

    def _learned_column(self, q: Queries, scale: float, kernel: str) -> Column:
        assert self._pair is not None
        logit = scale * (q.to(self._working) * self._pair.key).sum(-1)
        value = self._pair.value
        value = None if value is None else value.to(self._working).expand_as(self._heads.v[..., :1, :])
        return Column(logit, value, kernel)

    def _extra_value(self, value: Float[Tensor, "1 #heads 1 values"] | None) -> Float[Tensor, "batch heads 1 values"]:
        """Return the value of an extra key."""
        one = self._heads.v[..., :1, :]
        return torch.zeros_like(one) if value is None else value.to(one).expand_as(one)

    def _attention(self, q: Queries, k: Keys, v: HeadValues, column: Column | None, scale: float) -> HeadOutput:
        extra_keys, front = k.shape[-2] - self._heads.k.shape[-2], q.shape[:-2]
        mask = self._mask()
        if extra_keys and mask is None:
            q = F.pad(q, (0, 0, extra_keys, 0))
        elif extra_keys and mask is not None:
            mask = F.pad(mask, (extra_keys, 0), value=True if mask.dtype == torch.bool else 0.0)
        if mask is not None and mask.ndim == 4 and len(front) == 3:
            mask = mask.expand(front[1], *mask.shape[1:]).repeat(front[0], 1, 1, 1)
        if len(front) != 2:  # fused kernels know four dimensions
            q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v))
        missing = v.shape[-1] - q.shape[-1]
        if missing > 0 and q.device.type == "cpu" and k.shape[-2] >= _PADDED_FROM:
            q, k = F.pad(q, (0, missing)), F.pad(k, (0, missing))
        if column is not None:
            rows = column.logit.reshape(-1, *column.logit.shape[-2:])
            rows = F.pad(rows, (extra_keys, 0)) if mask is None else rows
            output = attend_with_column(q, k, v, column._replace(logit=rows), mask, scale)
        else:
            width = v.shape[-1]
            q, k, v = _align(q), _align(k), _align(v)
            output = scaled_dot_product(
                q, k, v, attn_mask=mask, dropout_p=self._heads.dropout, is_causal=mask is None, scale=scale
            )
            output = output[..., :width] if output.shape[-1] > width else output
        output = output if len(front) == 2 else output.reshape(*front, *output.shape[-2:])
        output = output[..., extra_keys:, :] if extra_keys and mask is None else output
        return output if self._blind is None else output.masked_fill(self._blind, 0)

    def _mask(self) -> Shaped[Tensor, "*maps queries keys"] | None:
        """Return the kernel's mask, of two or four dimensions; None if it is causal."""
        bias, mask = self._heads.bias, self._seen
        if bias is None and self._causal:
            return None
        assert mask is not None
        if self._blind is not None:
            mask = mask | self._blind
        if bias is not None:
            bias = bias if self._margin is None else self._margin * bias
            hidden = torch.zeros_like(mask, dtype=self._heads.q.dtype).masked_fill(~mask, -float("inf"))
            mask = bias.to(self._heads.q.dtype) + hidden
        return mask[None] if mask.ndim == 3 else mask

    def _merge_maps(self, output: Float[Tensor, "*signals batch heads queries values"]) -> HeadOutput:
        merge = self._operator.merge
        if self._nothing_after_kernel:
            return output
        output = output.to(self._working)
        if merge.of_logits:
            return output
        if merge.label == "mean":
            return output.mean(0)
        return output[0] - self._value["merge"]["factor"] * output[1]

    def _rescale(self, output: HeadOutput) -> HeadOutput:
        rescale, value = self._operator.rescale, self._value["rescale"]
        if rescale.label == "scale":
            return output * value["factor"]
        if not isinstance(rescale, Affine) or self._count is None:
            return output
        v = self._heads.v.to(self._working)
        if self._seen is not None and not self._causal:
            total = self._seen.to(v) @ v
        else:
            total = sum_in_blocks(v) if v.device.type == "cuda" else v.cumsum(-2)
        own = int(self._pair is not None)
        if self._pair is not None and self._pair.value is not None:
            total = total + self._pair.value
        there = self._heads.k.shape[-2] + own
        count = (self._count + own).clamp(min=1) if rescale.n == "visible" else there
        return value["scale"] * output + (value["mean"] - value["scale"]) / count * total


def _with_sink(
    q: Queries, k: Keys, logit: Float[Tensor, "*heads queries 1"]
) -> tuple[Float[Tensor, "*heads queries channels+1"], Float[Tensor, "*heads keys+1 channels+1"]]:
    """Add one channel and, in front, one key whose product with each query is `logit`."""
    sink = F.pad(torch.zeros_like(k[..., :1, :]), (0, 1), value=1.0)
    return torch.cat((q, logit), -1), torch.cat((sink, F.pad(k, (0, 1))), -2)


def _align(x: Float[Tensor, "*heads tokens channels"]) -> Float[Tensor, "*heads tokens aligned"]:
    """Fill channels with zeros up to a multiple of 8: without, kernels of GPUs fall back to maps of all weights."""
    missing = 0 if x.device.type == "cpu" else -x.shape[-1] % 8
    return F.pad(x, (0, missing)) if missing else x
