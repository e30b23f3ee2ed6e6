"""Single normalisers and operators made of them, beyond the laws that all operators keep."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid import SpecError
from variants import Ground, GroundValue, Normaliser, Number, Operator, Scores, attend, causal
from variants.papers.signed_averaging import entmax15, sa_softmax, sparsemax
from variants.stages.normalisers.absolute import Absolute
from variants.stages.normalisers.clamped import Clamped
from variants.stages.normalisers.self_adjusted import SelfAdjusted
from variants.stages.normalisers.sink import Sink
from variants.stages.products.linear_elu import LinearELU
from variants.stages.products.relu import ReluFeatures
from variants.stages.scores.identity import Identity
from variants.stages.scores.relu import Relu
from variants.stages.scores.ssa import SSA
from variants.stages.scores.tanh import Tanh


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def qkv(length: int = 13) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (draw(2, 3, length, 5, seed=seed) for seed in range(3))
    return q, k, v


def scores(z: Tensor, mask: Tensor | None = None) -> Scores:
    """Exponential scores of logits [..., T, T]."""
    return Scores(torch.ones_like(z, dtype=torch.bool) if mask is None else mask, log=z)


def sink(z: Tensor, s: float) -> tuple[Tensor, Tensor]:
    """Weights of keys and of a sink of logit s."""
    found = Sink().weights(scores(z), logit=torch.tensor(s, dtype=z.dtype))
    assert found.ground is not None
    return found.keys, found.ground


def close(came: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(came, expected, rtol=1e-12, atol=1e-13)


T = torch.linspace(-3, 3, 63, dtype=torch.float64)
"""Logits (t, 0)."""


@pytest.mark.parametrize("s", [0.0, 90.0, -90.0])
@pytest.mark.parametrize("by", [200.0, -200.0])
def test_a_sink_is_finite_far_from_zero(by: float, s: float) -> None:
    z = (draw(7, 13).float() + by).requires_grad_()
    keys, ground = sink(z, s)
    torch.testing.assert_close(keys, z.softmax(-1) if by > 0 else z * 0)
    assert (ground == float(by < 0)).all()
    (found,) = torch.autograd.grad(keys.square().sum(), z)
    assert found.isfinite().all()


def test_a_sink_of_negative_score_is_none() -> None:
    q, k, v = qkv()
    operator = Operator(product=ReluFeatures(), score=Identity(), normaliser=Sink())
    plain = operator.changed(normaliser=Operator().normaliser)
    for s, same in ((-1.0, True), (1.0, False)):
        numbers = {"normaliser.logit": torch.tensor(s, dtype=torch.float64)}
        came, expected = attend(operator, q, k, v, numbers=numbers), attend(plain, q, k, v)
        assert ((came.output - expected.output).abs().max() < 1e-13) == same


@pytest.mark.parametrize("by", [200.0, -200.0, 0.0])
def test_clamped_exponentials_know_where_one_is(by: float) -> None:
    z = draw(7, 13).float() + by
    z[0] -= 4
    exact = z.double().exp() / z.double().exp().sum(-1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(Clamped().weights(scores(z)).keys, exact.float())


@pytest.mark.parametrize(("normaliser", "score"), [(Operator().normaliser, Identity()), (Absolute(), Tanh())])
def test_scores_that_are_all_zero_give_zero_and_finite_gradients(
    normaliser: Normaliser, score: Identity | Tanh
) -> None:
    z = torch.zeros(2, 3, requires_grad=True)
    w = normaliser.weights(score.scores(z, torch.ones(2, 3, dtype=torch.bool))).keys
    assert (w == 0).all()
    (found,) = torch.autograd.grad(w.sum(), z)
    assert (found.abs() <= 1).all()


def adjust(z: Tensor, mask: Tensor | None = None, *, normalised: bool = True) -> Tensor:
    return SelfAdjusted(normalised=normalised).weights(scores(z, mask)).keys


def test_the_plain_variant_is_the_logit_times_softmax() -> None:
    z, mask = draw(7, 7), causal(7, 7)
    close(adjust(z, mask, normalised=False), z.tril() * z.masked_fill(~mask, -math.inf).softmax(-1))
    assert sa_softmax(normalised=False).key != sa_softmax().key


REFUSED = {
    "logits of another score": (
        lambda: sa_softmax().changed(score=SSA()),
        "takes the logarithm of a score for its logit and needs score 'exponential'; got 'ssa'",
    ),
    "a projection of plain scores": (
        lambda: sparsemax().changed(score=Relu()),
        "'sparsemax' needs a positive score known by its logarithm, such as 'exponential' or 'ssa'; got 'relu'",
    ),
    "a ground value without a ground state": (
        lambda: entmax15().changed(readout=GroundValue()),
        "needs a normaliser with a ground state and 'entmax15' has none",
    ),
    "a fixed sink that varies": (
        lambda: Operator(normaliser=Sink(logit=Number(init=0.0, per="head", learned=False))),
        "use per='constant'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_is_refused_with_the_rule(case: str) -> None:
    build, words = REFUSED[case]
    with pytest.raises((ValidationError, SpecError), match=words):
        build()


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


def test_a_ground_state_under_logits_that_are_not_negative_is_empty_and_dead() -> None:
    q, k, v = qkv()
    numbers = {
        "normaliser.threshold": torch.zeros(1, 1, 1, 1, dtype=torch.float64, requires_grad=True),
        "readout.ground_value": torch.zeros(1, 1, 1, 5, dtype=torch.float64, requires_grad=True),
    }
    operator = Operator(product=LinearELU(), normaliser=Ground(), readout=GroundValue())
    found = attend(operator, q, k, v, numbers=numbers)
    assert (found.ground == 0).all()
    slopes = torch.autograd.grad(found.output.square().sum(), list(numbers.values()), materialize_grads=True)
    assert all((each == 0).all() for each in slopes)
    assert any("linear_elu" in trap for trap in Ground.traps)
