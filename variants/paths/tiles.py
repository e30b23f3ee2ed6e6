"""Attention maps computed tile by tile with a hand-written backward pass, so that memory is linear in the length.

A tile is a few heads, a block of their queries and all keys that these see. One tile's arrays stay in the cache. The
forward pass keeps the output, L and the sums of rows; the backward pass computes every tile again:

    a_ij  = c_i q_i . k_j - beta_i softplus(-g_ij)      l_ij = ln |f(a_ij)|      w_ij = s_ij exp(l_ij - L_i)
    L_i   = ln Z_i, or 0 if scores are the weights      s sign of f

    dl_ij = w_ij dp_ij - |w_ij| A_ij D_i                 dp_ij = do_i . v_j - dw0_i      D_i = sum_j w_ij dp_ij
    dt_i  = -D_i (share of Z_i that is floor)            da_ij = dl_ij l'(a_ij)

A_ij is 1 if the score counts in Z_i: always, except that a key below the ground state's threshold t_i counts as e^t_i.
Z_i is no variable, and D_i = 0, if scores are the weights.

Sparsemax (m = 1) and entmax with alpha = 1.5 (m = 2) project instead; L_i is then the threshold:

    w_ij = max(l_ij / m - L_i, 0)^m      dl_ij = r_ij (dp_ij - sum_j r_ij dp_ij / sum_j r_ij)      r_ij = w_ij^(1 - 1/m)
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from ablate.variants.derivatives import first_only, refuse_transforms

TILE = 1 << 17
"""Entries of one array of a tile: with half a dozen of them, what a core's cache holds."""
TileMap = Float[Tensor, "heads rows keys"]
"""An array of a tile."""
ROWS = 64
"""Queries of a tile."""
HIDDEN = -1e30
"""The logarithm of a hidden key's score; finite, so that 0 times it is 0."""

ScoreKind = Literal["exponential", "ssa", "signed_exponential", "sigmoid", "elu_plus_one"]
Normalised = Literal["total", "ground", "none", "sparsemax", "entmax15", "sink"]

POWERS: Final[Mapping[str, int]] = {"sparsemax": 1, "entmax15": 2}
"""m of the normalisers that project."""
_MOST_NEWTON_STEPS = 50


class Rule(NamedTuple):
    """Score, normaliser and direction of a map."""

    score: ScoreKind
    normalised: Normalised
    causal: bool


class MapInputs(NamedTuple):
    """Tensors of a map. Maps are those of all heads of all sequences; what is None is left out."""

    q: Float[Tensor, "maps tokens channels"]
    """Scaled queries."""
    k: Float[Tensor, "maps tokens channels"]
    v: Float[Tensor, "maps tokens values"]
    factor: Float[Tensor, "maps tokens 1"] | None = None
    """c of a query's logits."""
    q_gate: Float[Tensor, "maps tokens gate"] | None = None
    """Scaled gate channels of queries."""
    k_gate: Float[Tensor, "maps tokens gate"] | None = None
    strength: Float[Tensor, "maps tokens 1"] | None = None
    """softplus(beta)."""
    exponent: Float[Tensor, "maps tokens 1"] | None = None
    """n of "ssa"."""
    shift: Float[Tensor, "maps tokens 1"] | None = None
    """Added to the logits."""
    floor: Float[Tensor, "maps tokens 1"] | None = None
    """t, the logarithm of the score at the ground state's threshold; on path "triton" also the logit of a sink."""
    forgetting: Float[Tensor, "maps tokens 1"] | None = None
    """Sum of ln f up to a token, float64: a falls by its difference between query and key. For causal maps."""


def attend_by_tiles(
    rule: Rule, inputs: MapInputs, shown: Float[Tensor, "#maps #tokens tokens"] | None
) -> tuple[Float[Tensor, "maps tokens values"], Float[Tensor, "maps tokens 1"]]:
    """Compute sum_j w_ij v_j and, under "ground", the ground state's weight, else 0; `shown` is 1 for visible keys."""
    refuse_transforms("path 'cpu'", inputs)
    output, ground = _Tiled.apply(rule, shown, *inputs)  # type: ignore[no-untyped-call]
    return output, ground


