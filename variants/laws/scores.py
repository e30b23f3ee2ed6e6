"""Laws of a score by itself: it equals its oracle, keeps its range and limits, and has a slope at 0."""

import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ablate.variants.laws.inputs import random_inputs
from ablate.variants.laws.law import Law, LawBroken, NothingStated, near, require
from ablate.variants.operator import Operator
from ablate.variants.score_map import Scores
from ablate.variants.stages.families import Range, Score

_LOGITS = (-1.3, 1.3, -0.4, 0.4, -1.0, 1.0, -3.1, 3.1, 0.0, -1e-3, 1e-3, -6.0, 6.0, -30.0, 30.0)
"""The most informative first."""
_FAR = (-1e25, -1e4, 1e4, 1e25)
_RANGES: dict[Range, str] = {
    "positive": "above 0",
    "nonnegative": "not below 0",
    "as its logit": "not below 0 where its logit is not",
    "constant": "1 everywhere",
}


def _score(operator: Operator) -> None:
    """Compare each score with its oracle. Only this law finds a factor that a normaliser divides out again."""
    for member, own in _members(operator):
        numbers = {name: value.tolist() if value.numel() > 1 else value.item() for name, value in own.items()}
        scores = _scores(member, _LOGITS, own)
        f = scores.values().flatten()
        positive = f > 0 if scores.log is None else scores.log.flatten().isfinite()  # its exponential may underflow
        words = "".join(f", {name}={value:.3g}" for name, value in numbers.items())
        for a, came, is_positive in zip(_LOGITS, f.tolist(), positive.tolist(), strict=True):
            expected = member.oracle(a, **numbers)
            require(
                math.isclose(came, expected, rel_tol=1e-10),
                f"f({a:g}){words}: the oracle says {expected:.6g}, {_gives(member, a, own)}",
            )
            for score in (member, operator.score):
                says = f"score {score.label!r} says it is {_RANGES.get(score.range)}"
                holds = is_positive if score.range == "positive" else _within(score.range, a, came)
                require(holds, f"f({a:g}){words}: {says}, {_gives(member, a, own)}")
        _far(member, own, words)


def _members(operator: Operator) -> Iterator[tuple[Score, dict[str, Tensor]]]:
    """Yield the score of every head with its numbers [1, 1, 1, entries]."""
    inputs = random_inputs(operator, length=1)
    heads = inputs.q.shape[1]
    for head in range(heads):
        member, prefix = operator.score.of_head(head, heads)
        start = f"score.{prefix}"
        own = {name: value[:1, head : head + 1, :1] for name, value in inputs.numbers.items() if name.startswith(start)}
        yield member, {name.removeprefix(start): value for name, value in own.items()}


def _scores(member: Score, logits: Iterable[float] | Tensor, own: dict[str, Tensor]) -> Scores:
    """Compute the scores of N logits as one row [1, 1, 1, N]."""
    a = logits if isinstance(logits, Tensor) else torch.tensor([*logits], dtype=torch.float64)
    return member.scores(a[None, None, None], torch.ones(1, len(a), dtype=torch.bool), **own)


def _gives(member: Score, a: float, own: dict[str, Tensor]) -> str:
    """Describe the score's value, with its logarithm if it has one."""
    scores = _scores(member, [a], own)
    log = "" if scores.log is None else f" (log_score: ln f = {scores.log.item():.6g})"
    return f"the function gives {scores.values().item():.6g}{log}"


def _within(allowed: Range, a: float, f: float) -> bool:
    holds = {"nonnegative": f >= 0, "as its logit": f >= 0 or a < 0, "constant": f == 1, "any": True}
    return holds[allowed]


def _far(member: Score, own: dict[str, Tensor], words: str) -> None:
    """Require a finite logarithm and slope for every finite logit."""
    a = torch.tensor(_FAR, dtype=torch.float32).requires_grad_()
    log = _scores(member, a, {name: value.float() for name, value in own.items()}).log
    if log is None:
        return
    (slope,) = torch.autograd.grad(log.sum(), a, materialize_grads=True, allow_unused=True)
    for what, came in (("ln f", log), ("the slope of ln f", slope)):
        for logit, value in zip(_FAR, came.flatten().tolist(), strict=True):
            require(math.isfinite(value), f"f({logit:g}){words}: {what} in float32 is {value}; it is finite everywhere")


def _identities(operator: Operator) -> None:
    """Compare a score with the scores that its identities name."""
    if not operator.score.identities:
        raise NothingStated
    logits = tuple(torch.linspace(-6, 6, 101, dtype=torch.float64).tolist())
    for identity in operator.score.identities:
        numbers = {name: torch.tensor(value, dtype=torch.float64) for name, value in identity.numbers.items()}
        other = Score.members().get(identity.to)
        if other is None:
            raise LawBroken(f"{operator.score.label!r} tends to {identity.to!r}, and there is no such score")
        came, expected = (
            _scores(*each).values() for each in ((operator.score, logits, numbers), (other.example(), logits, {}))
        )
        near(came, expected, f"{operator.score.label} with {dict(identity.numbers)}", rtol=identity.within)


def _slope_at_zero(operator: Operator) -> None:
    """Check the gradient at a logit of 0, where all logits of a fresh model are."""
    step = math.ulp(1.0) ** 0.5
    for member, own in _members(operator):
        a = torch.tensor((-step, 0.0, step), dtype=torch.float64).requires_grad_()
        scores = _scores(member, a, own)
        shown = scores.plain if scores.log is None else scores.log
        assert shown is not None
        below, at, above = shown.flatten()
        (slopes,) = torch.autograd.grad(at, a, allow_unused=True, materialize_grads=True)
        left, right = ((at - below) / step).detach(), ((above - at) / step).detach()
        if max(float(left.abs()), float(right.abs())) > step**-0.5:
            continue  # a jump has no slope
        came = slopes[1]
        low, high = torch.minimum(left, right) - 1e-5, torch.maximum(left, right) + 1e-5
        near(came, came.clamp(low, high), f"the slope of score {member.label!r} at a logit of 0")


LAWS = (
    Law("score", "Its score is what the plain floats say, within the range it states; ln f is finite.", _score),
    Law("identities", "Its score tends to what the score says it tends to.", _identities),
    Law("slope at zero", "At a logit of 0 the score's gradient is one of its slopes there.", _slope_at_zero),
)
