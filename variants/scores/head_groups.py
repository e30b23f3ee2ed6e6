"""Different scores in different heads: equal blocks of heads, one score each, in order.

    f of head h is that of part  floor(h n / H)          n parts, H heads

Parts have their own numbers, "0.n" for the number n of part 0. Where only some parts are known by their logarithm,
those are held as multiples of e^m, m the row's largest, so that nothing overflows.
"""

from collections.abc import Callable, Mapping
from itertools import groupby
from math import gcd
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from variants.number import Number
from variants.scored import Scores
from variants.stages import LogScore, Range, Score


class HeadGroups(Score):
    """One score per block of heads."""

    source: ClassVar[str] = "Scaled Signed Averaging, appendix C"

    kind: Literal["head_groups"] = "head_groups"
    parts: tuple[Score, ...]

    @model_validator(mode="after")
    def _meaning_is_unique(self) -> Self:
        if any(isinstance(part, HeadGroups) for part in self.parts):
            raise ValueError("a part of head groups is a score for its heads and not groups again; list all parts")
        runs = [len(list(run)) for _, run in groupby(self.parts)]
        repeated = gcd(*runs)
        if repeated > 1 and not any(number.trained for number in self.numbers().values()):
            object.__setattr__(self, "parts", self.parts[::repeated])
        if len(self.parts) < 2:
            got = ", ".join(part.label for part in self.parts) or "none"
            raise ValueError(f"head groups are two or more different scores; got {got}, use one score without groups")
        return self

    @classmethod
    def example(cls) -> Self:
        return cls.model_validate({"parts": [{"kind": "uniform"}, {"kind": "ssa"}]})

    @property
    def range(self) -> Range:  # type: ignore[override]
        """The widest of its parts'; positive only where every part is known by its logarithm."""
        ranges = {part.range for part in self.parts}
        order: tuple[Range, ...] = ("any", "as its logit", "nonnegative")
        return next((each for each in order if each in ranges), "positive")

    @property
    def breaks(self) -> Mapping[str, str]:
        return {"heads": "heads of different groups have different scores"}

    def numbers(self) -> dict[str, Number]:
        return {f"{at}.{name}": number for at, part in enumerate(self.parts) for name, number in part.numbers().items()}

    def check(self, heads: int) -> None:
        parts = len(self.parts)
        if heads % parts:
            nearest = max(parts, round(heads / parts) * parts)
            raise ValueError(
                f"score 'head_groups' gives its {parts} parts equal blocks of heads and needs heads divisible by "
                f"{parts}; got {heads}, nearest is {nearest}"
            )

    def of_head(self, head: int, heads: int) -> tuple[Score, str]:
        at = head * len(self.parts) // heads
        return self.parts[at], f"{at}."

    def oracle(self, a: float) -> float:
        raise NotImplementedError("a head has the score of its part; ask of_head() for it")

    def scores(self, a: Tensor, mask: Tensor, **numbers: Tensor) -> Scores:
        heads = a.shape[-3]
        self.check(heads)
        each = heads // len(self.parts)
        found = [
            part.scores(_block(a, at, each), _block(mask, at, each), **_own(numbers, at, each))
            for at, part in enumerate(self.parts)
        ]
        if not all(isinstance(part, LogScore) for part in self.parts):
            relative = [one.relative() for one in found]
            exponent = torch.cat([r.f[..., :1] * 0 if r.m is None else r.m for r in relative], -3)
            return Scores(
                mask,
                plain=torch.cat([r.f for r in relative], -3),
                exponent=exponent.detach(),
                score=_further(found, heads, plain=True),
            )
        log = torch.cat([one.log for one in found if one.log is not None], -3)
        signed = any(one.sign is not None for one in found)
        signs = [torch.ones_like(_log(one)) if one.sign is None else one.sign for one in found]
        return Scores(
            mask, log=log, sign=torch.cat(signs, -3) if signed else None, score=_further(found, heads, plain=False)
        )


def _log(scores: Scores) -> Tensor:
    assert scores.log is not None
    return scores.log


def _block(x: Tensor, at: int, each: int) -> Tensor:
    """The heads of part `at` of what broadcasts to [..., H, T, T]."""
    return x[..., at * each : (at + 1) * each, :, :] if x.dim() > 2 and x.shape[-3] > 1 else x


def _own(numbers: dict[str, Tensor], at: int, each: int) -> dict[str, Tensor]:
    """The numbers of part `at`, for its heads."""
    start = f"{at}."
    return {
        name.removeprefix(start): _block(value, at, each) for name, value in numbers.items() if name.startswith(start)
    }


def _further(found: list[Scores], heads: int, *, plain: bool) -> Callable[[Tensor], Tensor]:
    """The score of further logits, each head's by its own part."""
    each = heads // len(found)

    def score(logits: Tensor) -> Tensor:
        logits = logits[(None,) * (3 - logits.dim())]
        logits = logits.expand(*logits.shape[:-3], heads, *logits.shape[-2:])
        values = []
        for at, one in enumerate(found):
            value = one.score(_block(logits, at, each))
            values.append(value.exp() if plain and one.log is not None else value)
        return torch.cat(torch.broadcast_tensors(*values), -3)  # type: ignore[no-untyped-call]

    return score
