"""A plan tells starts from which a number cannot move, and `constant` beside granularities that are trained."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from operator_findings import TRIAL, findings, margin

from ablate import (
    Ground,
    GroundValue,
    LogCount,
    Muon,
    Number,
    Operator,
    Placement,
    Suppress,
    Training,
    affine_scaled,
    attend,
    catalogue,
    fox,
    gated_heads,
    gpt2,
    granularities,
    integral,
    key_bias,
    learned_sink,
    llama2,
    principled,
    principled_margin,
    qk_norm,
    sliding_window,
    softmax,
    ssa,
    ssmax,
)
from ablate.training.optimisers import Optimiser, ParameterVectors, UncorrectedAdamW
from ablate.training.planning.random_layer import RandomLayer, smallest_layer
from ablate.training.planning.starts import LEAST_REACH, movement, starts


def sink(start: float) -> Operator:
    normaliser = learned_sink().normaliser
    return Operator(normaliser=normaliser.changed(logit=normaliser.logit.changed(init=start)))


def principled_from(start: float) -> Operator:
    number = Number(init=start, per="head")
    return principled("head").changed(margin=LogCount(amplification=number), gate=Suppress(strength=number))


def ground(start: float) -> Operator:
    value = GroundValue(ground_value=GroundValue().ground_value.at("head"))
    return Operator(normaliser=Ground(threshold=Number(init=start, per="head")), readout=value)


def flat(operator: Operator, training: Training = TRIAL.training, length: int = 32) -> dict[str, bool]:
    """The numbers that will hardly move, and whether their stage has weights that can."""
    size = smallest_layer(TRIAL.model, (operator,), length)
    found = starts(operator, size, 0, movement(training))
    return {each.number: each.weights for each in found if each.reach < LEAST_REACH}


OFF = {
    "margin -5": (margin(-5), {"margin.amplification": False}),
    "margin -5 per query": (margin(-5, "query"), {"margin.amplification": False}),
    "sink -5": (sink(-5), {"normaliser.logit": False}),
    "FoX head 0.999": (fox("head", forget=0.999), {"forgetting.gate": False}),
    "ground -60": (ground(-60), {"normaliser.threshold": False, "readout.ground_value": False}),
    "principled -5": (principled_from(-5), {"margin.amplification": False, "gate.strength": True}),
    "principled per query": (principled("query"), {"margin.amplification": False, "gate.strength": True}),
}
ON = {
    "principled 0": principled_from(0),
    "FoX": fox(),
    "FoX 0.99": fox(forget=0.99),
    "margin 0": margin(0),
    "sink 0": sink(0),
    "SSA": ssa(),
    "learned key": key_bias(),
    "Affine-Scaled": affine_scaled(),
    "gated heads": gated_heads(),
    "ground 0": ground(0),
    "SSMax": ssmax(),
    "QK-norm": qk_norm(),
    "Integral": integral(signals=4),
    "window": sliding_window(size=32),
}


@pytest.mark.parametrize("name", OFF)
def test_components_that_the_knock_out_found_off_start_where_their_numbers_cannot_move(name: str) -> None:
    operator, expected = OFF[name]
    assert flat(operator) == expected


@pytest.mark.parametrize("name", ON)
def test_components_that_the_knock_out_found_on_start_where_their_numbers_can_move(name: str) -> None:
    assert flat(ON[name]) == {}


def test_a_longer_run_leaves_a_start_that_a_short_one_cannot_leave() -> None:
    longer = TRIAL.training.changed(steps=1500)  # off there, too
    assert flat(margin(-5), longer) == {"margin.amplification": False}
    assert flat(margin(-5), TRIAL.training.changed(steps=30_000)) == {}


def test_the_change_by_a_sink_is_its_share_of_the_output() -> None:
    """d o / d s = -w_0 o for a sink's logit s, by a computation of its own."""
    operator = sink(-1.5)
    layer = RandomLayer(operator, smallest_layer(TRIAL.model, (operator,), 24))
    worked = attend(
        operator, layer._q, layer._k, layer._v, numbers={"normaliser.logit": torch.full((1, 2, 1, 1), -1.5).double()}
    )
    assert worked.ground is not None
    share = float((worked.ground * worked.output).norm() / worked.output.norm())
    (found,) = starts(operator, layer.size, 0, movement(TRIAL.training))
    assert found.reach == pytest.approx(share * movement(TRIAL.training).distance, rel=1e-4)


