"""Single scores and operators made of them, beyond the laws that all operators keep."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid import SpecError
from variants import (
    Exponential,
    Ground,
    LogCount,
    Normaliser,
    Number,
    Operator,
    Score,
    Signals,
    Suppress,
    Total,
    attend,
    causal,
)
from variants.laws.oracle import attend_in_floats
from variants.papers.integral import cog
from variants.papers.signed_averaging import four_scores, ssa
from variants.stages.margins.ssmax import SSMax
from variants.stages.normalisers.absolute import Absolute
from variants.stages.normalisers.count import Count
from variants.stages.normalisers.none import NoNormaliser
from variants.stages.normalisers.sink import Sink
from variants.stages.scores.head_groups import HeadGroups
from variants.stages.scores.identity import Identity
from variants.stages.scores.relu import Relu
from variants.stages.scores.sigmoid import Sigmoid
from variants.stages.scores.signed_exponential import SignedExponential
from variants.stages.scores.square import Square
from variants.stages.scores.ssa import SSA
from variants.stages.scores.tanh import Tanh
from variants.stages.scores.uniform import Uniform


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(operator: Operator, z: Tensor, mask: Tensor | None = None) -> Tensor:
    """Weights [H, T, T] that the operator makes of logits, its numbers fixed where they start."""
    length = z.shape[-1]
    k = torch.eye(length, dtype=z.dtype).expand_as(z)
    numbers = {
        name: torch.full((1, len(z), 1, 1), number.init, dtype=z.dtype) for name, number in operator.numbers().items()
    }
    mask = torch.ones(length, length, dtype=torch.bool) if mask is None else mask
    return attend(operator, (z * length**0.5)[None], k[None], k[None], mask=mask, numbers=numbers).weights[0]


def close(came: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(came, expected, rtol=1e-12, atol=1e-13)


def test_cog_is_the_sign_times_softmax_of_sizes_with_no_gradient_of_the_sign() -> None:
    z = draw(1, 7, 7)
    close(weights(cog(), z), z.sign() * z.abs().softmax(-1))
    jacobian = torch.autograd.functional.jacobian(lambda row: weights(cog(), row.expand(1, 7, 7))[0, 0], z[0, 0])
    s, p = z[0, 0].sign(), z[0, 0].abs().softmax(-1)
    close(jacobian, s[:, None] * p[:, None] * (torch.eye(7) - p) * s)


@pytest.mark.parametrize("more", [(), (Tanh(),)], ids=["alone", "beside a plain score"])
def test_a_logit_of_0_has_no_weight_in_cog_and_adds_1_to_the_sum(more: tuple[Score, ...]) -> None:
    z = torch.tensor([[0.0, 1.0], [0.0, -2.0]], dtype=torch.float64).expand(1 + len(more), 2, 2)
    operator = cog().changed(score=HeadGroups(parts=(SignedExponential(), *more))) if more else cog()
    close(weights(operator, z)[0], (z.sign() * z.abs().softmax(-1))[0])
    q, k = [[[0.0], [0.0]]] * len(z), [[[1.0], [1.0]]] * len(z)
    numbers: dict[str, Tensor] = {}
    expected = attend_in_floats(operator, (q, [[[0.0], [1.0]]] * len(z), k), [[True, True]] * 2, numbers)
    assert expected[0] == [[0.0], [0.0]]
    ones = attend_in_floats(operator, (k, [[[0.0], [1.0]]] * len(z), k), [[True, True]] * 2, numbers)
    assert ones[0][0][0] == pytest.approx(math.e / (1 + math.e), rel=1e-14)


@pytest.mark.parametrize("normaliser", [NoNormaliser(), Count()], ids=lambda each: each.kind)
@pytest.mark.parametrize(
    "score",
    [Exponential(), SignedExponential(), HeadGroups(parts=(Exponential(), Tanh()))],
    ids=lambda each: each.kind,
)
def test_an_exponential_that_overflows_leaves_hidden_keys_and_other_rows_finite(
    score: Score, normaliser: Normaliser
) -> None:
    z = torch.zeros(2, 3, 3)
    z[:, 1, :2] = 100.0
    z[:, 2, 0] = 80.0
    z.requires_grad_()
    mask = causal(3, 3)
    w = normaliser.weights(score.scores(z.masked_fill(~mask, 0), mask)).keys
    assert (w[:, ~mask] == 0).all()
    assert not w.isnan().any()
    assert w[0, 1, :2].isinf().all()
    w.masked_fill(w.isinf(), 0).sum().backward()
    assert z.grad is not None
    assert z.grad[:, [0, 2]].isfinite().all()
    assert (z.grad[:, ~mask] == 0).all()


def test_a_weight_that_is_finite_is_so_beside_one_that_is_not() -> None:
    """e^0 next to e^100, in a group where a plain score is too."""
    z = torch.tensor([100.0, 0.0, -3.0]).expand(2, 3, 3)
    w = weights(Operator(score=HeadGroups(parts=(Exponential(), Tanh())), normaliser=NoNormaliser()), z)
    torch.testing.assert_close(w[0, 0, 1:], torch.tensor([1.0, math.exp(-3)]))


GROUPS = {
    "all known by logarithm": ((Exponential(), Uniform()), Operator().normaliser),
    "none but a constant": ((Tanh(), Uniform(), Relu(), Square()), Absolute()),
    "some known by logarithm, with a sum": ((Exponential(), Relu()), Operator().normaliser),
    "some known by logarithm, as they are": ((SSA(), Tanh(), Exponential()), NoNormaliser()),
    "some signed": ((SignedExponential(), Exponential()), Absolute()),
    "some signed, some plain": ((SignedExponential(), Identity()), Absolute()),
    "beside a sink": ((Exponential(), Sigmoid()), Sink()),
    "beside a sink, some plain": ((Exponential(), Square(), Relu()), Sink(logit=Number(init=0.5, per="head"))),
    "beside a threshold": ((SSA(), Exponential()), Ground(threshold=Number(init=0.2))),
}


@pytest.mark.parametrize("case", GROUPS)
def test_every_head_of_a_group_computes_what_its_score_alone_does(case: str) -> None:
    parts, normaliser = GROUPS[case]
    operator = Operator(score=HeadGroups(parts=parts), normaliser=normaliser)
    heads = 2 * len(parts)
    z, mask = draw(heads, 7, 7) * 3, causal(7, 7)
    came = weights(operator, z, mask)
    for at, part in enumerate(parts):
        own = slice(2 * at, 2 * at + 2)
        alone = (
            Total()
            if normaliser.needs == "signs" and part.range in ("positive", "nonnegative", "constant")
            else normaliser
        )
        close(came[own], weights(Operator(score=part, normaliser=alone), z[own], mask))


@pytest.mark.parametrize("by", [200.0, -200.0])
def test_exponentials_among_plain_scores_do_not_overflow(by: float) -> None:
    z = (draw(2, 7, 7) + by).float()
    for other, normaliser in ((Relu(), Total()), (Tanh(), Absolute())):
        mixed = Operator(score=HeadGroups(parts=(Exponential(), other)), normaliser=normaliser)
        torch.testing.assert_close(weights(mixed, z)[0], z[0].softmax(-1))
    scores = HeadGroups(parts=(Exponential(), Relu())).scores(z, torch.ones(7, 7, dtype=torch.bool))
    keys, ground = Sink().weights(scores, logit=torch.zeros(1, 1, 1))
    torch.testing.assert_close(keys[0], z[0].softmax(-1) if by > 0 else torch.zeros(7, 7))
    assert ground is not None
    assert (ground[0] == float(by < 0)).all()
    torch.testing.assert_close(keys.sum(-1, keepdim=True) + ground, torch.ones(2, 7, 1))


def test_groups_of_equal_meaning_have_equal_keys() -> None:
    def groups(*parts: Score) -> HeadGroups:
        return HeadGroups(parts=parts)

    e, u = Exponential(), Uniform()
    assert groups(e, e, u, u) == groups(e, u)
    assert groups(e, e, u) != groups(e, u)
    assert groups(e, u) != groups(u, e)
    shared = SSA(n=Number(init=1.5, per="layer", link="at_least_one"))
    assert groups(SSA(), SSA(), e, e) == groups(SSA(), e)  # every head has its own n and b either way
    assert len(groups(shared, shared).numbers()) == 4  # learned apart, so two groups
    assert len(groups(shared, shared, e, e).parts) == 4


def test_numbers_of_parts_have_names_of_their_own() -> None:
    operator = Operator(score=HeadGroups(parts=(SSA(n=Number(init=2.0, link="at_least_one")), Exponential(), SSA())))
    assert list(operator.numbers()) == ["score.0.n", "score.0.b", "score.2.n", "score.2.b"]
    assert [number.init for number in operator.numbers().values()] == [2.0, 1.0, 1.5, 1.0]
    assert Operator.model_validate(operator.data()) == operator


def test_the_variants_of_ssa_s_released_code() -> None:
    gpt2 = ssa(math.exp(0.4), math.e, per="layer", n_link="positive").numbers()
    assert {(number.init, number.per, number.link) for number in gpt2.values()} == {
        (math.exp(0.4), ("layer",), "positive"),
        (math.e, ("layer",), "positive"),
    }
    later = ssa(1.5, 0.8, per="layer", b_per="constant").numbers()
    assert [number.trained for number in later.values()] == [True, False]
    assert not any(number.trained for number in ssa(2.0, per="constant").numbers().values())


REFUSED = {
    "sizes of what is never negative": (
        lambda: Operator(score=Square(), normaliser=Absolute()),
        "'absolute' is for scores of both signs, and 'square' is never negative here.*use normaliser 'total'",
    ),
    "sizes of one score": (lambda: Operator(score=Uniform(), normaliser=Absolute()), "use normaliser 'total'"),
    "a margin that is divided out": (
        lambda: Operator(score=Relu(), margin=SSMax()),
        "margin 'ssmax' multiplies all logits.*which score 'relu' under normaliser 'total' divides out again; leave it",
    ),
    "a margin that is divided out in every group": (
        lambda: Operator(score=HeadGroups(parts=(Uniform(), Identity())), normaliser=Absolute(), margin=LogCount()),
        "'head_groups' under normaliser 'absolute' divides out",
    ),
    "one n for all heads, twice": (lambda: HeadGroups(parts=(SSA(), SSA())), "two or more different scores; got ssa"),
    "another divisor": (
        lambda: four_scores("sum"),  # type: ignore[arg-type]
        "divided of four_scores is one of 'count', 'absolute'; got 'sum'",
    ),
    "identity under a sum": (
        lambda: Operator(score=Identity()),
        "needs a score that is not negative, and 'identity' can be; use normaliser 'clamped'",
    ),
    "tanh in a group under a sum": (
        lambda: Operator(score=HeadGroups(parts=(Exponential(), Tanh()))),
        "not negative, and 'head_groups' can be",
    ),
    "signs beside a sink": (
        lambda: Operator(score=SignedExponential(), normaliser=Sink()),
        "'sink' needs a score that is not negative, and 'signed_exponential' can be",
    ),
    "relu beside a threshold": (
        lambda: Operator(score=Relu(), normaliser=Ground()),
        "'ground' needs a positive score known by its logarithm, such as 'exponential' or 'ssa'; got 'relu'",
    ),
    "plain scores in a group beside a threshold": (
        lambda: Operator(score=HeadGroups(parts=(Exponential(), Relu())), normaliser=Ground()),
        "known by its logarithm.*got 'head_groups'",
    ),
    "a gate that nothing looks at": (
        lambda: Operator(score=Uniform(), gate=Suppress()),
        "'uniform' is the same whatever the logit, so gate would say nothing",
    ),
    "signals that nothing looks at": (
        lambda: Operator(score=Uniform(), signals=Signals(count=2)),
        "so signals would say nothing",
    ),
    "a threshold that nothing looks at": (
        lambda: Operator(score=Uniform(), normaliser=Sink()),
        "so normaliser would say nothing",
    ),
    "one part": (lambda: HeadGroups(parts=(Relu(), Relu())), "two or more different scores; got relu"),
    "no part": (lambda: HeadGroups(parts=()), "two or more different scores; got none"),
    "groups of groups": (
        lambda: HeadGroups(parts=(Relu(), HeadGroups(parts=(Relu(), Tanh())))),
        "not groups again; list all parts",
    ),
    "ssa's n below 1": (lambda: ssa(0.5), r"init in \(1, inf\); got 0.5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_with_the_rule(case: str) -> None:
    build, words = REFUSED[case]
    with pytest.raises((ValidationError, SpecError), match=words):
        build()


@pytest.mark.parametrize(("heads", "nearest"), [(1, 4), (3, 4), (6, 8), (9, 8), (11, 12)])
def test_heads_that_groups_do_not_divide_are_refused(heads: int, nearest: int) -> None:
    score = four_scores().score
    with pytest.raises(ValueError, match=rf"divisible by 4; got {heads}, nearest is {nearest}$"):
        score.check(heads)
    with pytest.raises(ValueError, match="divisible by 4"):
        attend(four_scores(), *(draw(1, heads, 5, 8) for _ in range(3)))
    score.check(nearest)
