"""What passes from a score to a normaliser: the scores of a map, known by their logarithm or as they are."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


def _as_it_is(a: Tensor) -> Tensor:
    return a


class Scores(NamedTuple):
    """Scores f_ij [..., H, T, T] and the mask of what may be seen.

    Exactly one of `log` and `plain` is there. Hidden entries hold whatever the hidden logits gave: a normaliser goes
    through `relative` or masks them itself.
    """

    mask: Tensor
    """Boolean, broadcasts to the scores; True = may look."""
    log: Tensor | None = None
    """ln |f|, of a score that is known by its logarithm."""
    sign: Tensor | None = None
    """-1, 0 or 1, of such a score that can be negative."""
    plain: Tensor | None = None
    """f, of any other score; f / e^m where there is `exponent`."""
    score: Callable[[Tensor], Tensor] = _as_it_is
    """The operator's score with its numbers filled in, for logits of the normaliser's own: ln f if `log` is there,
    else f."""
    exponent: Tensor | None = None
    """m [..., H, T, 1] of a `plain` score that has parts known by their logarithm."""

    @property
    def visible_count(self) -> Tensor:
        """K_i [..., T, 1], the number of visible keys of each query."""
        values = self.log if self.log is not None else self.plain
        assert values is not None
        return self.mask.sum(-1, keepdim=True, dtype=values.dtype)

    def visible_log(self) -> Tensor:
        """ln f with -inf where nothing may be seen; for normalisers that need positive scores known by logarithm."""
        if self.log is None or self.sign is not None:
            raise ValueError("this score is not known by its logarithm")
        return self.log.masked_fill(~self.mask, -float("inf"))

    def relative(self, further: Tensor | None = None) -> "Relative":
        """f / e^m, hidden entries 0, and m: the largest ln |f| of the row, so that nothing overflows.

        `further` [..., T, 1] are logarithms that m must not be below. m is 0 for scores that are known as they are.
        """
        if self.plain is not None:
            f, m = self.plain.masked_fill(~self.mask, 0), self.exponent
            if m is None or further is None:
                return Relative(f, m)
            larger = torch.maximum(m, further.detach())
            return Relative(f * (m - larger).exp(), larger)
        assert self.log is not None
        log = self.log.masked_fill(~self.mask, -float("inf"))
        largest = log.amax(-1, keepdim=True)
        if further is not None:
            largest = torch.maximum(largest, further)
        largest = largest.detach().clamp(min=-1e30)  # finite where a row sees nothing
        f = (log - largest).exp()
        return Relative(f if self.sign is None else f * self.sign, largest)

    def beside(self, logit: Tensor) -> tuple["Relative", Tensor]:
        """As `relative`, and in the same units the score of one further logit, at least 0; nothing overflows.

        `logit` broadcasts to [..., H, T, 1].
        """
        own = self.score(logit)
        if self.log is not None:
            found = self.relative(own)
            assert found.m is not None
            return found, (own - found.m).exp()
        own = own.clamp(min=0)
        found = self.relative(own.clamp(min=torch.finfo(own.dtype).tiny).log())
        return found, own * found.unit()

    def projected(self, onto: Callable[[Tensor], Tensor]) -> Tensor:
        """Weights that `onto` makes of a map of ln f, hidden entries -inf; a row that sees nothing gets 0."""
        empty = ~self.mask.any(-1, keepdim=True)
        return onto(self.visible_log().masked_fill(empty, 0)).masked_fill(~self.mask, 0)


class Relative(NamedTuple):
    """Scores of a map as multiples of e^m."""

    f: Tensor
    """[..., T, T], 0 where nothing may be seen."""
    m: Tensor | None
    """[..., T, 1]; None for 0."""

    def unit(self) -> Tensor:
        """e^-m: what the number 1 is in these units, [..., T, 1]."""
        return torch.ones_like(self.f[..., :1]) if self.m is None else (-self.m).exp()

    def times(self) -> Tensor:
        """f itself."""
        return self.f if self.m is None else self.f * self.m.exp()
