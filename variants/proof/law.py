"""A law: what every operator keeps, or says that it breaks."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from variants.operator import Operator


class LawBroken(Exception):
    """A law does not hold; the text says what was expected, what came, and for which inputs."""


class NothingStated(Exception):
    """A law has nothing to try: the operator has no such part, or says nothing of the kind."""


class Law(NamedTuple):
    """A law, and the function that tries it."""

    name: str
    sentence: str
    check: Callable[[Operator], None]
    """Returns, or raises LawBroken or NothingStated."""


def require(holds: bool, words: str) -> None:  # noqa: FBT001
    """Raise LawBroken with `words` unless it holds."""
    if not holds:
        raise LawBroken(words)


def near(came: Tensor, expected: Tensor, inputs: str, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise LawBroken unless |came - expected| <= atol + rtol |expected| everywhere; NaN equals nothing.

    `inputs` says for which inputs, for the text.
    """
    came, expected = came.detach(), expected.detach()
    require(came.shape == expected.shape, f"expected shape {[*expected.shape]}, came {[*came.shape]}, for {inputs}")
    excess = (came - expected).abs() - (atol + rtol * expected.abs())
    wrong = ~((excess <= 0) | (came == expected))
    if not wrong.any():
        return
    worst = torch.where(wrong, excess.nan_to_num(torch.inf), -torch.inf).argmax().item()
    at = [int(index) for index in torch.unravel_index(torch.tensor(worst), came.shape)]
    raise LawBroken(
        f"expected {expected.flatten()[int(worst)].item():.9g}, came {came.flatten()[int(worst)].item():.9g} at {at} "
        f"({int(wrong.sum())} of {came.numel()} entries), for {inputs}"
    )


def finite(x: Tensor, what: str) -> None:
    """Raise LawBroken unless every entry is finite."""
    strange = x.detach()[~x.detach().isfinite()]
    if strange.numel():
        raise LawBroken(
            f"expected finite numbers, came {strange[0].item()} ({strange.numel()} of {x.numel()}) in {what}"
        )
