"""Controls: what operators offer, and the cells that a grid gets from them."""

import json
import math

import pytest
from small_grammar import TRIAL

from ablate import (
    AdamW,
    Alibi,
    ControlChange,
    Grid,
    LengthExtrapolation,
    Measure,
    Rotary,
    RunRequest,
    Training,
    fox,
    gated_elements,
    integral,
    key_bias,
    learned_sink,
    llama2,
    over,
    principled_gate,
    principled_margin,
    run_campaign,
    sliding_window,
    softmax,
    ssa,
    ssmax,
)
from ablate.grid.errors import SpecError
from ablate.grid.spec import cell_key
from ablate.runners.attempts.manifest import trial_lines, write_grid
from ablate.runners.execution import Inline
from ablate.store.analysis.control_tests import control_tests
from ablate.store.analysis.explain_verdict import why
from ablate.store.analysis.verdicts import verdicts
from ablate.store.files.layout import Layout
from ablate.store.store import Store
from ablate.training.trial import parameters

BASE = TRIAL.changed(
    model=llama2(layers=2, heads=2, width=32, feedforward_width=64),
    operator=softmax(),
    training=Training(steps=4, optimiser=AdamW(lr=1e-2)),
    evaluations=(LengthExtrapolation(lengths=(16, 64), count=4, bucket=16, last=16),),
)
HERE = Measure(name="validation_loss", scale="linear", rope=0.03)
BEYOND = Measure(name="length_extrapolation_last_loss", point={"length": 64}, scale="linear", rope=0.03)
DISTANCE = ["a window of 16", "ALiBi", "no positions"]


def labels(trial, measure=HERE, **kinds):
    return [each.label for each in trial.controls(measure) if not kinds or each.kind == kinds["kind"]]


def grid(*operators, measure=BEYOND, base=BASE, **fields):
    axes = [over("operator", [softmax(), *operators])]
    baseline = {"operator": "softmax"}
    return Grid(name="g", base=base, axes=axes, seeds=range(3), baseline=baseline, measure=measure, **fields)


@pytest.mark.parametrize("operator", [fox(), sliding_window(4), ssa(), learned_sink(), integral(signals=4)])
def test_anything_measured_beyond_the_training_length_has_the_controls_of_distance(operator):
    assert labels(BASE.changed(operator=operator), BEYOND, kind="distance") == DISTANCE


@pytest.mark.parametrize(("operator", "moved"), [(fox(), True), (sliding_window(4), True), (ssa(), False)])
def test_at_the_training_length_only_what_acts_by_distance_has_them_and_no_window(operator, moved):
    assert labels(BASE.changed(operator=operator), HERE, kind="distance") == (DISTANCE[1:] if moved else [])


def test_other_positions_have_the_controls_of_distance():
    moved = BASE.changed(model=BASE.model.changed(positions=Rotary(base=100.0)))
    assert [each.label for each in moved.controls(HERE, BASE)] == DISTANCE[1:]
    assert BASE.changed(training=Training(steps=5, optimiser=AdamW(lr=1e-2))).controls(BEYOND, BASE) == ()


@pytest.mark.parametrize("operator", [principled_margin("head"), ssmax(), ssa()])
def test_a_scale_of_logits_has_constant_temperatures(operator):
    found = [each for each in BASE.changed(operator=operator).controls(HERE) if each.kind == "temperature"]
    assert [each.trial(BASE).operator.transform.tau.init for each in found] == [0.25, 0.5, 2.0, 4.0]


def test_signals_have_a_temperature_unless_rotary_positions_turn_each_by_its_own():
    apart, joint = integral(signals=8), integral(signals=8, rotary="before_split")
    assert not labels(BASE.changed(operator=apart), kind="temperature")
    assert "temperature 2.83" in labels(BASE.changed(operator=joint), kind="temperature")


@pytest.mark.parametrize("operator", [principled_gate("head"), principled_gate("head", width=64), gated_elements()])
def test_a_gate_has_a_feedforward_of_as_many_parameters(operator):
    gated = BASE.changed(operator=operator)
    (control,) = (each for each in gated.controls(HERE) if each.kind == "parameters")
    wider, own = parameters(control.trial(BASE)).total, parameters(gated).total
    assert own > 1.01 * parameters(BASE).total
    assert abs(wider - own) <= 0.01 * own


