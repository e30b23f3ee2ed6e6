"""Laws that hold for every operator there is. A new choice is found and proved here without a line of its own."""

import math
import re
from typing import ClassVar, Literal

import pytest
import torch
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.variants import AttentionWeights, Ground, Operator, Suppress, Total, Values
from ablate.variants.laws.battery import LAWS, MAY_BREAK, LawBroken, find, prove
from ablate.variants.laws.examples import around, every_choice, examples, family, named_operators
from ablate.variants.laws.inputs import fit
from ablate.variants.laws.law import NotFinite, near
from ablate.variants.operator import KINDS
from ablate.variants.papers.catalogue import catalogue
from ablate.variants.score_map import Scores
from ablate.variants.stages.families import LogScore, PlainScore
from ablate.variants.stages.normalisers import Absolute
from ablate.variants.stages.scores import SSA, Exponential, Square

EXAMPLES = examples()
BY_NAME = {law.name: law for law in LAWS}
SINGLE = {operator.key for operator in (*named_operators(), *every_choice())}
OF_COMBINATIONS = set(BY_NAME) - {
    "score", "slope at zero", "limits", "json", "layer", "causality in a model", "start", "running means",
    "granularity", "training", "evaluation", "parameters", "any numbers", "low precision",
}  # fmt: skip
"""Laws that combinations of choices may break. The others are about single choices and their numbers."""


@pytest.mark.parametrize("operator", EXAMPLES, ids=[example.label.replace(" ", "-") for example in EXAMPLES])
def test_an_operator_keeps_every_law_or_declares_to_break_it(operator: Operator) -> None:
    names = BY_NAME if operator.key in SINGLE else OF_COMBINATIONS
    findings = (find(operator, BY_NAME[name]) for name in names)
    assert not {finding.law: finding.words or finding.declared for finding in findings if not finding.proved}


def test_every_choice_and_every_named_operator_is_proved() -> None:
    proved = {operator.key for operator in EXAMPLES}
    assert {operator.key for operator in named_operators()} <= proved
    found = {(stage, getattr(operator, stage).kind) for operator in EXAMPLES for stage in KINDS}
    there = {(stage, kind) for stage in KINDS for kind in family(stage).members()}
    assert found == there
    assert len({operator.label for operator in EXAMPLES}) == len(EXAMPLES), "two examples have one name"


def test_what_is_broken_is_a_law_and_has_a_reason() -> None:
    broken = [(law, reason) for operator in EXAMPLES for law, reason in operator.breaks.items()]
    assert broken
    assert all(law in MAY_BREAK and len(reason.split()) > 3 for law, reason in broken)


SILENT = {
    "softmax": "it is what others are compared with",
    "four_scores": "no other operator has these scores in these heads",
    "fox_decay_times": "its heads start with different decays, and no other operator's do",
    "identity": "it is a limit of others",
    "linear_elu_unnormalised": "its weights are a product that no other operator has",
    "mlp_kernel_unnormalised": "it is a limit of others",
    "sigmoid_log_count": "its shift differs by query, and no other operator's does",
}
"""Named operators without a limit or an identity, and why."""


def test_every_named_operator_states_a_limit_or_an_identity() -> None:
    silent = {name for name, known in catalogue().items() if not (known.limits or known.make().score.identities)}
    assert silent == set(SILENT)


def test_what_is_not_stated_is_neither_kept_nor_broken() -> None:
    findings = {finding.law: finding for finding in prove(Operator(name="softmax"))}
    assert all(finding.proved for finding in findings.values())
    silent = {law for law, finding in findings.items() if not finding.stated}
    assert silent == {
        "any numbers", "identities", "limits", "ties", "small weights", "numbers matter", "start", "running means",
        "granularity", "training",
    }  # fmt: skip


def test_heads_are_widened_until_they_carry_an_operator() -> None:
    split = Operator(gate=Suppress(width=16, dims="split"))
    assert fit(split).channels == 24
    with pytest.raises(SpecError, match=r"no heads of up to 128 channels carry .*leaves none"):
        fit(Operator(gate=Suppress(width=128, dims="split")))


