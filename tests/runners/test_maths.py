"""Operators for the dashboard: weights as by hand, words of every operator, one sentence for each error."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate.grid.errors import AblateError
from ablate.grid.operator_view import OperatorCatalogue
from ablate.runners.catalogue.operator_maths import OperatorMaths
from ablate.runners.catalogue.weight_profile import LOGITS as ROW, SETTINGS, profiles
from ablate.variants import Operator, principled, ssa
from ablate.variants.papers.catalogue import catalogue

LOGITS = (0.2, 4.0, 1.9, 2.0, -0.5, 0.1, -1.5, -3.0)
MATHS: OperatorCatalogue = OperatorMaths()


def ratios(score: Callable[[float], float]) -> list[float]:
    total = sum(score(z) for z in LOGITS)
    return [score(z) / total for z in LOGITS]


def power(z: float, n: float, b: float) -> float:
    return math.pow(1 + b * abs(z), n if z >= 0 else -n)


def ground(threshold: float) -> tuple[list[float], float]:
    """Weights of keys and of the ground state."""
    total = sum(max(math.exp(threshold), math.exp(z)) for z in LOGITS)
    short = sum(max(0.0, math.exp(threshold) - math.exp(z)) for z in LOGITS)
    return [math.exp(z) / total for z in LOGITS], short / total


BY_HAND: dict[str, tuple[str, dict[str, float], Callable[[], Sequence[float]]]] = {
    "softmax": ("softmax", {}, lambda: ratios(math.exp)),
    "ssa elsewhere": ("ssa", {"score.n": 3.0, "score.b": 0.25}, lambda: ratios(lambda z: power(z, 3.0, 0.25))),
    "temperature": ("temperature", {"transform.tau": 5.0}, lambda: ratios(lambda z: math.exp(z / 5))),
    "cog": (
        "cog",
        {},
        lambda: [math.copysign(math.exp(abs(z)), z) / sum(map(math.exp, map(abs, LOGITS))) for z in LOGITS],
    ),
    "principled_ground": ("principled_ground", {"normaliser.threshold": 1.5}, lambda: ground(1.5)[0]),
    "principled_margin": (
        "principled_margin",
        {"margin.amplification": 0.5},
        lambda: ratios(lambda z: math.exp((1 + math.log1p(math.exp(0.5)) * math.log(len(LOGITS))) * z)),
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_weights_are_those_computed_by_hand(case: str) -> None:
    name, numbers, expected = BY_HAND[case]
    (row,) = MATHS.weights(name, {}, numbers, LOGITS)
    assert row.keys == pytest.approx(list(expected()), abs=1e-9)
    assert row.total == pytest.approx(sum(expected()), abs=1e-9)


def test_what_is_left_to_the_ground_state_or_has_weights_of_its_own_is_told_apart() -> None:
    (row,) = MATHS.weights("principled_ground", {}, {"normaliser.threshold": 1.5}, LOGITS)
    assert row.ground == pytest.approx(ground(1.5)[1], abs=1e-9)
    assert row.total + row.ground == pytest.approx(1.0, abs=1e-9)
    assert MATHS.describe("principled_ground", {}).apart == "ground state"
    (sink,) = MATHS.weights("learned_sink", {}, {"normaliser.logit": 2.0}, LOGITS)
    total = sum(map(math.exp, LOGITS))
    assert sink.ground == pytest.approx(math.exp(2) / (math.exp(2) + total), abs=1e-9)
    (key,) = MATHS.weights("key_bias", {}, {"extra.learned_key": 1.0}, LOGITS)
    assert key.extra == pytest.approx(math.exp(1) / (math.exp(1) + total), abs=1e-9)


def test_a_number_of_any_granularity_has_a_slider_that_does_the_same() -> None:
    expected = ratios(lambda z: power(z, 2.0, 1.0))
    for per in ("constant", "layer", "head", "query"):
        n = next(each for each in MATHS.describe("ssa", {"per": per}).numbers if each.name == "score.n")
        assert n.span is not None
        assert n.varies.startswith("constant" if per == "constant" else f"per {per}")
        assert MATHS.weights("ssa", {"per": per}, {"score.n": 2.0}, LOGITS)[0].keys == pytest.approx(expected, abs=1e-9)
    data = ssa(n=2.0, per="query").data()
    assert MATHS.weights(data, {}, {}, LOGITS)[0].keys == pytest.approx(expected, abs=1e-9)
    assert (MATHS.describe(data, {}).label, MATHS.describe(principled().data(), {}).paper) == ("SSA", "")
    (row,) = MATHS.weights("sliding_window", {"size": "2"}, {}, LOGITS)
    assert row.keys[:-2] == (0.0,) * 6
    assert sum(row.keys) == pytest.approx(1.0)


def test_scores_are_those_of_the_formula_for_every_group_of_heads() -> None:
    points = (-3.0, -0.5, 0.0, 0.5, 3.0)
    (curve,) = MATHS.scores("ssa", {}, {"score.n": 2.0}, points)
    assert curve.values == pytest.approx([power(a, 2.0, 1.0) for a in points])
    groups = MATHS.scores("four_scores", {}, {}, points)
    assert [curve.heads for curve in groups] == [f"head {i} of 4" for i in range(1, 5)]
    assert groups[0].values == pytest.approx([math.tanh(a) for a in points])
    assert groups[1].values == (1.0,) * 5
    assert groups[2].values == (0.0, 0.0, 0.0, 0.5, 3.0)
    assert groups[3].values == pytest.approx([a * a for a in points])
    assert MATHS.scores("softmax", {}, {}, (1e3,))[0].values == (None,)


@pytest.mark.parametrize("name", catalogue())
def test_every_named_operator_is_described_and_weighs_a_row(name: str) -> None:
    found = MATHS.describe(name, {})
    assert found.line
    assert found.paper
    assert all(part.formula for part in found.parts)
    numbers: dict[str, float] = {}
    for each in found.numbers:
        if each.span is not None:
            low, high, step = each.span
            assert low <= each.init <= high
            assert 0 < step <= high - low
            numbers[each.name] = each.init
            assert MATHS.weights(name, {}, {each.name: low}, LOGITS)
            assert MATHS.weights(name, {}, {each.name: high}, LOGITS)
    usual = MATHS.weights(name, {}, {}, LOGITS)
    assert all(len(row.keys) == len(LOGITS) for row in usual)
    for row, other in zip(MATHS.weights(name, {}, numbers, LOGITS), usual, strict=True):
        assert row.keys == pytest.approx(other.keys, abs=1e-6)  # a start is kept in single precision
    assert MATHS.scores(name, {}, numbers, (-1.0, 1.0))
    for setting in found.settings:
        assert MATHS.weights(name, setting.arguments, setting.numbers, LOGITS)


NONSENSE: dict[str, tuple[Any, dict[str, str], dict[str, float], Sequence[float]]] = {
    "there is no operator 'ssaa'; `ablate operators` lists them all; did you mean 'ssa'": ("ssaa", {}, {}, LOGITS),
    "SSA has no number 'score.m'; it has score.n, score.b": ("ssa", {}, {"score.m": 1.0}, LOGITS),
    "score.n of SSA is in [1, inf]; got 0.5": ("ssa", {}, {"score.n": 0.5}, LOGITS),
    "a row has 2 to 64 logits; got 1": ("ssa", {}, {}, (1.0,)),
    "a logit is a number from -10000 to 10000; got inf": ("ssa", {}, {}, (1.0, math.inf)),
    "integral has no argument 'signal'; it has signals, rotary": ("integral", {"signal": "4"}, {}, LOGITS),
    "integral: rotary should be 'per_signal' or 'before_split', got 'no'": ("integral", {"rotary": "no"}, {}, LOGITS),
    "open the dashboard with `ablate dash --spec FILE`": ({"score": {"kind": "mine"}}, {}, {}, LOGITS),
}


def test_nonsense_is_one_sentence() -> None:
    cases = [("integral_weights", {"signals": n}, {}, LOGITS) for n in ("3", "1024", "0", "-1", "1000000000000", "1e3")]
    for words, asked in (*NONSENSE.items(), *(("", case) for case in cases)):
        with pytest.raises(AblateError) as caught:
            MATHS.weights(*asked)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_operators_and_choices_of_a_spec_file_are_known(tmp_path: Path) -> None:
    spec = tmp_path / "mine.py"
    spec.write_text(
        '"""Mine."""\nfrom typing import ClassVar, Literal\n\nfrom torch import Tensor\n\n'
        "from ablate.variants import Operator\nfrom ablate.variants.papers.catalogue import named_operator\n"
        "from ablate.variants.stages.families import PlainScore\n\n\n"
        'class Cube(PlainScore):\n    """The cube: f(a) = a^3."""\n\n    source: ClassVar[str] = "here"\n'
        '    range: ClassVar = "any"\n    kind: Literal["dash_cube"] = "dash_cube"\n\n'
        "    def score(self, a: Tensor) -> Tensor:\n        return a**3\n\n"
        "    def oracle(self, a: float) -> float:\n        return a**3\n\n\n"
        '@named_operator("beyond")\ndef dash_cube(name: str = "Dash cube") -> Operator:\n    """Cubes as weights."""\n'
        '    return Operator(name=name, score=Cube(), normaliser={"kind": "none"})\n'
    )
    script = (
        "import sys; from pathlib import Path; from ablate.runners.catalogue.operator_maths import OperatorMaths; "
        f"m = OperatorMaths(Path({str(spec)!r})); assert 'torch' not in sys.modules; "
        "print([each.name for each in m.list_operators()][-1]); "
        "print(m.weights('dash_cube', {}, {}, (1.0, 2.0))[0].keys); "
        "print(m.weights({'score': {'kind': 'dash_cube'}, 'normaliser': {'kind': 'none'}}, {}, {}, (3.0, 1.0))[0].keys)"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    last, first, second = answer.stdout.splitlines()
    assert last == "dash_cube"
    assert eval(first) == pytest.approx((1.0, 8.0))
    assert eval(second) == pytest.approx((27.0, 1.0))


def test_heads_with_different_scores_have_a_profile_each() -> None:
    rows = profiles(catalogue()["soft_avg"].make(), {})
    assert [row.heads for row in rows] == ["head 1 of 2", "head 2 of 2"]
    assert rows[0].keys == profiles(Operator(), {})[0].keys
    assert set(rows[1].keys) == {round(1 / len(ROW), 3)}


@pytest.mark.parametrize("name", ["differential", "mlp_kernel", "key_bias"])
def test_profiles_do_not_depend_on_the_random_state(name: str) -> None:
    rows = []
    for seed in (0, 7):
        torch.manual_seed(seed)
        rows.append(profiles(catalogue()[name].make(), {}))
    assert rows[0] == rows[1]


def test_a_prefix_shows_more_keys_to_a_query() -> None:
    setting = SETTINGS["prefix_lm"]
    (row,) = profiles(catalogue()["prefix_lm"].make(**setting.arguments), {}, setting.query)
    total = sum(map(math.exp, ROW[:8]))
    assert row.keys == pytest.approx([math.exp(z) / total for z in ROW[:8]] + [0.0] * 5, abs=5e-4)
    for name, each in SETTINGS.items():
        assert set(each.numbers) <= set(catalogue()[name].make().numbers())
