"""Different scores in different heads: equal blocks of heads, one score each, in order.

    f of head h is that of part  floor(h n / H)          n parts, H heads

Parts have their own numbers, "0.n" for the number n of part 0, with values for the part's heads only. Where only some
parts are known by their logarithm, each block keeps its own units, so that nothing overflows.
"""

from collections.abc import Callable, Mapping
from itertools import groupby
from math import gcd
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from variants.number import Number
from variants.score_map import Scores, block
from variants.stages.families import LogScore, Range, Score


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
        if repeated > 1 and all("head" in number.per for number in self.numbers().values() if number.trained):
            self.set_normal_form(parts=self.parts[::repeated])
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
    def homogeneous(self) -> bool:  # type: ignore[override]
        """Each part is, with an n of its own."""
        return all(part.homogeneous for part in self.parts)

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

    def heads_of(self, field: str, heads: int) -> slice:
        each, at = heads // len(self.parts), int(field.partition(".")[0])
        return slice(at * each, (at + 1) * each)

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
            part.scores(block(a, at, each), block(mask, at, each), **_own(numbers, at, (heads, each)))
            for at, part in enumerate(self.parts)
        ]
        if not all(isinstance(part, LogScore) for part in self.parts):
            plain = torch.cat([one.values() for one in found], -3)
            logs = any(isinstance(part, LogScore) for part in self.parts)
            return Scores(
                mask, plain=plain, score=_further(found, heads, plain=True), parts=tuple(found) if logs else ()
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


def _own(numbers: dict[str, Tensor], at: int, heads: tuple[int, int]) -> dict[str, Tensor]:
    """The numbers of part `at` for its heads, from values for those or for all; `heads` are (all, one part's)."""
    start, (whole, each) = f"{at}.", heads
    return {
        name.removeprefix(start): block(value, at, each) if value.dim() > 2 and value.shape[-3] == whole else value
        for name, value in numbers.items()
        if name.startswith(start)
    }


def _further(found: list[Scores], heads: int, *, plain: bool) -> Callable[[Tensor], Tensor]:
    """The score of further logits, each head's by its own part."""
    each = heads // len(found)

    def score(logits: Tensor) -> Tensor:
        logits = logits[(None,) * (3 - logits.dim())]
        logits = logits.expand(*logits.shape[:-3], heads, *logits.shape[-2:])
        values = []
        for at, one in enumerate(found):
            value = one.score(block(logits, at, each))
            values.append(value.exp() if plain and one.log is not None else value)
        return torch.cat(torch.broadcast_tensors(*values), -3)  # type: ignore[no-untyped-call]

    return score
