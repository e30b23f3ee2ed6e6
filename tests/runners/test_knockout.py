"""Knock-outs in trials: what is planned, what is measured, and what stays as it was."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from small_grammar import TRIAL, Recorder, asking, run

from ablate import Cosine, Execution, LengthExtrapolation, Trial
from ablate.grid import Grid, Measure, over
from ablate.runners.planning.worklist import collect_cells, list_trials, plan_knockouts
from ablate.store.files.layout import Layout
from ablate.training.evaluations.evaluation import open_evaluations
from ablate.training.evaluations.knockout import Knockout
from ablate.training.evaluations.knockout_plan import plan_knockout
from ablate.training.loop.knockout import measure_again
from ablate.training.loop.train import train
from ablate.training.tasks.task import ItemMeasurements, over_items, over_ratio
from ablate.training.trial import build_model
from ablate.variants import Operator, Placement, fox, principled, sliding_window, softmax, ssa

LOSS = Measure(name="loss", scale="linear", rope=0.03)


def test_no_key_and_no_other_number_changes() -> None:
    asked = asking(TRIAL, "validation_loss", ["forgetting"])
    assert asked.key == TRIAL.key
    plain, found = run(TRIAL), run(asked)
    assert found.logged == plain.logged
    assert found.others() == plain.rows
    assert all(torch.equal(plain.weights[name], value) for name, value in found.weights.items())
    rows = found.knocked()
    changes = ("none", "forgetting", "all", "uniform", "refit")
    assert rows.keys() == {f"knockout.{each}.validation_loss" for each in changes}
    assert rows["knockout.none.validation_loss"][2:] == next(
        row[2:] for row in plain.rows if row[1] == "validation_loss" and row[0] == 6
    )


def test_the_change_is_that_of_a_model_without_the_component() -> None:
    """An independent model: softmax with the trained weights, measured by the task itself."""
    found = run(asking(TRIAL, "validation_loss", ["forgetting"]))
    own = next(row for row in found.others() if row[:2] == (6, "validation_loss"))
    plain = build_model(TRIAL.changed(operator=softmax())).eval()
    plain.load_state_dict({name: found.weights[name] for name in plain.state_dict()})
    with torch.inference_mode():
        left = next(iter(TRIAL.task.open().evaluate(plain)))
    _, _, value, point, items, se = found.knocked()["knockout.all.validation_loss"]
    assert value == left.value - own[2] != 0
    assert (point, items) == ((), 24)
    assert 0 < se < math.hypot(own[5], left.se_items or 0)


def test_the_logged_loss_is_measured_on_the_last_batches() -> None:
    found = run(asking(TRIAL, "loss", ["forgetting"]))
    plain, own = (build_model(TRIAL.changed(operator=each)).eval() for each in (softmax(), fox()))
    for model in (plain, own):
        model.load_state_dict({name: found.weights[name] for name in model.state_dict()})
    data, losses = TRIAL.task.open(), []
    with torch.inference_mode():
        for step in (3, 4, 5, 6):
            batch = data.batch(TRIAL.seed, step)
            losses.append([float(data.loss(each(batch.inputs), batch.targets)) for each in (own, plain)])
    _, _, value, _, items, se = found.knocked()["knockout.all.loss"]
    assert value == pytest.approx(sum(b - a for a, b in losses) / 4, rel=1e-4)
    assert items == 32
    assert se > 0


def test_parts_of_a_batch_give_the_same_change() -> None:
    whole = asking(TRIAL.changed(training=TRIAL.training.changed(steps=1, schedule=Cosine())), "loss", ["forgetting"])
    split = whole.changed(execution=whole.execution.changed(accumulate=3))
    one, three = (run(each).knocked()["knockout.all.loss"] for each in (whole, split))
    assert three[2] == pytest.approx(one[2], rel=1e-3)
    assert three[4] == one[4] == 8


def test_an_evaluation_is_measured_under_its_own_conditions() -> None:
    longer = LengthExtrapolation(lengths=(16, 64), count=6, bucket=16, last=8)
    trial = asking(
        TRIAL.changed(evaluations=(longer,)), "length_extrapolation_last_loss", ["forgetting"], length=64, factor=1
    )
    found = run(trial)
    row = found.knocked()["knockout.all.length_extrapolation_last_loss"]
    assert (row[3], row[4]) == ((("factor", 1.0), ("length", 64)), 6)
    own = next(each for each in found.others() if each[1] == "length_extrapolation_last_loss" and each[3] == row[3])
    plain = build_model(TRIAL.changed(operator=softmax())).eval()
    plain.load_state_dict({name: found.weights[name] for name in plain.state_dict()})
    ((_, judge),) = open_evaluations(TRIAL.task, (longer,))
    with torch.inference_mode():
        rows = [each for each in judge.evaluate(plain) if each.name == row[1].removeprefix("knockout.all.")]
    left = next(each for each in rows if dict(each.point).get("length") == 64)
    assert row[2] == left.value - own[2]  # type: ignore[union-attr]


def test_what_does_nothing_is_off() -> None:
    window = asking(TRIAL.changed(operator=sliding_window(16)), "validation_loss", ["visible"])
    assert abs(run(window).knocked()["knockout.all.validation_loss"][2]) < 1e-6


def test_a_measure_that_nothing_records_leaves_no_row() -> None:
    assert not run(asking(TRIAL, "grad_norm", ["forgetting"])).knocked()


def test_a_stop_in_the_middle_loses_and_changes_nothing() -> None:
    trial = asking(TRIAL, "validation_loss", ["forgetting"])
    whole = run(trial)
    for stops in range(7, 40):
        found = Recorder(stops)
        if not train(trial, found).stopped:
            break
        assert not found.knocked()
        found._stops = 0
        assert not train(trial, found).stopped
        assert found.knocked() == whole.knocked()
        assert found.others()[-1] == whole.others()[-1]
    else:
        pytest.fail("no stop came after the last step")


def test_without_memory_the_trial_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = asking(TRIAL, "validation_loss", ["forgetting"])
    calls = iter([None, torch.OutOfMemoryError("none left"), None, torch.OutOfMemoryError("none left")])

    def failing(*given: Any) -> Iterator[Any]:
        error = next(calls)
        if error is not None:
            raise error
        yield from measure_again(*given)

    monkeypatch.setattr("ablate.training.loop.knockout.measure_again", failing)
    found = run(trial)
    assert found.knocked().keys() == {f"knockout.{each}.validation_loss" for each in ("none", "uniform")}
    assert found.others() == run(TRIAL).others()


def grid(**given: Any) -> Grid:
    operators = {"softmax": softmax(), "head": principled("head"), "query": principled("query"), "SSA": ssa()}
    axes = [over("operator", list(operators.values()), labels=list(operators))]
    return Grid(**{"name": "g", "base": TRIAL, "axes": axes, "seeds": [0, 1], "measure": LOSS, **given})


PARTS = (("margin",), ("gate",), ("normaliser", "readout"))
ALL = ("margin", "gate", "normaliser", "readout")


def planned(of: Grid) -> dict[str, Knockout]:
    cells = {each.label: each for each in of.cells()}
    found = plan_knockouts(of, {each.cell: each.trial for each in cells.values()})
    return {label: found[each.cell] for label, each in cells.items() if each.cell in found}


def test_a_cell_loses_each_component_all_and_what_its_baseline_has_not() -> None:
    found = planned(grid(baseline={"operator": "softmax"}))
    assert found.keys() == {"softmax", "head", "query", "SSA"}
    assert not found["softmax"].sets
    assert found["head"].sets == (*PARTS, ALL)
    assert found["SSA"].sets == (("score",),)
    assert (found["SSA"].name, dict(found["SSA"].point)) == ("loss", {})


def test_a_baseline_loses_what_its_variants_have_not() -> None:
    several = [principled("head"), ssa(), principled("head").changed(gate={"kind": "none"})]
    labels = ["head", "SSA", "no gate"]
    axes = [over("operator", several, labels=labels)]
    found = planned(grid(axes=axes, baseline={"operator": "head"}))
    assert found[labels[0]].sets == (*PARTS, ALL)  # SSA has none of them; the gate alone is among its components
    assert found[labels[2]].sets == (("margin",), ("normaliser", "readout"), ("margin", "normaliser", "readout"))
    axes = [over("operator.margin.amplification.per", ["head", "layer"])]
    base = TRIAL.changed(operator=principled("head"))
    found = planned(grid(base=base, axes=axes, baseline={"amplification_per": "head"}))
    assert all(each.sets == (*PARTS, ALL) for each in found.values())


def test_layers_count_where_they_differ() -> None:
    operators = Placement(share=0.5).operators(ssa(), 2)
    assert plan_knockout(LOSS, operators, [[softmax()] * 2], {}) == Knockout(name="loss", sets=(("score",),))
    assert plan_knockout(LOSS, [softmax()] * 2, [operators], {}) == Knockout(name="loss")


def test_lines_of_a_plan_say_what_is_measured_again(tmp_path: Path) -> None:
    asked = grid(baseline={"operator": "softmax"})
    lines: list[Mapping[str, Any]] = []
    list_trials(Layout(tmp_path), [asked], collect_cells([asked]), take=lambda _, given: lines.extend(given))
    assert len(lines) == 8
    for line in lines:
        trial = Trial.model_validate(line["spec"])
        assert trial.key == line["trial"]
        assert trial.execution.knockout is not None
        assert bool(trial.execution.knockout.sets) == (line["label"] != "softmax")


def test_without_a_measure_nothing_is_planned() -> None:
    assert not planned(grid(measure=None))


def test_a_set_names_stages() -> None:
    with pytest.raises(ValidationError, match="marginn"):
        Knockout(name="loss", sets=(("marginn",),))
    assert Execution().knockout is None
    assert Operator().key == softmax().changed(name="").key


def test_values_of_items_have_the_mean_and_the_error_of_their_row() -> None:
    drawn = torch.Generator().manual_seed(0)
    x, n = torch.rand(2, 40, generator=drawn, dtype=torch.float64) + 0.5
    for row in (
        over_items("a", x),
        over_ratio("a", x, n, factor=1.5),
        over_ratio("a", x, n, exponential=True),
    ):
        assert isinstance(row, ItemMeasurements)
        assert float(row.values.mean()) == pytest.approx(row.value, rel=1e-12)
        assert float(row.values.std(correction=1)) / math.sqrt(40) == pytest.approx(row.se_items, rel=1e-12)