def test_a_difference_is_told_with_its_place_and_with_all_its_digits() -> None:
    """Numbers that are nowhere finite are no difference, but nothing can be said of them."""
    one, numbers = torch.tensor([0.1], dtype=torch.float64), torch.tensor([1.0, torch.nan, torch.inf])
    for came, expected, error, words in (
        (
            [[1.0, 2.0], [3.0, torch.nan]],
            [[1.0, 2.0], [3.0, 4.0]],
            LawBroken,
            r"expected 4, came nan at \[1, 1\] \(1 of 4",
        ),
        (numbers, numbers.clone(), NotFinite, r"could not be tried: nan \(1 of 3 entries\)"),
        (numbers, [2.0, torch.nan, torch.inf], LawBroken, r"expected 2, came 1 at \[0\] \(1 of 3 entries\)"),
        (one, one.nextafter(one + 1), LawBroken, "expected 0.10000000000000002, came 0.10000000000000001 at"),
    ):
        with pytest.raises(error, match=words):
            near(torch.as_tensor(came), torch.as_tensor(expected), "numbers")


def test_a_key_that_is_seen_too_early_is_named() -> None:
    class Early(Total):
        kind: Literal["early_in_a_test"] = "early_in_a_test"  # type: ignore[assignment]

        def weights(self, scores: Scores) -> AttentionWeights:
            keys = super().weights(scores).keys.clone()
            if keys.shape[-1] > 10:
                keys[:, 1, 4, 10] = 0.5
            return AttentionWeights(keys, None)

    words = find(Operator(normaliser=Early()), BY_NAME["causality"]).words
    told = r"head 1, query 4 sees key 10, which comes later: with another token there its output moves by \d.*"
    assert re.fullmatch(told, words)


def test_a_score_is_compared_by_itself() -> None:
    class Doubled(Exponential):
        kind: Literal["doubled_in_a_test"] = "doubled_in_a_test"  # type: ignore[assignment]

        def oracle(self, a: float) -> float:  # a factor that the sum divides out again
            return 2 * math.exp(a)

    class Below(Square):
        kind: Literal["below_in_a_test"] = "below_in_a_test"  # type: ignore[assignment]

        def score(self, a: Tensor) -> Tensor:
            return a.square() - 0.1

        def oracle(self, a: float) -> float:
            return a * a - 0.1

    class Overflows(SSA):
        kind: Literal["overflows_in_a_test"] = "overflows_in_a_test"  # type: ignore[assignment]

        def log_score(self, a: Tensor, *, n: Tensor, b: Tensor) -> Tensor:
            return super().log_score(a, n=n, b=b) + 0 * a.square()

    assert {finding.law for finding in prove(Operator(score=Doubled())) if not finding.proved} == {"score"}
    assert "says it is not below 0" in find(Operator(score=Below()), BY_NAME["score"]).words
    assert "it is finite everywhere" in find(Operator(score=Overflows()), BY_NAME["score"]).words


def test_a_score_may_underflow_where_its_logarithm_is_finite() -> None:
    class Steep(LogScore):
        source: ClassVar[str] = "a test"
        kind: Literal["steep_in_a_test"] = "steep_in_a_test"

        def log_score(self, a: Tensor) -> Tensor:
            return 60 * a

        def oracle(self, a: float) -> float:
            return math.exp(60 * a) if a < 11 else math.inf

    assert Steep().oracle(-30) == 0
    assert find(Operator(score=Steep()), BY_NAME["score"]).kept


def test_a_score_that_jumps_at_0_has_no_slope_there() -> None:
    class Jumps(PlainScore):
        source: ClassVar[str] = "a test"
        kind: Literal["jumps_in_a_test"] = "jumps_in_a_test"

        def score(self, a: Tensor) -> Tensor:
            return a + a.detach().sign()

        def oracle(self, a: float) -> float:
            return a + (a > 0) - (a < 0)

    assert find(Operator(score=Jumps(), normaliser=Absolute()), BY_NAME["slope at zero"]).kept


def test_a_law_that_is_said_to_be_broken_and_is_kept_is_found() -> None:
    class Modest(Total):
        kind: Literal["modest_in_a_test"] = "modest_in_a_test"  # type: ignore[assignment]

        @property
        def breaks(self) -> dict[str, str]:
            return {"causality": "it is modest and means nothing by it"}

    finding = find(Operator(normaliser=Modest()), BY_NAME["causality"])
    assert finding.kept
    assert not finding.proved


def test_a_choice_gets_the_surroundings_that_give_it_a_meaning() -> None:
    class Needs(Values):
        needs_ground: ClassVar[bool] = True
        kind: Literal["needs_in_a_test"] = "needs_in_a_test"  # type: ignore[assignment]

    class Never(Values):
        kind: Literal["never_in_a_test"] = "never_in_a_test"  # type: ignore[assignment]

        @property
        def needs_ground(self) -> bool:  # type: ignore[override]
            raise ValueError("it stands alone")

    operator = around("readout", Needs())
    assert operator.normaliser == Ground()
    with pytest.raises(SpecError, match=r"no operator was found around readout 'never_in_a_test'.*it stands alone"):
        around("readout", Never())
