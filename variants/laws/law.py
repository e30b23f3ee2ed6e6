"""A law: a property that every operator keeps or declares to break."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ablate.variants.operator import Operator


class LawBroken(Exception):
    """A law does not hold; the text says what was expected, what came, and for which inputs."""


class NotFinite(LawBroken):
    """A law could not be tried: numbers are finite neither in what was expected nor in what came."""


class NothingStated(Exception):
    """A law does not apply: the operator has no such part."""


class Law(NamedTuple):
    """A law and the function that tries it."""

    name: str
    sentence: str
    check: Callable[[Operator], None]
    """Returns, or raises LawBroken or NothingStated."""


_AXES = ("sequence", "head", "query", "channel")


def require(holds: bool, words: str) -> None:  # noqa: FBT001
    """Raise LawBroken with `words` unless `holds`."""
    if not holds:
        raise LawBroken(words)


def near(
    came: Tensor, expected: Tensor, inputs: str, *, rtol: float = 0.0, atol: float = 0.0, oracle: bool = False
) -> None:
    """Raise LawBroken unless |came - expected| <= atol + rtol |expected|; NotFinite if only infinite values differ."""
    came, expected = came.detach(), expected.detach()
    require(came.shape == expected.shape, f"expected shape {[*expected.shape]}, came {[*came.shape]}, for {inputs}")
    excess = (came - expected).abs() - (atol + rtol * expected.abs())
    wrong = ~((excess <= 0) | (came == expected))
    if not wrong.any():
        return
    strange = wrong & ~came.isfinite() & ~expected.isfinite()
    if strange.equal(wrong):
        count = f"{int(wrong.sum())} of {came.numel()} entries"
        raise NotFinite(f"not finite, so the law could not be tried: {came[wrong][0].item()} ({count}), for {inputs}")
    wrong &= ~strange
    worst = int(torch.where(wrong, excess.nan_to_num(torch.inf), -torch.inf).argmax())
    at = [int(index) for index in torch.unravel_index(torch.tensor(worst), came.shape)]
    place = str(at)
    if oracle or len(at) == len(_AXES):
        place = ", ".join(f"{axis} {index}" for axis, index in zip(_AXES[-len(at) :], at, strict=True))
    first, second = ("the oracle says", "the function") if oracle else ("expected", "came")
    one, other = expected.flatten()[worst].item(), came.flatten()[worst].item()
    form = ".9g" if f"{one:.9g}" != f"{other:.9g}" else ".17g"
    raise LawBroken(
        f"{first} {one:{form}}, {second} {other:{form}} at {place} "
        f"({int(wrong.sum())} of {came.numel()} entries), for {inputs}"
    )


equal = partial(near, rtol=1e-10, atol=1e-12)
"""`near`, for two computations of the same value in float64."""


def finite(x: Tensor, what: str) -> None:
    """Raise LawBroken unless every entry is finite."""
    strange = x.detach()[~x.detach().isfinite()]
    if strange.numel():
        raise LawBroken(
            f"expected finite numbers, came {strange[0].item()} ({strange.numel()} of {x.numel()}) in {what}"
        )