def test_less_than_a_hundredth_of_the_parameters_is_no_explanation():
    forgetting = BASE.changed(operator=fox())
    assert parameters(BASE).total < parameters(forgetting).total < 1.01 * parameters(BASE).total
    assert not labels(forgetting, kind="parameters")


@pytest.mark.parametrize("operator", [learned_sink(), key_bias()])
def test_a_sink_has_off_by_one(operator):
    (control,) = (each for each in BASE.changed(operator=operator).controls(HERE) if each.kind == "sink")
    logit = control.trial(BASE).operator.normaliser.logit
    assert (logit.init, logit.trained) == (0.0, False)


def test_controls_are_cells_on_the_same_seeds_and_change_no_other_key():
    plain, controlled = grid(fox(), ssa()), grid(fox(), ssa(), controls="auto")
    every = list(controlled.trials())
    assert [each for each in every if each.control is None] == list(plain.trials())
    added = [each for each in every if each.control]
    assert {each.seed for each in added} == {0, 1, 2}
    assert (
        len({each.key for each in added}) == len(added) == 3 * 7
    )  # three of distance, which serve both, and four temperatures
    assert all(each.cell == cell_key(each.trial) and each.key == each.trial.key for each in added)
    assert sorted(each.key for each in controlled.enumerate()) == sorted(each.key for each in every)
    missing = plain.header()["controls"]
    assert missing["cells"] == missing["of"] == {}
    assert sorted(map(len, missing["missing"].values())) == [3, 7]
    assert controlled.header()["trials"] == len(every)


def test_a_control_has_its_baselines_levels_of_nuisance_axes():
    rates = over("training.optimiser.lr", [1e-2, 1e-3])
    by_rate = grid(fox(), controls=["ALiBi"]).changed(axes=[over("operator", [softmax(), fox()]), rates])
    found = [each for each in by_rate.cells() if each.control]
    assert [(each.axes, each.trial.training.optimiser.lr) for each in found] == [
        ({"operator": None, "lr": 1e-2}, 1e-2),
        ({"operator": None, "lr": 1e-3}, 1e-3),
    ]
    of = by_rate.header()["controls"]["of"]
    variants = {
        each.axes["lr"]: each.cell for each in by_rate.cells() if each.axes["operator"] not in (None, "softmax")
    }
    assert {lr: of[cell] for lr, cell in variants.items()} == {each.axes["lr"]: [each.cell] for each in found}


def test_a_control_that_is_a_variant_anyway_is_not_added_and_explains_the_others():
    both = grid(fox(), sliding_window(16), controls="auto")
    cells = {each.label: each.cell for each in both.cells()}
    controls = both.header()["controls"]
    window = cells["sliding window"]
    assert window in controls["of"][cells["Forgetting Transformer"]]
    assert window not in controls["cells"]
    assert window not in controls["of"][window]


def test_listed_controls_leave_the_others_missing():
    some = grid(fox(), controls=["a window of 16"])
    (variant,) = some.header()["controls"]["of"]
    assert some.header()["controls"]["missing"] == {variant: ["ALiBi", "no positions"]}


def test_a_control_of_ones_own():
    mine = ControlChange("a window of 8", "distance", {"operator.visible": sliding_window(8).visible})
    found = grid(fox(), controls=[mine]).header()["controls"]
    assert list(found["cells"].values()) == ["distance"]
    assert len(found["missing"][next(iter(found["of"]))]) == 3


@pytest.mark.parametrize(
    ("changes", "cell"),
    [
        ({}, "softmax"),
        ({"operator": softmax()}, "softmax"),
        ({"training.optimiser.lr": 1e-2}, "softmax"),
        ({"operator": fox()}, "Forgetting Transformer"),
    ],
)
def test_a_listed_control_that_is_no_cell_of_its_own_is_refused(changes, cell):
    with pytest.raises(SpecError) as raised:
        grid(fox(), controls=[ControlChange("mine", "distance", changes)]).header()
    assert "'mine'" in str(raised.value)
    assert repr(cell) in str(raised.value)


