"""Single normalisers and operators made of them, beyond the laws that all operators keep."""

import math

import entmax
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid import SpecError
from variants import Ground, GroundValue, Normaliser, Number, Operator, Scores, attend, causal, softmax
from variants.papers.affine_scaled import learned_sink, off_by_one
from variants.papers.attention_sinks import identity_clamped
from variants.papers.catalogue import catalogue
from variants.papers.signed_averaging import entmax15, sa_softmax, sparsemax
from variants.stages.normalisers.absolute import Absolute
from variants.stages.normalisers.clamped import Clamped
from variants.stages.normalisers.count import Count
from variants.stages.normalisers.entmax15 import Entmax15
from variants.stages.normalisers.self_adjusted import SelfAdjusted
from variants.stages.normalisers.sink import Sink
from variants.stages.normalisers.sparsemax import Sparsemax
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
PAIRS = torch.stack((T, torch.zeros_like(T)), -1)[:, None]
"""Logits (t, 0)."""


def test_sparsemax_of_two_keys() -> None:
    w = Sparsemax().weights(scores(PAIRS)).keys[:, 0]
    close(w, torch.stack((((T + 1) / 2).clamp(0, 1), ((1 - T) / 2).clamp(0, 1)), -1))


def test_entmax_of_two_keys() -> None:
    w = Entmax15().weights(scores(PAIRS)).keys[:, 0, 0]
    inside = ((T / 2 + (2 - T.square() / 4).clamp(min=0).sqrt()) / 2).square()
    close(w, torch.where(T.abs() < 2, inside, (T > 0).double()))


@pytest.mark.parametrize(("normaliser", "power"), [(Sparsemax(), 0.0), (Entmax15(), 0.5)])
def test_the_jacobian_of_a_sparse_distribution(normaliser: Normaliser, power: float) -> None:
    z = draw(1, 7)
    w = normaliser.weights(scores(z)).keys[0]
    assert 0 < (w == 0).sum() < 6  # neither all nor nothing is cut off
    s = torch.where(w > 0, w**power, 0)
    jacobian = torch.autograd.functional.jacobian(lambda x: normaliser.weights(scores(x)).keys[0], z)[:, 0]
    close(jacobian, s.diag() - s[:, None] * s / s.sum())


@pytest.mark.parametrize("operator", [sparsemax(), entmax15()], ids=lambda operator: operator.name)
def test_sparse_distributions_are_uniform_on_equal_logits_and_sum_to_one(operator: Operator) -> None:
    q, k, v = qkv()
    close(attend(operator, q * 0, k, v).output, v.cumsum(2) / torch.arange(1, 14)[:, None])
    w = attend(operator, q * 5, k, v).weights
    close(w.sum(-1), torch.ones(2, 3, 13, dtype=torch.float64))
    assert (w.tril()[..., 12, :] == 0).any()


def test_a_row_that_sees_nothing_is_guarded_where_the_library_raises() -> None:
    with pytest.raises(RuntimeError):
        entmax.sparsemax(torch.full((1, 3), -math.inf))
    mask = torch.tensor([[True, True, False], [False, False, False]])
    z = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    for normaliser in (Sparsemax(), Entmax15()):
        w = normaliser.weights(scores(z, mask)).keys
        close(w.detach(), torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]).double())
        (found,) = torch.autograd.grad(w[:, 0].sum(), z)
        assert found[1].tolist() == [0, 0, 0]


def test_what_is_added_to_logits_and_sink_changes_nothing() -> None:
    z = draw(7, 13)
    for came, expected in zip(sink(z + 3.7, 0.4 + 3.7), sink(z, 0.4), strict=True):
        close(came, expected)


def test_a_sink_scales_softmax_by_the_sigmoid_of_the_margin() -> None:
    z, s = draw(7, 13), 0.4
    keys, ground = sink(z, s)
    share = (z.logsumexp(-1, keepdim=True) - s).sigmoid()
    close(keys, share * z.softmax(-1))
    close(ground, 1 - share)


def test_the_sink_s_gradient_is_its_weight_times_what_the_query_gets() -> None:
    q, k, v = qkv()
    s = torch.full((1, 3, 1, 1), 0.3, dtype=torch.float64, requires_grad=True)
    attended = attend(learned_sink(), q, k, v, numbers={"normaliser.logit": s})
    slope = draw(2, 3, 13, 5, seed=9)
    (attended.output * slope).sum().backward()
    assert attended.ground is not None
    expected = -(attended.ground * slope * attended.output).sum((0, 2, 3))
    close(s.grad[0, :, 0, 0], expected)


def test_off_by_one_is_one_more_key_and_value_of_zero() -> None:
    q, k, v = qkv()
    more = [torch.cat((torch.zeros_like(x[:, :, :1]), x), 2) for x in (k, v)]
    mask = torch.cat((torch.ones(13, 1, dtype=torch.bool), causal(13, 13)), -1)
    expected = attend(softmax(), q, *more, mask=mask)
    came = attend(off_by_one(), q, k, v)
    close(came.output, expected.output)
    close(came.ground, expected.weights[..., :1])


