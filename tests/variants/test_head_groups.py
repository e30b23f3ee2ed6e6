"""Numbers of a score that groups heads: parameters, projections and values for the heads of their part only."""

import torch
from torch import Tensor

from variants import SSA, Exponential, Number, Operator, Scalars, Transformer, attend, causal, gpt2, ssa
from variants.laws.oracle import attend_in_floats
from variants.model.parameters import NumberParameters
from variants.operator import head_shape
from variants.stages.scores.head_groups import HeadGroups


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(came: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(came, expected, rtol=1e-12, atol=1e-13)


def test_a_part_has_parameters_for_its_own_heads_only() -> None:
    for per, each in (("head", 2), ("query", 2 + 2 * 8), ("token", 2 + 2 * 32), ("layer", 1)):
        n, b = Number(init=1.5, per=per, link="at_least_one"), Number(init=1.0, link="positive")
        operator = Operator(score=HeadGroups(parts=(Exponential(), SSA(n=n, b=b))))
        model = Transformer(gpt2(layers=3, heads=4, width=32), [operator] * 3, inputs=Scalars(), seed=0)
        assert model.operator_parameters() == 3 * each
        heads = [head for layer, head, _, _ in model.numbers() if layer == 0]
        assert heads == ([None] if per == "layer" else [2, 3])


def test_a_number_per_query_of_a_part_sees_the_queries_of_its_heads() -> None:
    n = Number(init=1.5, per="query", link="at_least_one")
    operator = Operator(score=HeadGroups(parts=(Exponential(), SSA(n=n))))
    shape = head_shape(operator, heads=4, query=5, value=5, width=20)
    numbers = NumberParameters(operator, shape, {}, 0).double()
    torch.nn.init.ones_(numbers.projection["score_1_n"])
    q, k, v = (draw(1, 4, 7, 5, seed=seed) for seed in range(3))
    found = numbers.values(q, draw(1, 7, 20))
    start = numbers.table["score_1_n"].detach()
    assert start.shape == (1, 2, 1, 1)
    close(found["score.1.n"].detach(), 1 + (q.sum(-1, keepdim=True)[:, 2:] + start).exp().log1p())
    came = attend(operator, q, k, v, numbers=found).output
    lone = {name.replace("1.", ""): value for name, value in found.items()}
    close(came[:, 2:], attend(ssa(), q[:, 2:], k[:, 2:], v[:, 2:], numbers=lone).output)
    floats = {name: value[0].detach() for name, value in found.items()}
    heads = (q[0].tolist(), k[0].tolist(), v[0].tolist())
    expected = attend_in_floats(operator, heads, causal(7, 7).tolist(), floats)
    torch.testing.assert_close(came[0].detach(), torch.tensor(expected, dtype=torch.float64))
