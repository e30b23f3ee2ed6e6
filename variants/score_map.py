"""The scores of an attention map, passed from a score to a normaliser as logarithms or plain values."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ablate.variants.axes import Map, Mask
from ablate.variants.derivatives import refuse_transforms


class Scores(NamedTuple):
    """Scores f_ij and the mask of visible keys.

    Exactly one of `log` and `plain` is set. Hidden entries are arbitrary: a normaliser uses `relative` or `values`, or
    masks them itself.
    """

    mask: Mask
    """Boolean, broadcasts to the scores; True = visible."""
    log: Map | None = None
    """ln |f| of a score that gives its logarithm."""
    sign: Map | None = None
    """-1, 0 or 1 for a `log` score that can be negative."""
    plain: Map | None = None
    """f of any other score."""
    score: Callable[[Tensor], Tensor] = lambda a: a
    """The score as a function of logits, for the normaliser's own logits: ln f if `log` is set, else f."""
    parts: tuple["Scores", ...] = ()
    """Parts of a `plain` score with logarithms, one per equal block of heads, in order."""

    @property
    def visible_count(self) -> Float[Tensor, "*maps queries 1"]:
        """K_i, the number of visible keys of each query."""
        values = self.log if self.log is not None else self.plain
        assert values is not None
        return self.mask.sum(-1, keepdim=True, dtype=values.dtype)

    def visible_log(self) -> Map:
        """Return ln f with -inf for hidden keys; for normalisers that need positive scores with a logarithm."""
        if self.log is None or self.sign is not None:
            raise ValueError("this score is not known by its logarithm")
        return self.log.masked_fill(~self.mask, -float("inf"))

    def values(self) -> Map:
        """Return f with hidden entries 0, also if another entry of the row overflows."""
        if self.plain is not None:
            return self.plain.masked_fill(~self.mask, 0)
        assert self.log is not None
        f = self.log.masked_fill(~self.mask, -float("inf")).exp()
        return f if self.sign is None else f * self.sign

    def relative(self, further: Float[Tensor, "*#maps #queries 1"] | None = None) -> "Relative":
        """Return f / e^m with hidden entries 0, and m, the largest ln |f| of the row, so that nothing overflows.

        m is at least `further`, which are logarithms. m is 0 for plain scores.
        """
        if self.parts:
            blocks = (None if further is None else block(further, *at) for at in self._blocks())
            return _join_heads([part.relative(own) for part, own in zip(self.parts, blocks, strict=True)])
        if self.plain is not None:
            f = self.plain.masked_fill(~self.mask, 0)
            return Relative(f, f.abs(), None)
        assert self.log is not None
        log = self.log.masked_fill(~self.mask, -float("inf"))
        largest = log.amax(-1, keepdim=True)
        if further is not None:
            largest = torch.maximum(largest, further)
        largest = largest.detach().clamp(min=-1e30)  # finite where a row sees nothing
        size = (log - largest).exp()
        return Relative(size if self.sign is None else size * self.sign, size, largest)

    def relative_with(
        self, logit: Float[Tensor, "*#maps #queries 1"]
    ) -> tuple["Relative", Float[Tensor, "*#maps #queries 1"]]:
        """Return `relative` and, in its units, the score of one more logit, at least 0."""
        if self.parts:
            each = [part.relative_with(block(logit, *at)) for part, at in zip(self.parts, self._blocks(), strict=True)]
            owns = [own.broadcast_to(relative.f[..., :1].shape) for relative, own in each]
            return _join_heads([relative for relative, _ in each]), torch.cat(owns, -3)
        own = self.score(logit)
        if self.log is not None:
            relative = self.relative(own)
            assert relative.m is not None
            return relative, (own - relative.m).exp()
        own = own.clamp(min=0)
        relative = self.relative(own.clamp(min=torch.finfo(own.dtype).tiny).log())
        return relative, own * relative.unit()

    def project(self, onto: Callable[[Tensor], Tensor]) -> Map:
        """Map ln f to weights by `onto`, with hidden entries -inf; a row that sees nothing gets 0."""
        log, empty = self.visible_log(), ~self.mask.any(-1, keepdim=True)
        refuse_transforms("this projection", [log], "use torch.autograd.functional")
        return onto(log.masked_fill(empty, 0)).masked_fill(~self.mask, 0)

    def _blocks(self) -> list[tuple[int, int]]:
        """Return (index, number of heads) of every part."""
        assert self.plain is not None
        return [(at, self.plain.shape[-3] // len(self.parts)) for at in range(len(self.parts))]


class Relative(NamedTuple):
    """Scores of a map as multiples of e^m."""

    f: Map
    """The scores, 0 for hidden keys."""
    size: Map
    """The summand of a sum of sizes: |f|, also if a sign of 0 makes f itself 0."""
    m: Float[Tensor, "*maps queries 1"] | None
    """None for 0."""

    def unit(self) -> Float[Tensor, "*maps queries 1"]:
        """Return e^-m, the number 1 in these units."""
        return torch.ones_like(self.f[..., :1]) if self.m is None else (-self.m).exp()


def block(x: Shaped[Tensor, "*maps queries keys"], at: int, each: int) -> Shaped[Tensor, "*parts queries keys"]:
    """Return the heads of part `at`, of `each` heads, of a tensor that broadcasts to a map."""
    return x[..., at * each : (at + 1) * each, :, :] if x.dim() > 2 and x.shape[-3] > 1 else x


def _join_heads(parts: list[Relative]) -> Relative:
    m = [torch.zeros_like(part.f[..., :1]) if part.m is None else part.m for part in parts]
    return Relative(
        torch.cat([part.f for part in parts], -3),
        torch.cat([part.size for part in parts], -3),
        torch.cat([each.broadcast_to(part.f[..., :1].shape) for each, part in zip(m, parts, strict=True)], -3),
    )
