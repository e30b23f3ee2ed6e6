"""Numbers of a score that groups heads: parameters, projections and values for the heads of their part only."""

from variants import SSA, Exponential, Number, Operator, Scalars, Transformer, gpt2
from variants.stages.scores.head_groups import HeadGroups


def test_a_part_has_parameters_for_its_own_heads_only() -> None:
    for per, each in (("head", 2), ("query", 2 + 2 * 8), ("token", 2 + 2 * 32), ("layer", 1)):
        n, b = Number(init=1.5, per=per, link="at_least_one"), Number(init=1.0, link="positive")
        operator = Operator(score=HeadGroups(parts=(Exponential(), SSA(n=n, b=b))))
        model = Transformer(gpt2(layers=3, heads=4, width=32), [operator] * 3, inputs=Scalars(), seed=0)
        assert model.operator_parameters() == 3 * each
        heads = [head for layer, head, _, _ in model.numbers() if layer == 0]
        assert heads == ([None] if per == "layer" else [2, 3])