def test_a_listed_control_may_be_the_baseline_of_some_cells():
    rates = over("training.optimiser.lr", [1e-2, 1e-3])
    mine = ControlChange("a small rate", "distance", {"training.optimiser.lr": 1e-3})
    by_rate = grid(fox(), controls=[mine]).changed(axes=[over("operator", [softmax(), fox()]), rates])
    assert len(by_rate.header()["controls"]["of"]) == 1


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"controls": "all"}, "'all'"),
        ({"controls": ["ALiBy"]}, "ALiBi"),
        ({"controls": ["temperature 2"]}, "temperature 2"),
        ({"controls": [ControlChange("no such", "distance", {"operator.visibel": None})]}, "visibel"),
        ({"controls": [ControlChange("never offered", "speed", {})]}, "never offered"),
        ({"controls": "auto", "measure": None}, "measure"),
    ],
)
def test_bad_controls_are_one_sentence(fields, fault):
    with pytest.raises(SpecError, match=fault):
        grid(fox(), **fields).header()


def test_what_does_not_fit_is_said_and_not_missing():
    flat = BASE.changed(model=BASE.model.changed(feedforward="none", feedforward_width=0))
    assert not labels(flat.changed(operator=principled_gate("head")), kind="parameters")
    biased = BASE.changed(operator=softmax().changed(name="softmax"), model=BASE.model.changed(positions=Alibi()))
    found = grid(fox(), base=biased).changed(controls="auto").offered
    assert [each.control.label for each in found.cells.values()] == ["a window of 16", "no positions"]


def test_the_plans_lines_say_which_trials_are_controls(tmp_path):
    controlled, layout = grid(fox(), controls="auto"), Layout(tmp_path)
    write_grid(layout, controlled, trial_lines(controlled))
    lines = [json.loads(line) for line in layout.grid_trials("g").read_text().splitlines()]
    kinds = json.loads(layout.grid_header("g").read_text())["controls"]["cells"]
    assert {line["cell"]: line["control"] for line in lines if "control" in line} == kinds
    assert sum("control" in line for line in lines) == 9


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A campaign of a grid with controls, trained: its grid and its store."""
    root = tmp_path_factory.mktemp("controls")
    controlled = grid(fox(), ssa(), controls="auto")
    assert run_campaign(root, [controlled], Inline(), RunRequest(progress=False)).done == 3 * 10
    with Store.open(root) as store:
        yield controlled, store


def test_controls_are_in_no_family_of_comparisons_with_the_baseline(trained):
    controlled, store = trained
    variants = [each.cell for each in controlled.cells() if each.control is None][1:]
    frame = verdicts(store, "g")
    assert sorted(frame["cell"]) == sorted(variants)
    assert set(frame["family"]) == {2}
    query = "SELECT DISTINCT cell, control, baseline FROM grid_trial WHERE control IS NOT NULL ORDER BY ALL"
    added = controlled.header()["controls"]["cells"]
    assert store.sql(query).rows() == [(cell, kind, None) for cell, kind in sorted(added.items())]


def test_a_variant_is_tested_against_each_of_its_controls(trained):
    controlled, store = trained
    frame, header, base = control_tests(store, "g"), controlled.header()["controls"], controlled.header()["baseline"]
    assert dict(frame.select("cell", "controls").rows()) == {cell: len(own) for cell, own in header["of"].items()}
    for row in frame.iter_rows(named=True):
        means = {
            cell: store.sql(
                "SELECT avg(value) FROM v_final WHERE grid = 'g' AND cell = $cell AND name = $name "
                "AND point['length'] = 64",
                {"cell": cell, "name": BEYOND.name},
            ).item()
            for cell in (row["cell"], base, *header["of"][row["cell"]])
        }
        sign = math.copysign(1, means[row["cell"]] - means[base])
        excess = {cell: sign * (means[row["cell"]] - means[cell]) for cell in header["of"][row["cell"]]}
        assert row["control"] in excess
        assert row["difference"] == pytest.approx(sign * excess[row["control"]], rel=1e-6, abs=1e-9)
        if min(excess.values()) <= 0:  # its p is 1, and of those the least is shown
            assert row["control"] == min(excess, key=excess.__getitem__)
        assert why(store, "g", row["cell"])["controls"] == row


def test_a_control_has_no_verdict(trained):
    controlled, store = trained
    for cell in controlled.header()["controls"]["cells"]:
        with pytest.raises(SpecError, match="control"):
            why(store, "g", cell)