class Sgd(Optimiser):
    """Plain gradient descent."""

    kind: Literal["test_sgd"] = "test_sgd"

    def build(self, weights: ParameterVectors) -> torch.optim.Optimizer:
        return torch.optim.SGD(weights.groups(0.0), lr=self.lr)


def test_optimisers_move_a_number_by_the_rate_a_step_and_sgd_by_the_gradient_besides() -> None:
    training = TRIAL.training
    rates = sum(training.lr(step) for step in range(1, 301))
    assert movement(training).distance == pytest.approx(rates, rel=1e-3)
    assert movement(training).power == pytest.approx(0, abs=1e-3)
    rest = movement(training.changed(optimiser=Muon(lr=0.02, rest_lr=5e-3)))
    assert rest.distance == pytest.approx(rates, rel=1e-3)
    assert rest.power == pytest.approx(0, abs=1e-3)
    assert movement(training.changed(optimiser=UncorrectedAdamW(lr=5e-3))).distance > rates
    sgd = training.changed(optimiser=Sgd(lr=5e-3))
    assert movement(sgd) == pytest.approx((rates, 1), rel=1e-3)
    assert movement(training.changed(steps=100_000)).distance == pytest.approx(
        sum(training.changed(steps=100_000).lr(step) for step in range(1, 100_001)), rel=0.01
    )
    assert flat(sink(0)) == {}
    assert flat(sink(0), sgd) == {"normaliser.logit": False}  # its share of the output counts once more


def test_a_plan_names_the_number_its_start_its_reach_and_the_cells(tmp_path: Path) -> None:
    found = findings(tmp_path, [softmax(), margin(-5), margin(0), margin(-5, "layer"), principled_from(-5)])
    assert found["least_reach"] == LEAST_REACH
    margins, gates = found["starts"]
    assert (margins["number"], margins["start"], margins["weights"]) == ("margin.amplification", -5.0, False)
    assert margins["cells"] == ("cell 1", "cell 3", "cell 4")
    assert (gates["number"], gates["weights"], gates["cells"]) == ("gate.strength", True, ("cell 4",))
    assert 0 < gates["reach"] < margins["reach"] < LEAST_REACH
    assert found["unchecked"] == []


def test_constant_is_told_where_other_cells_train_the_number_and_only_there(tmp_path: Path) -> None:
    def fixed(*operators: Operator) -> list[dict[str, Any]]:
        return findings(tmp_path, operators)["fixed"]  # type: ignore[no-any-return]

    several = [margin(0, per) for per in granularities]
    assert fixed(*several) == [{"number": "margin.amplification", "value": 0.0, "trained": ("layer", "head", "query")}]
    learned = Operator(margin=LogCount(amplification=Number(init=0.0, learned=True)))
    assert fixed(learned, *several[1:]) == []
    assert fixed(several[0], softmax()) == []
    assert fixed(margin(-1, "constant"), *several[1:]) == []  # another start: not the number that others train
    assert fixed(*(catalogue()[name].make() for name in ("mlp_kernel", "differential", "fox_decay_times"))) == []


@pytest.mark.parametrize(
    "model", [gpt2(layers=2, heads=4, width=64), llama2(layers=3, heads=4, width=64, feedforward_width=8)]
)
def test_every_named_operator_can_be_checked(tmp_path: Path, model: Any) -> None:
    base = TRIAL.changed(model=model, placement=Placement(side="alternate"))
    named = [known.make() for known in catalogue().values() if known.name not in ("prefix_lm", "softmax")]
    assert findings(tmp_path, named, base)["unchecked"] == []


def test_the_command_prints_the_findings_and_the_threshold(tmp_path: Path, ablate: Callable[..., Any]) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(
        "from ablate import *\n"
        f"base = Trial.model_validate_json({TRIAL.model_dump_json()!r})\n"
        "both = [principled_margin('head'), principled_margin('constant')]\n"
        "grid = Grid('g', base, [over('operator', both, labels=['head', 'constant'])], seeds=[0])\n"
    )
    found = json.loads(ablate("plan", spec, "--json").out)["data"]["findings"]["g"]
    assert [each["number"] for each in found["starts"]] == ["margin.amplification"]
    assert [each["value"] for each in found["fixed"]] == [principled_margin().margin.numbers()["amplification"].init]
    said = ablate("plan", spec).out
    assert f"{100 * LEAST_REACH:g} %" in said
    assert math.isfinite(found["least_reach"])
