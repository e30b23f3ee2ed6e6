"""A plan names cells that compute the same function, and stays whole whatever a user's operator does."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch
from operator_findings import TRIAL, findings, margin
from torch import Tensor

from ablate import (
    Alibi,
    Grid,
    Ground,
    LengthExtrapolation,
    Limit,
    LogScore,
    NoPositions,
    Number,
    Operator,
    Placement,
    RunRequest,
    affine_scaled,
    fox,
    integral,
    integral_control,
    llama2,
    named_operator,
    over,
    sliding_window,
    softmax,
    ssa,
    temperature,
)
from ablate.runners.cli.campaign_plan import plan_campaign, plan_data
from ablate.training.optimisers import Optimiser, ParameterVectors
from ablate.training.planning import operator_checks

ROTARY = TRIAL.changed(model=llama2(layers=2, heads=2, width=32, feedforward_width=64))
LONGER = ROTARY.changed(evaluations=(LengthExtrapolation(lengths=(32, 64), count=4, bucket=16, last=16),))
Same = list[tuple[tuple[str, ...], bool, str | None]]


def same(tmp_path: Path, *operators: Operator, base: Any = TRIAL) -> Same:
    found = findings(tmp_path, operators, base)
    assert found["unchecked"] == []
    return [(each["cells"], each["starts_differ"], each["like"]) for each in found["same_functions"]]


def test_a_window_as_long_as_the_sequence_is_softmax_unless_longer_ones_are_evaluated(tmp_path: Path) -> None:
    cells = [softmax(), sliding_window(size=32), sliding_window(size=31), ssa()]
    assert same(tmp_path, *cells) == [(("cell 0", "cell 1"), False, None)]
    assert same(tmp_path, *cells, base=ROTARY) == [(("cell 0", "cell 1"), False, None)]
    assert same(tmp_path, *cells, base=LONGER) == []


def test_integral_is_its_control_unless_positions_turn_each_signal(tmp_path: Path) -> None:
    for signals in (4, 8):  # the square root of 8 is rounded to float32
        cells = integral(signals=signals), integral_control(signals=signals)
        assert same(tmp_path, *cells) == [(("cell 0", "cell 1"), False, None)]
        assert same(tmp_path, *cells, base=ROTARY) == []
        assert same(tmp_path, cells[0], softmax()) == [(("cell 0",), False, cells[1].label)]
        before = integral(signals=signals, rotary="before_split"), cells[1]
        assert same(tmp_path, *before, base=ROTARY) == [(("cell 0", "cell 1"), False, None)]


def test_what_is_fixed_keeps_its_value_and_what_is_trained_does_not(tmp_path: Path) -> None:
    def threshold(start: float, per: str) -> Operator:
        return Operator(normaliser=Ground(threshold=Number(init=start).at(per)))

    assert same(tmp_path, softmax(), threshold(-60, "constant")) == [(("cell 0", "cell 1"), False, None)]
    assert same(tmp_path, threshold(-60, "constant"), ssa()) == [(("cell 0",), False, "softmax")]
    assert same(tmp_path, softmax(), threshold(-60, "head"), threshold(0, "constant")) == []
    assert same(tmp_path, temperature(1.0), softmax()) == [(("cell 0", "cell 1"), False, None)]
    assert same(tmp_path, temperature(2.0), softmax()) == []


def test_cells_that_differ_in_a_start_compute_the_same_from_there_on(tmp_path: Path) -> None:
    cells = fox(forget=0.5), fox(forget=0.99), fox("head")
    assert same(tmp_path, *cells) == [(("cell 0", "cell 1"), True, None)]


def test_granularities_are_functions_of_their_own_where_they_can_differ(tmp_path: Path) -> None:
    learned = Operator(margin=margin(0).margin.changed(amplification=Number(init=0.0, learned=True)))
    several = [margin(0, per) for per in ("constant", "layer", "head", "query")]
    assert same(tmp_path, learned, *several) == []
    top = TRIAL.changed(placement=Placement(share=0.5))  # one layer: a scalar of all layers is one of the layer
    assert same(tmp_path, learned, *several, base=top) == [(("cell 0", "cell 2"), False, None)]


def test_a_running_mean_of_another_momentum_is_another_function(tmp_path: Path) -> None:
    rescale = affine_scaled().rescale
    slower = affine_scaled().changed(rescale=rescale.changed(mean=rescale.mean.changed(momentum=0.99)))
    assert same(tmp_path, affine_scaled(), slower) == []


def test_only_cells_that_are_equal_in_everything_else_are_compared(tmp_path: Path) -> None:
    positions = over("model.positions", [NoPositions(), Alibi()], name="positions", labels=["none", "alibi"])
    placements = over("placement", [Placement(), Placement(share=0.5)], name="layers", labels=["2", "1"])
    base = TRIAL.changed(operator=sliding_window(size=32))  # softmax in every layer that has it or not
    grid = Grid("g", base, [positions, placements], seeds=[0])
    found = plan_data(plan_campaign(RunRequest(tmp_path), [grid]))["findings"]["g"]["same_functions"]
    assert [each["cells"] for each in found] == [("none · 2", "none · 1"), ("alibi · 2", "alibi · 1")]


def test_a_grid_without_trials_computes_nothing_and_the_plan_imports_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from typing import Literal\n"
        "from ablate.grid import Experiment, Grid\n"
        "from ablate.runners.attempts.run_request import RunRequest\n"
        "from ablate.runners.cli.campaign_plan import plan_campaign, plan_data, plan_lines\n"
        "assert 'torch' not in sys.modules\n"
        "class Small(Experiment):\n"
        "    kind: Literal['tests_small'] = 'tests_small'\n"
        "    def train(self, run): pass\n"
        "plan = plan_campaign(RunRequest(Path(sys.argv[1])), [Grid('g', Small(), seeds=[0])])\n"
        "assert plan_data(plan)['findings'] == {'g': {}}, plan_data(plan)\n"
        "assert 'ablate.training.planning.random_layer' not in sys.modules\n"
        "assert len(list(plan_lines(plan))) > 1\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)


@cache
def moody_score() -> type[LogScore]:
    """A class that no other test collects."""

    class Moody(LogScore):
        """A score of a user that random input does not suit."""

        source: ClassVar[str] = "nowhere"

        kind: Literal["test_moody"] = "test_moody"
        mood: str = "raises"

        def log_score(self, a: Tensor) -> Tensor:
            if self.mood == "raises":
                raise RuntimeError("not today\nnor tomorrow")
            return a * torch.nan

        def oracle(self, a: float) -> float:
            return a

    return Moody


@cache
def broken_optimiser() -> type[Optimiser]:
    """A class that no other test collects."""

    class Broken(Optimiser):
        """An optimiser of a user that cannot be built."""

        kind: Literal["test_broken"] = "test_broken"

        def build(self, weights: ParameterVectors) -> Any:
            raise KeyError(len(weights.kept))

    return Broken


@pytest.mark.parametrize("mood", ["raises", "nan"])
def test_an_operator_that_cannot_be_computed_is_one_finding_and_others_are_checked(tmp_path: Path, mood: str) -> None:
    moody = Operator(name="Moody", score=moody_score()(mood=mood))
    window, flat = sliding_window(size=32), margin(-5)
    found = findings(tmp_path, [softmax(), moody, window, flat, moody.changed(name="Moody", margin=flat.margin)])
    assert [each["cells"] for each in found["same_functions"]] == [("cell 0", "cell 2")]
    assert [each["cells"] for each in found["starts"]] == [("cell 3",)]
    (line,) = found["unchecked"]
    assert "Moody" in line
    assert ("not today" in line) is (mood == "raises")
    assert "\n" not in line


def test_a_limit_that_cannot_be_made_or_computed_is_a_finding_and_cells_are_compared(tmp_path: Path) -> None:
    def unmade() -> Operator:
        raise ZeroDivisionError

    @named_operator("beyond", limits=(Limit("a", {}, unmade), Limit("b", {}, lambda: Operator(score=moody_score()()))))
    def limited() -> Operator:
        """Softmax with limits that fail."""
        return Operator(name="limited")

    found = findings(tmp_path, [softmax(), sliding_window(size=32), ssa()])
    assert [each["cells"] for each in found["same_functions"]] == [("cell 0", "cell 1")]
    assert ["ZeroDivisionError" in line for line in found["unchecked"]] == [True, False]


def test_an_optimiser_that_cannot_be_tried_is_a_finding_and_functions_are_checked(tmp_path: Path) -> None:
    broken = TRIAL.changed(training=TRIAL.training.changed(optimiser=broken_optimiser()(lr=1e-3)))
    found = findings(tmp_path, [softmax(), sliding_window(size=32), margin(-5)], broken)
    assert [each["cells"] for each in found["same_functions"]] == [("cell 0", "cell 1")]
    assert found["starts"] == []
    assert len(found["unchecked"]) == 1
    assert "KeyError" in found["unchecked"][0]
    assert "(test_same_functions.py:" in found["unchecked"][0]  # where it was raised


def test_a_grid_that_would_take_long_is_told_and_not_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [softmax(), sliding_window(size=32), margin(-5)]
    monkeypatch.setattr(operator_checks, "MOST_ENTRIES", 8 * 2 * 32**2 - 1)
    found = findings(tmp_path, cells)
    assert (len(found["starts"]), found["same_functions"], len(found["unchecked"])) == (1, [], 1)
    monkeypatch.setattr(operator_checks, "MOST_OPERATORS", 2)
    found = findings(tmp_path, cells)
    assert (found["starts"], found["same_functions"], len(found["unchecked"])) == ([], [], 2)
