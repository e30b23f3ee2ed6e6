"""The kernels of `triton_kernels` and `triton_backward` as operations of PyTorch, with gradients and tile sizes.

With w, L, t, do as there, the backward kernels are given, per query:

    D = do.o - dground (1 - ground)        dground: gradient of the ground state's weight
    dt = -D (the part of Z that is t)
    D = do.o + dground ground              with a sink, whose weight is `ground`
    dt = (dground - D) ground

o is float32, and do is rounded as in the products of the kernels. In half precision the forward kernel also rounds
weights, so D differs from that of the backward kernels' own weights by e = sum_j dl + dt, which should be 0. Gradients
are linear in D: the kernel of queries adds up e and corrects the gradients of numbers, and the kernel of keys gets
D + e. That costs a few additions per logit; a pass for D alone would compute two of seven products once more. With a
rounded o, gradients of factors of logits erred by up to 3 % of the largest.

Gradients have one writer each, so that results are the same bits every time, whatever else is in the batch.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ablate.variants.derivatives import first_only, refuse_transforms
from ablate.variants.paths.tiles import MapInputs, Rule
from ablate.variants.paths.triton_backward import backward_keys, backward_queries
from ablate.variants.paths.triton_kernels import forward

LN2 = 0.6931471805599453


class Tile(NamedTuple):
    """Queries and keys of a tile, and how the kernel runs on a GPU."""

    rows: int
    keys: int
    warps: int = 8
    stages: int = 2


class Tiles(NamedTuple):
    """Tiles of the three kernels."""

    forward: Tile
    queries: Tile
    keys: Tile


TILES = {
    ("half", 64, False): Tiles(Tile(64, 64, 4, 4), Tile(64, 64, 4, 3), Tile(64, 64, 4, 4)),
    ("half", 64, True): Tiles(Tile(64, 64, 4, 4), Tile(64, 32, 4, 3), Tile(32, 64, 4, 3)),
    ("half", 128, False): Tiles(Tile(64, 64, 4, 3), Tile(128, 64, 8, 3), Tile(32, 64, 4, 3)),
    ("half", 128, True): Tiles(Tile(64, 32, 4, 3), Tile(128, 32, 8, 3), Tile(16, 128, 8, 2)),
    ("single", 64, False): Tiles(Tile(64, 32), Tile(64, 32), Tile(32, 64)),
    ("single", 64, True): Tiles(Tile(64, 32), Tile(32, 32), Tile(32, 32)),
    ("single", 128, False): Tiles(Tile(32, 16), Tile(32, 16), Tile(16, 32)),
    ("single", 128, True): Tiles(Tile(32, 16), Tile(32, 32), Tile(32, 32)),
}
"""By precision of the inputs, channels of a head (at most) and presence of a gate.

In half precision they are the fastest of `benchmarks/tiles.py` on an H100, or within 2 % and with fewer spilled
registers for SSA. A thread spills at most 272 bytes, and 16 in float32, which was not timed.
"""


def find_tiles(widths: tuple[int, int, int], *, single: bool) -> Tiles:
    """Return the tiles for heads whose queries, values and gate have `widths` channels; 0 means no gate."""
    return TILES["single" if single else "half", 64 if max(widths) <= 64 else 128, widths[2] > 0]


def attend_by_triton(rule: Rule, inputs: MapInputs, shown: Tensor | None) -> tuple[Tensor, Tensor]:
    """Compute sum_j w_ij v_j [B, H, T, D_v] and the weight of the ground state or sink [B H, T], 0 without one.

    q, k are [B, H, T, D], v [B, H, T, D_v], gates [B, H, T, G], of one dtype. Numbers are [B H, T] in float32 and in
    base 2; `factor` is not None. `shown` is boolean and broadcasts to [B, H, T, T].
    """
    refuse_transforms("path 'triton'", inputs)
    output, _, ground, _ = score_attention(*inputs[:-1], shown, *rule)  # without forgetting
    return output, ground


@torch.library.custom_op("ablate::score_attention", mutates_args=())
def score_attention(
    q: Tensor, k: Tensor, v: Tensor, factor: Tensor, q_gate: Tensor | None, k_gate: Tensor | None,
    strength: Tensor | None, exponent: Tensor | None, shift: Tensor | None, floor: Tensor | None, shown: Tensor | None,
    score: str, normalised: str, causal: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Compute the output, L, the weight of the ground state or sink and the part of Z that is t."""
    call = _Call(MapInputs(q, k, v, factor, q_gate, k_gate, strength, exponent, shift, floor), shown)
    output, logs = _output(v), torch.empty_like(factor)
    ground, floors = torch.zeros_like(factor), torch.zeros_like(factor)
    tile, results = call.tiles.forward, (output, logs, ground, floors)
    call.launch(forward, tile, tile.rows, (score, normalised, causal), [results], [output])
    return results


