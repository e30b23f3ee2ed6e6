"""Single scores, normalisers and operators made of them, Principled Attention above all, beyond the laws of all."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.errors import SpecError
from ablate.variants import (
    Exponential,
    Ground,
    GroundValue,
    LogCount,
    Normaliser,
    Number,
    Operator,
    Score,
    Scores,
    Total,
    attend,
    causal,
    principled,
    softmax,
)
from ablate.variants.laws.oracle import attend_in_floats
from ablate.variants.papers.integral import cog
from ablate.variants.papers.principled import principled_gate, principled_ground, principled_margin
from ablate.variants.papers.signed_averaging import four_scores
from ablate.variants.stages.normalisers import Absolute, Count, NoNormaliser, Sink
from ablate.variants.stages.scores import (
    SSA,
    HeadGroups,
    Identity,
    Relu,
    Sigmoid,
    SignedExponential,
    Square,
    Tanh,
    Uniform,
)


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
    "score", [Exponential(), SignedExponential(), HeadGroups(parts=(Exponential(), Tanh()))], ids=lambda each: each.kind
)
def test_an_exponential_that_overflows_leaves_other_rows_finite(score: Score, normaliser: Normaliser) -> None:
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


@pytest.mark.parametrize(("heads", "nearest"), [(1, 4), (3, 4), (6, 8), (9, 8), (11, 12)])
def test_heads_that_groups_do_not_divide_are_refused(heads: int, nearest: int) -> None:
    score = four_scores().score
    with pytest.raises(ValueError, match=rf"divisible by 4; got {heads}, nearest is {nearest}$"):
        score.check(heads)
    with pytest.raises(SpecError, match="divisible by 4"):
        attend(four_scores(), *(draw(1, heads, 5, 8) for _ in range(3)))
    score.check(nearest)


@pytest.mark.parametrize("kind", Normaliser.members())
def test_a_normaliser_is_free_of_scale_and_averages_where_it_says_so(kind: str) -> None:
    normaliser = Normaliser.members()[kind].example()
    numbers = {name: torch.tensor(number.init).double() for name, number in normaliser.numbers().items()}
    z, mask = draw(7, 7), causal(7, 7)

    def weights(log: Tensor) -> Tensor:
        return normaliser.weights(Scores(mask, log=log, score=lambda a: a), **numbers).keys

    equal = [torch.allclose(weights(z), weights(z + math.log(c)), rtol=1e-12, atol=1e-14) for c in (3, 1 / 3)]
    by_powers = normaliser.needs in ("logarithm", "exponential")  # no score here is homogeneous
    assert by_powers or all(equal) == normaliser.scale_free
    ones = torch.allclose(weights(z * 0), mask / mask.sum(-1, keepdim=True, dtype=torch.float64))
    assert by_powers or ones == normaliser.averages


@pytest.mark.parametrize(("normaliser", "score"), [(Operator().normaliser, Identity()), (Absolute(), Tanh())])
def test_scores_that_are_all_zero_give_zero(normaliser: Normaliser, score: Identity | Tanh) -> None:
    z = torch.zeros(2, 3, requires_grad=True)
    w = normaliser.weights(score.scores(z, torch.ones(2, 3, dtype=torch.bool))).keys
    assert (w == 0).all()
    (found,) = torch.autograd.grad(w.sum(), z)
    assert (found.abs() <= 1).all()


@pytest.mark.parametrize("kind", Score.members())
def test_a_score_is_homogeneous_where_it_says_so(kind: str) -> None:
    """Under the sum of sizes, 3 times the logits give the same weights."""
    score = Score.members()[kind].example()
    numbers = {name: torch.tensor(number.init).double() for name, number in score.numbers().items()}
    z, mask = draw(4, 7, 7), causal(7, 7)
    w, larger = (Absolute().weights(score.scores(x, mask, **numbers)).keys for x in (z, 3 * z))
    assert torch.allclose(w, larger, rtol=1e-12, atol=1e-14) == score.homogeneous


GATE = 4


def random_heads(*, gate: int = 0, length: int = 13, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k [2, 2, T, 8 + gate], v [2, 2, T, 8], float64."""
    made = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn((2, 2, length, width), generator=made, dtype=torch.float64) for width in (8 + gate, 8 + gate, 8)
    )
    return q, k, v