class _Tile(NamedTuple):
    """Heads [n] and queries [rows] of a tile, which see keys up to `keys`."""

    heads: slice
    rows: slice
    keys: int


def _tiles(heads: int, length: int, *, causal: bool) -> Iterator[_Tile]:
    rows = math.ceil(length / math.ceil(length / ROWS))
    for start in range(0, length, rows):
        stop = min(start + rows, length)
        keys = stop if causal else length
        group = max(1, min(heads, TILE // ((stop - start) * keys)))
        for first in range(0, heads, group):
            yield _Tile(slice(first, min(first + group, heads)), slice(start, stop), keys)


@final
class _Scratch:
    """Arrays that tiles use again: a fresh one of this size costs as much as the arithmetic on it."""

    def __init__(self, like: Tensor, heads: int, length: int) -> None:
        rows = min(ROWS, length)
        self._most, self._like, self._made = max(TILE, rows * length), like, dict[str, Tensor]()
        self._most = min(self._most, heads * rows * length)

    def get(self, name: str, *shape: int) -> TileMap:
        """Return an array with this name and shape; its entries are arbitrary."""
        if name not in self._made:
            self._made[name] = self._like.new_empty(self._most)
        size = shape[0] * shape[1] * shape[2]
        return self._made[name][:size].view(shape)


@final
class _Map:
    """The map of one tile."""

    def __init__(self, rule: Rule, inputs: MapInputs, shown: Tensor | None, tile: _Tile, scratch: _Scratch) -> None:
        self._rule, self._inputs, self._tile, self._scratch = rule, inputs, tile, scratch
        self._shown = shown
        self.q, self.k, self.v = self.rows(inputs.q), self.columns(inputs.k), self.columns(inputs.v)
        self._shape = (self.q.shape[0], self.q.shape[1], tile.keys)
        self.factor = None if inputs.factor is None else self.rows(inputs.factor)
        self.floor = None if inputs.floor is None else self.rows(inputs.floor)

    def rows(self, x: Float[Tensor, "maps tokens channels"]) -> Float[Tensor, "heads rows channels"]:
        return x[self._tile.heads, self._tile.rows]

    def columns(self, x: Float[Tensor, "maps tokens channels"]) -> Float[Tensor, "heads keys channels"]:
        return x[self._tile.heads, : self._tile.keys]

    def array(self, name: str) -> TileMap:
        return self._scratch.get(name, *self._shape)

    def logits(self) -> TileMap:
        """Compute a, and the gate's g and softplus(-g) as arrays "gate" and "suppression"."""
        inputs = self._inputs
        a = torch.bmm(self.q, self.k.mT, out=self.array("a"))
        if self.factor is not None:
            a.mul_(self.factor)
        if (sums := inputs.forgetting) is not None:  # beside the block's first query, so that near keys lose no bits
            first = sums[self._tile.heads, self._tile.rows.start, None]
            a.add_((self.rows(sums) - first).to(a)).sub_((self.columns(sums) - first).to(a).mT)
        if inputs.q_gate is not None and inputs.k_gate is not None and inputs.strength is not None:
            g = torch.bmm(self.rows(inputs.q_gate), self.columns(inputs.k_gate).mT, out=self.array("gate"))
            lowering = torch.abs(g, out=self.array("suppression")).neg_().exp_().log1p_()
            below = torch.clamp(g, max=0, out=self.array("x"))
            lowering.sub_(below)
            a.addcmul_(lowering, self.rows(inputs.strength), value=-1)
        if inputs.shift is not None:
            a.add_(self.rows(inputs.shift))
        return a

    def log_score(self, a: TileMap, *, slope: bool) -> tuple[TileMap, TileMap | None, TileMap | None]:
        """Turn `a` into l in place; return l, the sign of the score and, if asked, l'(a), None for 1."""
        derivative = self.array("slope") if slope else None
        match self._rule.score:
            case "exponential":
                return a, None, None
            case "signed_exponential":
                sign = torch.sign(a, out=self.array("sign"))
                return a.abs_(), sign, sign
            case "ssa":
                assert self._inputs.exponent is not None
                n, x = self.rows(self._inputs.exponent), torch.abs(a, out=self.array("x"))
                if derivative is not None:
                    torch.add(x, 1, out=derivative).reciprocal_().mul_(n)
                torch.copysign(x.log1p_(), a, out=a)
                return a.mul_(n), None, derivative
            case "sigmoid":
                x = torch.abs(a, out=self.array("x")).neg_().exp_().log1p_()
                a.clamp_(max=0).sub_(x)
                return a, None, None if derivative is None else torch.exp(a, out=derivative).neg_().add_(1)
            case "elu_plus_one":
                x = torch.clamp(a, min=0, out=self.array("x"))
                if derivative is not None:
                    torch.add(x, 1, out=derivative).reciprocal_()
                return a.clamp_(max=0).add_(x.log1p_()), None, derivative

    def scores(self, a: TileMap) -> TileMap:
        """Turn `a` into the scores f, 0 for hidden keys, in place."""
        if self._rule.score == "sigmoid":  # fewer operations than by its logarithm
            self.hide(a)
            return a.sigmoid_()
        log, sign, _ = self.log_score(a, slope=False)
        self.hide(log)
        return log.exp_() if sign is None else log.exp_().mul_(sign)

    def hide(self, log: TileMap) -> None:
        """Write `HIDDEN` for hidden keys, in place."""
        for part, shown in self._hidden(log):
            part.mul_(shown).add_(torch.sub(1, shown), alpha=HIDDEN)

    def clear(self, x: TileMap) -> TileMap:
        """Multiply hidden entries by 0 in place."""
        for part, shown in self._hidden(x):
            part.mul_(shown)
        return x

    def _hidden(self, x: TileMap) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parts of an array that have hidden entries, and their visibility, 1 or 0."""
        rows = self._tile.rows
        if self._shown is not None:
            shown = self._shown if self._shown.shape[0] == 1 else self._shown[self._tile.heads]
            shown = shown if shown.shape[1] == 1 else shown[:, rows]
            yield x, shown[..., : self._tile.keys]
        if self._rule.causal:
            size = rows.stop - rows.start
            yield x[..., rows.start :], torch.ones(size, size, dtype=x.dtype).tril()


@final
class _Tiled(torch.autograd.Function):
    """Forward and backward pass over all tiles."""

    @staticmethod
    def forward(ctx: Any, rule: Rule, shown: Tensor | None, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
        inputs = MapInputs(*tensors)  # type: ignore[arg-type]
        heads, length = inputs.q.shape[:2]
        output, logs = torch.empty_like(inputs.v), inputs.q.new_empty(heads, length, 1)
        ground, floors = torch.zeros_like(logs), torch.zeros_like(logs)
        scratch = _Scratch(inputs.q, heads, length)
        for tile in _tiles(heads, length, causal=rule.causal):
            _forward(_Map(rule, inputs, shown, tile, scratch), rule, (output, logs, ground, floors))
        ctx.rule, ctx.shown = rule, shown
        ctx.save_for_backward(*tensors, output, logs, ground, floors)
        ctx.mark_non_differentiable(*() if rule.normalised == "ground" else (ground,))
        return output, ground

    @staticmethod
    @first_only("cpu")
    def backward(ctx: Any, slope: Tensor, ground_slope: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, output, logs, ground, floors = ctx.saved_tensors
        inputs, rule = MapInputs(*tensors), ctx.rule
        gradients = MapInputs(*(None if x is None else torch.zeros_like(x) for x in inputs))  # type: ignore[arg-type]
        heads, length = inputs.q.shape[:2]
        shared = (slope * output).sum(-1, keepdim=True)  # D
        if rule.normalised == "ground":
            shared -= ground_slope * (1 - ground)
            assert gradients.floor is not None
            torch.mul(shared, floors, out=gradients.floor).neg_()
        scratch = _Scratch(inputs.q, heads, length)
        for tile in _tiles(heads, length, causal=rule.causal):
            each = _Map(rule, inputs, ctx.shown, tile, scratch)
            _backward(each, rule, inputs, gradients, (slope, ground_slope, shared, logs))
        return (None, None, *gradients)


def _forward(tile: _Map, rule: Rule, results: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """Compute a tile's rows of the output, L, the ground state's weight and the floor's share of Z."""
    output, logs, ground, floors = map(tile.rows, results)
    a = tile.logits()
    if rule.normalised == "none":
        logs.zero_()
        torch.bmm(tile.scores(a), tile.v, out=output)
        return
    log, sign, _ = tile.log_score(a, slope=False)
    tile.hide(log)
    if rule.normalised in POWERS:
        w, threshold = _project(tile, log, POWERS[rule.normalised])
        logs.copy_(threshold)
        torch.bmm(w, tile.v, out=output)
        return
    largest = log.amax(-1, keepdim=True)
    largest = (largest if tile.floor is None else torch.maximum(largest, tile.floor)).clamp_(min=HIDDEN / 10)
    below = None if tile.floor is None else tile.clear(torch.lt(log, tile.floor, out=tile.array("below")))
    w = log.sub_(largest).exp_()
    total = w.sum(-1, keepdim=True)
    if tile.floor is None or below is None:
        total.masked_fill_(total == 0, 1)
    else:
        floor = (tile.floor - largest).exp_()
        short = torch.sub(floor, w, out=tile.array("x")).mul_(below).sum(-1, keepdim=True)
        total += short
        empty = total == 0
        total.masked_fill_(empty, 1)
        ground.copy_((short / total).masked_fill_(empty, 1))
        floors.copy_(below.sum(-1, keepdim=True) * floor / total)
    logs.copy_(largest + total.log())
    torch.bmm(w if sign is None else w.mul_(sign), tile.v, out=output)
    output.div_(total)


def _project(tile: _Map, log: TileMap, power: int) -> tuple[TileMap, Float[Tensor, "heads rows 1"]]:
    """Return weights and thresholds of the projection of `log`, by Newton's steps from below; overwrite `log`."""
    largest = log.amax(-1, keepdim=True)
    z = log.sub_(largest).div_(power)
    threshold, precision = torch.full_like(largest, -1.0), 2 * torch.finfo(z.dtype).eps
    above = tile.array("x")
    for _ in range(_MOST_NEWTON_STEPS):
        torch.sub(z, threshold, out=above).clamp_(min=0)
        if power == 1:
            excess, slope = above.sum(-1, keepdim=True).sub_(1), (above > 0).sum(-1, keepdim=True)
        else:
            slope = 2 * above.sum(-1, keepdim=True)
            excess = above.square_().sum(-1, keepdim=True).sub_(1)
        step = excess / slope
        step.masked_fill_(step <= precision, 0)  # by row, so that other rows change no bit
        if not step.any():
            break
        threshold += step
    w = tile.clear(z.sub_(threshold).clamp_(min=0))  # a row that sees nothing has weights 0
    return w if power == 1 else w.square_(), threshold + largest / power


def _root(tile: _Map, log: TileMap, threshold: Float[Tensor, "heads rows 1"], power: int) -> tuple[TileMap, TileMap]:
    """Return the weights w, and w^(1 - 1/m); `log` is overwritten."""
    w = tile.clear(log.div_(power).sub_(threshold).clamp_(min=0))
    if power == 1:
        return w, torch.gt(w, 0, out=tile.array("root"))
    root = tile.array("root").copy_(w)
    return w.square_(), root


class _Slopes(NamedTuple):
    """Weights of a tile with their signs, l, the gradient of l, and l'(a), None for 1."""

    w: Tensor
    log: Tensor
    dl: Tensor
    derivative: Tensor | None


def _slopes(tile: _Map, rule: Rule, known: tuple[Tensor, Tensor, Tensor, Tensor]) -> _Slopes:
    slope, ground_slope, shared, logs = known
    a = tile.logits()
    if rule.normalised == "none" and rule.score == "sigmoid":
        log = w = tile.scores(a)
        dl = torch.bmm(slope, tile.v.mT, out=tile.array("dp")).mul_(w)
        return _Slopes(w, log, dl, torch.sub(1, w, out=tile.array("slope")))
    log, sign, derivative = tile.log_score(a, slope=True)
    w = tile.array("w").copy_(log) if rule.score == "ssa" else log
    tile.hide(w)
    dp = torch.bmm(slope, tile.v.mT, out=tile.array("dp"))
    if rule.normalised in POWERS:
        w, root = _root(tile, w, logs, POWERS[rule.normalised])
        mean = torch.mul(root, dp, out=tile.array("x")).sum(-1, keepdim=True)
        mean /= root.sum(-1, keepdim=True).clamp_(min=torch.finfo(dp.dtype).tiny)
        return _Slopes(w, log, dp.sub_(mean).mul_(root), derivative)
    counted = None if tile.floor is None else torch.ge(w, tile.floor, out=tile.array("below"))
    w.sub_(logs).exp_()
    if rule.normalised == "ground":
        dp.sub_(ground_slope)
    if sign is not None:
        dp.mul_(sign)
    if counted is not None:
        dp.addcmul_(counted, shared, value=-1)
    elif rule.normalised == "total":
        dp.sub_(shared)
    dl = dp.mul_(w)
    return _Slopes(w if sign is None else w.mul_(sign), log, dl, derivative)


def _backward(
    tile: _Map, rule: Rule, inputs: MapInputs, gradients: MapInputs, known: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    """Write a tile's rows of the gradients and add its part to those of keys and values."""
    slope, ground_slope, shared, logs = map(tile.rows, known)
    w, log, da, derivative = _slopes(tile, rule, (slope, ground_slope, shared, logs))
    tile.columns(gradients.v).baddbmm_(w.mT, slope)
    if inputs.exponent is not None and gradients.exponent is not None:
        by_row = torch.mul(da, log, out=tile.array("x")).sum(-1, keepdim=True)
        tile.rows(gradients.exponent).copy_(by_row / tile.rows(inputs.exponent))
    if derivative is not None:
        da.mul_(derivative)
    if gradients.shift is not None:
        tile.rows(gradients.shift).copy_(da.sum(-1, keepdim=True))
    if gradients.forgetting is not None:
        tile.rows(gradients.forgetting).add_(da.sum(-1, keepdim=True))
        tile.columns(gradients.forgetting).sub_(da.sum(-2)[..., None])
    _gate_gradients(tile, inputs, gradients, da)
    raw = torch.bmm(da, tile.k)
    if tile.factor is not None and gradients.factor is not None:
        tile.rows(gradients.factor).copy_((tile.q * raw).sum(-1, keepdim=True))
        raw.mul_(tile.factor)
    tile.rows(gradients.q).copy_(raw)
    tile.columns(gradients.k).baddbmm_(da.mT, tile.q if tile.factor is None else tile.q * tile.factor)


def _gate_gradients(tile: _Map, inputs: MapInputs, gradients: MapInputs, da: TileMap) -> None:
    if inputs.strength is None or gradients.strength is None or inputs.q_gate is None or inputs.k_gate is None:
        return
    assert gradients.q_gate is not None
    assert gradients.k_gate is not None
    g, suppression = tile.array("gate"), tile.array("suppression")
    tile.rows(gradients.strength).copy_(suppression.mul_(da).sum(-1, keepdim=True).neg_())
    dg = g.neg_().sigmoid_().mul_(da).mul_(tile.rows(inputs.strength))
    tile.rows(gradients.q_gate).copy_(torch.bmm(dg, tile.columns(inputs.k_gate)))
    tile.columns(gradients.k_gate).baddbmm_(dg.mT, tile.rows(inputs.q_gate))