@score_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, factor: Tensor, *more: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    del q, k, more
    return _output(v), *(torch.empty_like(factor) for _ in range(3))  # type: ignore[return-value]


def _output(v: Tensor) -> Tensor:
    """Make the array of the output, which path "triton" continues in float32."""
    return torch.empty_like(v, dtype=torch.float32, memory_format=torch.contiguous_format)


@torch.library.custom_op("ablate::score_attention_backward", mutates_args=())
def score_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, factor: Tensor, q_gate: Tensor | None, k_gate: Tensor | None,
    strength: Tensor | None, exponent: Tensor | None, shift: Tensor | None, floor: Tensor | None, shown: Tensor | None,
    logs: Tensor, doutput: Tensor, shared: Tensor, dground: Tensor, dfloor: Tensor, score: str, normalised: str,
    causal: bool,
) -> list[Tensor]:  # fmt: skip
    """Compute the gradients of q, k, v, factor, q_gate, k_gate, strength, exponent, shift; empty for what is absent.

    The last result is D + e, or D in float32.
    """
    call = _Call(MapInputs(q, k, v, factor, q_gate, k_gate, strength, exponent, shift, floor), shown)
    doutput = doutput if doutput.stride(-1) == 1 else doutput.contiguous()
    results = _empty(q, k, v, factor, q_gate, k_gate, strength, exponent, shift, shared)
    dq, dk, dv, dfactor, dq_gate, dk_gate, dstrength, dexponent, dshift, exact = results
    rule, of_keys = (score, normalised, causal), (dk, dv, dk_gate)
    of_queries = (dq, dq_gate, dfactor, dstrength, dexponent, dshift, exact)
    tile, slopes = call.tiles.queries, (logs, shared, dground, dfloor)
    call.launch(backward_queries, tile, tile.rows, rule, [slopes, doutput, of_queries], [doutput, dq, dq_gate])
    if normalised == "none" or q.dtype == torch.float32:
        exact.copy_(shared)
    tile, slopes = call.tiles.keys, (logs, exact, dground, dfloor)
    call.launch(backward_keys, tile, tile.keys, rule, [slopes, doutput, of_keys], [doutput, *of_keys])
    return results


@score_attention_backward.register_fake
def _(*arguments: Any) -> list[Tensor]:
    return _empty(*arguments[:9], arguments[-6])