@pytest.mark.parametrize("n", [1, 3])
def test_softmax_n_adds_n_to_the_sum(n: int) -> None:
    q, k, v = qkv()
    z = q @ k.transpose(-2, -1) / 5**0.5
    f = z.exp().tril()
    numbers = {"normaliser.logit": torch.tensor(math.log(n), dtype=torch.float64)}
    close(attend(off_by_one(n), q, k, v, numbers=numbers).weights, f / (f.sum(-1, keepdim=True) + n))
    assert off_by_one(n).numbers()["normaliser.logit"].init == math.log(n)


def test_a_learned_sink_starts_as_off_by_one() -> None:
    q, k, v = qkv()
    assert (attend(learned_sink(), q, k, v).output == attend(off_by_one(), q, k, v).output).all()
    with pytest.raises(SpecError, match=r"above 0; got 0, and for 0 there is softmax\(\)"):
        off_by_one(0)


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


def test_a_query_with_no_mass_at_all_rests_in_the_sink() -> None:
    z = -torch.ones(1, 3, dtype=torch.float64)
    found = Sink().weights(Relu().scores(z, torch.ones(1, 3, dtype=torch.bool)), logit=torch.tensor(0.0))
    assert found.keys.tolist() == [[0, 0, 0]]
    assert found.ground is not None
    assert found.ground.tolist() == [[1]]


def test_a_clamped_sum_divides_only_where_its_size_is_above_one() -> None:
    z = torch.tensor([[0.2, 0.3, 0.4], [-0.2, -0.3, 0.1], [1.0, 2.0, 1.0], [-1.0, -2.0, -1.0], [3.0, -3.0, 0.5]])
    w = Clamped().weights(Identity().scores(z, torch.ones_like(z, dtype=torch.bool))).keys
    assert (w[[0, 1, 4]] == z[[0, 1, 4]]).all()
    assert w[2].tolist() == [0.25, 0.5, 0.25]
    assert w[3].tolist() == [-0.25, -0.5, -0.25]


def test_identity_clamped_gives_a_lone_key_its_logit_up_to_one() -> None:
    q, k, v = (x[:, :, :1] for x in qkv())
    z = (q * k).sum(-1, keepdim=True) / 5**0.5
    assert 0 < (z.abs() > 1).sum() < z.numel()
    close(attend(identity_clamped(), q, k, v).output, z.clamp(-1, 1) * v)


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


def test_the_count_is_that_of_visible_keys() -> None:
    mask = torch.tensor([[True, False, True, False], [False] * 4])
    w = Count().weights(scores(torch.zeros(2, 4), mask)).keys
    assert w.tolist() == [[0.5, 0, 0.5, 0], [0, 0, 0, 0]]


def adjust(z: Tensor, mask: Tensor | None = None, *, normalised: bool = True) -> Tensor:
    return SelfAdjusted(normalised=normalised).weights(scores(z, mask)).keys


@pytest.mark.parametrize("by", [-5.0, 0.0, 5.0])
def test_rows_of_sa_softmax_sum_to_at_most_one(by: float) -> None:
    z = draw(63, 7) + by
    w, p = adjust(z), z.softmax(-1)
    assert (w >= 0).all()
    assert (w <= p * (1 + 1e-15)).all()
    best = z == z.amax(-1, keepdim=True)
    if by >= 0:
        close(w[best], p[best])
    else:
        assert (w[z == z.amin(-1, keepdim=True)] == 0).all()


def test_the_factor_is_measured_from_zero_where_all_logits_have_one_sign() -> None:
    z = draw(63, 7).abs() + 0.5
    close(adjust(z), z / z.amax(-1, keepdim=True) * z.softmax(-1))
    close(adjust(-z), (1 - z / z.amax(-1, keepdim=True)) * (-z).softmax(-1))


def test_hidden_logits_are_not_the_smallest_of_a_row() -> None:
    z, mask = draw(7, 7), causal(7, 7)
    garbage = z.masked_fill(~mask, -1e9)
    assert (adjust(garbage, mask) == adjust(z, mask)).all()
    own = adjust(z[6:, :4])
    close(adjust(z[6:], torch.arange(7)[None] < 4)[:, :4], own)


def test_sa_softmax_of_one_key_asks_for_its_sign() -> None:
    z = torch.tensor([[0.3], [-0.3], [0.0]])
    assert adjust(z).tolist() == [[1], [0], [1]]


def test_sa_softmax_of_logits_that_are_all_zero_is_softmax_with_a_gradient() -> None:
    z = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    w = adjust(z)
    close(w.detach(), torch.full((1, 3), 1 / 3, dtype=torch.float64))
    assert (torch.autograd.grad(w[0, 0], z)[0] != 0).all()


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


def test_a_sink_may_be_given_a_value() -> None:
    q, k, v = qkv()
    numbers = {"normaliser.logit": torch.tensor(0.5), "readout.ground_value": torch.ones(1, 1, 1, 5).double()}
    came = attend(learned_sink().changed(readout=GroundValue()), q, k, v, numbers=numbers)
    close(came.output, came.weights @ v + came.ground * torch.ones(5, dtype=torch.float64))


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


@pytest.mark.parametrize("name", ["learned_sink", "off_by_one"])
def test_sinks_state_their_limits(name: str) -> None:
    assert "s -> -inf" in [limit.words for limit in catalogue()[name].limits]
