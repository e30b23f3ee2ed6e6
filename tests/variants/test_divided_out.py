"""A factor of all logits of a query is refused if score and normaliser divide it out again, and else taken."""

import pytest
import torch
from torch import Tensor

from variants import LogCount, NoPositions, Operator, Rotary, Score, Signals, Suppress, causal
from variants.stages.forgetting.selective import Selective
from variants.stages.normalisers.absolute import Absolute
from variants.stages.normalisers.sink import Sink
from variants.stages.positions.alibi import Alibi
from variants.stages.positions.scheme import Positions
from variants.stages.products.cosformer import CosFormer
from variants.stages.products.mlp import MLP
from variants.stages.scores.identity import Identity
from variants.stages.scores.relu import Relu
from variants.stages.scores.square import Square
from variants.stages.transforms.temperature import Temperature


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fit_heads(operator: Operator, positions: Positions) -> None:
    operator.check(heads=4, kv_heads=4, head_width=16, positions=positions)


TURNED = Operator(score=Relu(), signals=Signals(count=2))
DIVIDED_OUT = {
    "a temperature": (Operator(score=Square(), transform=Temperature()), NoPositions(), "transform 'temperature'"),
    "signals": (TURNED, NoPositions(), "signals.count=2 multiplies all logits"),
    "signals cut after rotary": (TURNED.changed(signals=Signals(count=2, rotary="before_split")), Rotary(), "count=2"),
    "signals of features": (
        Operator(score=Identity(), product=CosFormer(), signals=Signals(count=4)),
        NoPositions(),
        "use signals.count=1",
    ),
    "sizes that have no sign": (
        Operator(score=Identity(), product=CosFormer(), normaliser=Absolute()),
        NoPositions(),
        "use normaliser 'total'",
    ),
}
MEANT = {
    "a temperature beside a bias": (Operator(score=Square(), transform=Temperature()), Alibi()),
    "signals that turn": (TURNED, Rotary()),
    "signals of a network": (Operator(score=Relu(), product=MLP(), signals=Signals(count=2)), NoPositions()),
    "signals beside a bias": (TURNED, Alibi()),
    "a temperature beside a sink": (
        Operator(score=Square(), transform=Temperature(), normaliser=Sink()),
        NoPositions(),
    ),
    "a temperature of what is forgotten": (
        Operator(score=Square(), transform=Temperature(), forgetting=Selective()),
        NoPositions(),
    ),
    "a margin before a gate": (Operator(score=Relu(), margin=LogCount(), gate=Suppress(width=4)), NoPositions()),
    "signs that a bias makes": (Operator(score=Identity(), product=CosFormer(), normaliser=Absolute()), Alibi()),
}


@pytest.mark.parametrize("case", DIVIDED_OUT)
def test_what_the_normaliser_divides_out_again_is_refused(case: str) -> None:
    operator, positions, words = DIVIDED_OUT[case]
    with pytest.raises(ValueError, match=words):
        fit_heads(operator, positions)


@pytest.mark.parametrize("case", MEANT)
def test_what_the_normaliser_does_not_divide_out_is_taken(case: str) -> None:
    fit_heads(*MEANT[case])


SCALES = {kind: member.example() for kind, member in Score.members().items()}


@pytest.mark.parametrize("kind", SCALES)
def test_a_score_is_homogeneous_where_it_says_so(kind: str) -> None:
    """Under the sum of sizes, 3 times the logits give the same weights."""
    score = SCALES[kind]
    numbers = {name: torch.tensor(number.init).double() for name, number in score.numbers().items()}
    z, mask = draw(4, 7, 7), causal(7, 7)
    w, larger = (Absolute().weights(score.scores(x, mask, **numbers)).keys for x in (z, 3 * z))
    assert torch.allclose(w, larger, rtol=1e-12, atol=1e-14) == score.homogeneous
