"""A law: a property that every operator keeps or declares to break."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from variants.operator import Operator


class LawBroken(Exception):
    """A law does not hold; the text says what was expected, what came, and for which inputs."""


class NothingStated(Exception):
    """A law does not apply: the operator has no such part."""


class Law(NamedTuple):
    """A law and the function that tries it."""

    name: str
    sentence: str
    check: Callable[[Operator], None]
    """Returns, or raises LawBroken or NothingStated."""


class Telling(NamedTuple):
    """How to report a difference."""

    axes: tuple[str, ...] = ()
    """Names of the axes; without them a place is a list of indices."""
    expected: str = "expected"
    came: str = "came"

    def place(self, at: list[int]) -> str:
        """Describe a place: "head 1, query 6, channel 2"."""
        if not self.axes:
            return str(at)
        return ", ".join(f"{axis} {index}" for axis, index in zip(self.axes, at, strict=True))


OUTPUT = Telling(("sequence", "head", "query", "channel"))
"""For two outputs [B, H, T, D]."""
ORACLE = Telling(("head", "query", "channel"), "the oracle says", "the function")
"""For an output [H, T, D] and the oracle's."""


def require(holds: bool, words: str) -> None:  # noqa: FBT001
    """Raise LawBroken with `words` unless `holds`."""
    if not holds:
        raise LawBroken(words)


def near(
    came: Tensor, expected: Tensor, inputs: str, *, rtol: float = 0.0, atol: float = 0.0, telling: Telling | None = None
) -> None:
    """Raise LawBroken unless |came - expected| <= atol + rtol |expected| everywhere; NaN equals nothing.

    `inputs` names the inputs in the message.
    """
    telling = telling or Telling()
    came, expected = came.detach(), expected.detach()
    require(came.shape == expected.shape, f"expected shape {[*expected.shape]}, came {[*came.shape]}, for {inputs}")
    excess = (came - expected).abs() - (atol + rtol * expected.abs())
    wrong = ~((excess <= 0) | (came == expected))
    if not wrong.any():
        return
    worst = torch.where(wrong, excess.nan_to_num(torch.inf), -torch.inf).argmax().item()
    at = [int(index) for index in torch.unravel_index(torch.tensor(worst), came.shape)]
    raise LawBroken(
        f"{telling.expected} {expected.flatten()[int(worst)].item():.9g}, {telling.came} "
        f"{came.flatten()[int(worst)].item():.9g} at {telling.place(at)} ({int(wrong.sum())} of {came.numel()} "
        f"entries), for {inputs}"
    )


def finite(x: Tensor, what: str) -> None:
    """Raise LawBroken unless every entry is finite."""
    strange = x.detach()[~x.detach().isfinite()]
    if strange.numel():
        raise LawBroken(
            f"expected finite numbers, came {strange[0].item()} ({strange.numel()} of {x.numel()}) in {what}"
        )