def _empty(q: Tensor, *others: Tensor | None) -> list[Tensor]:
    """Make an array for the gradient of each tensor; without entries for None."""
    dense = torch.contiguous_format
    return [q.new_empty(0) if x is None else torch.empty_like(x, memory_format=dense) for x in (q, *others)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, score, normalised, causal = inputs
    ctx.rule = Rule(score, normalised, causal)
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(*output[1:2], *output[3:], *([] if normalised in ("ground", "sink") else output[2:3]))


@first_only("triton")
def _differentiate(
    ctx: Any, doutput: Tensor, _logs: Tensor, dground: Tensor, _floors: Tensor
) -> tuple[Tensor | None, ...]:
    *tensors, output, logs, ground, floors = ctx.saved_tensors
    doutput, sink = doutput.to(tensors[2].dtype), ctx.rule.normalised == "sink"
    shared = (doutput * output).sum(-1).reshape(logs.shape)  # D
    if ctx.rule.normalised == "ground":
        shared = shared - dground * (1 - ground)
    elif sink:
        shared = shared + dground * ground

    def dfloor(shared: Tensor) -> Tensor:
        slope: Tensor = (dground - shared) * ground if sink else -shared * floors  # 0 if there is no t
        return slope

    of_rows = (shared.contiguous(), dground.contiguous(), dfloor(shared))
    *slopes, exact = score_attention_backward(*tensors, logs, doutput, *of_rows, *ctx.rule)
    gradients = [None if x is None else slope for x, slope in zip(tensors[:9], slopes, strict=True)]
    return (*gradients, None if tensors[9] is None else LN2 * dfloor(exact), None, None, None, None)


score_attention.register_autograd(_differentiate, setup_context=_keep)


def _strides(x: Tensor) -> tuple[int, int, int]:
    """Return the strides of [B, H, T, D] but the last, which is 1; zeros for an absent tensor."""
    return (x.stride(0), x.stride(1), x.stride(2)) if x.dim() == 4 else (0, 0, 0)


class _Call:
    """Arguments that the kernels of one call share."""

    def __init__(self, inputs: MapInputs, shown: Tensor | None) -> None:
        absent = inputs.q.new_empty(0, dtype=torch.float32)
        tensors = [x if x is None or x.stride(-1) == 1 else x.contiguous() for x in (*inputs[:3], *inputs[4:6])]
        self._tensors = tuple(absent if x is None else x for x in tensors)
        numbers = (inputs.factor, inputs.strength, inputs.exponent, inputs.shift, inputs.floor)
        self._numbers = tuple(absent if x is None else x for x in numbers)
        self._shown = absent if shown is None else _spread(shown, inputs.q)
        self._batch, self._heads, self._length, width = inputs.q.shape
        gate = 0 if inputs.q_gate is None else inputs.q_gate.shape[-1]
        widths = (width, inputs.v.shape[-1], gate)
        self._shape = (*widths, *(max(16, triton.next_power_of_2(each)) for each in widths))
        self._gate_scale = 1 / (LN2 * gate**0.5) if gate else 1.0
        single = inputs.q.dtype == torch.float32
        self.tiles = find_tiles(widths, single=single)
        precision = "ieee" if single else "tf32"  # half precision has no choice
        self._switches = (gate > 0, inputs.shift is not None, shown is not None, precision, inputs.q.is_cuda)

    def launch(
        self, kernel: Any, tile: Tile, block: int, rule: tuple[str, str, bool], more: list[Any], strided: list[Tensor]
    ) -> None:  # fmt: skip
        """Run `kernel` in blocks of `block`, with `more` arguments and the strides of `strided`."""
        device = self._tensors[0].device
        strides = map(_strides, (*self._tensors, self._shown, *strided))
        sizes = (self._heads, self._length, self._gate_scale)
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            kernel[self._batch * self._heads, triton.cdiv(self._length, block)](
                self._tensors, self._numbers, self._shown, *more, *strides, sizes, *self._shape, tile.rows, tile.keys,
                *rule, *self._switches, num_warps=tile.warps, num_stages=tile.stages,
            )  # fmt: skip


def _spread(shown: Tensor, q: Tensor) -> Tensor:
    """Return a mask as bytes [B, H, T, T] without a copy of what repeats."""
    shown = shown[(None,) * (4 - shown.dim())]
    shown = shown.expand(*shown.shape[:-1], q.shape[2])
    shown = shown if shown.stride(-1) == 1 else shown.contiguous()
    return shown.view(torch.uint8).expand(*q.shape[:3], q.shape[2])