def numbers(alpha: float = -5.0, gamma: float = 0.0, v0: float = 0.0) -> dict[str, Tensor]:
    named = {"margin.amplification": alpha, "normaliser.threshold": gamma, "readout.ground_value": v0}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in named.items()}


def only(values: dict[str, Tensor], operator: Operator) -> dict[str, Tensor]:
    return {name: values[name] for name in operator.numbers()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_key_at_the_threshold_counts_as_relevant_whatever_the_margin(dtype: torch.dtype) -> None:
    """All logits equal gamma, so nothing is left to the ground state and gradients are those of softmax."""
    operator = Operator(margin=LogCount(), normaliser=Ground(), readout=GroundValue())
    z = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=dtype)
    q = (math.sqrt(8) * F.pad(z[:, None, None, None], (0, 7))).repeat(1, 1, 13, 1).requires_grad_()
    k = F.pad(torch.ones(200, 1, 13, 1, dtype=dtype), (0, 7))
    v = random_heads()[2][:1, :1].to(dtype).expand(200, -1, -1, -1)
    values = only({name: value.to(dtype) for name, value in numbers(alpha=0.3).items()}, operator)
    values["normaliser.threshold"] = ((q.detach() * (1 / math.sqrt(8))) @ k.transpose(-2, -1))[..., :1]
    found = attend(operator, q, k, v, numbers=values)
    assert found.ground is not None
    assert (found.ground == 0).all()
    seen = causal(13, 13)
    mean = (seen.to(dtype) / seen.sum(-1, keepdim=True)) @ v
    torch.testing.assert_close(found.output, mean)
    (slope,) = torch.autograd.grad(found.output.square().sum(), q)
    assert slope.abs().max() < 1e-5  # equal keys: moving the query moves all logits alike


def test_a_far_threshold_costs_no_bits_of_the_logit() -> None:
    operator = Operator(margin=LogCount(), normaliser=Ground())
    q, k, v = (x.float() for x in random_heads())
    values = {"margin.amplification": torch.tensor(-200.0), "normaliser.threshold": torch.tensor(-1e4)}
    found = attend(operator, q, k, v, numbers=values).output
    torch.testing.assert_close(found, attend(softmax(), q, k, v).output, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize(("margin", "expected"), [(0.9, (0.61, 0.49)), (1.1, (0.83, 0.88))])
def test_a_margin_over_one_survives_any_number_of_keys(margin: float, expected: tuple[float, float]) -> None:
    """With p = softplus(alpha) = 1, the weight of one relevant key tends to 1 exactly when p (s - gamma) > 1."""
    operator = Operator(margin=LogCount(), normaliser=Ground())
    values = only(numbers(alpha=math.log(math.expm1(1.0))), operator)
    found = []
    for keys in (100, 10_000):
        q = torch.ones((1, 1, 1, 1), dtype=torch.float64)
        k = torch.full((1, 1, keys, 1), -1e-9, dtype=torch.float64)  # just under the threshold
        k[..., 0, :] = margin
        seen = torch.ones((1, keys), dtype=torch.bool)
        found.append(float(attend(operator, q, k, k, mask=seen, numbers=values).weights[0, 0, 0, 0]))
    assert found == pytest.approx(expected, abs=0.005)
    assert (found[1] > found[0]) == (margin > 1)


@pytest.mark.parametrize("per", ["constant", "layer", "head", "query"])
@pytest.mark.parametrize("dims", ["add", "split"])
def test_the_whole_is_its_components(per: Any, dims: Any) -> None:
    whole, plain = principled(per, gate_width=GATE, gate_dims=dims), Operator()
    changed = []
    for each in (principled_margin(per), principled_gate(per, width=GATE, dims=dims), principled_ground(per)):
        changed.append({stage for stage, choice in each.stages().items() if choice != getattr(plain, stage)})
        assert all(getattr(whole, stage) == getattr(each, stage) for stage in changed[-1])
        assert {number.label for number in each.numbers().values()} <= {per, "head"}
    assert changed == [{"margin"}, {"gate"}, {"normaliser", "readout"}]
    rest = whole.stages().keys() - set().union(*changed)
    assert all(getattr(whole, stage) == getattr(plain, stage) for stage in rest)
