"""Knock-outs that training code of a user's own measures, and the check *on* that reads them."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from ablate import Campaign
from ablate.grid import Experiment, Grid, Measure, Run, RunRecorder, Spec, SpecError, over
from ablate.runners.attempts.experiments import train_experiment
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution.run import run_campaign
from ablate.runners.processes.training_context import Failed
from ablate.store.analysis.judge import judge
from ablate.store.store import Store

GATES = ("none", "working", "idle", "unmeasured")
MEASURE = Measure(name="val_loss", rope=0.05)


def validate(run: RunRecorder, gate: str, seed: int) -> None:
    """Evaluate a model whose gate takes half a unit from every item's loss, or nothing; then without the gate."""
    draw = random.Random(seed)
    bare = {str(number): 3 + 0.01 * draw.gauss() for number in range(50)}
    gain = {"none": 0.0, "working": 0.5}.get(gate, 0.0001 * seed)
    run.evaluate(1, "val_loss", items={item: value - gain for item, value in bare.items()})
    if gate in ("working", "idle"):
        run.knockout("gate", "val_loss", items=bare)


def answers(root: Path, grid: str) -> dict[str, tuple[str, str]]:
    with Store.open(root) as store:
        rows = judge(store, grid).rows.select("label", "on", "verdict").iter_rows()
    return {label.removeprefix("gate="): (on, verdict) for label, on, verdict in rows}


EXPECTED = {"working": ("yes", "better"), "idle": ("no", "off"), "unmeasured": ("unknown", "equivalent")}


def test_a_field_that_works_is_on_one_that_does_nothing_is_off_and_one_unmeasured_is_unknown(tmp_path: Path) -> None:
    class Gated(Experiment):
        kind: Literal["tests_gated"] = "tests_gated"
        gate: Literal["none", "working", "idle", "unmeasured"] = "none"

        def train(self, run: Run) -> None:
            validate(run, self.gate, self.seed)

    axes, baseline = [over("gate", GATES)], {"gate": "none"}
    grid = Grid(name="gated", base=Gated(), axes=axes, seeds=range(5), baseline=baseline, measure=MEASURE)
    run_campaign(tmp_path / "campaign", [grid], None, RunRequest(progress=False))
    assert answers(tmp_path / "campaign", "gated") == EXPECTED


def test_a_logged_run_has_the_same_knockouts(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "campaign")
    for gate in GATES:
        for seed in range(5):
            with campaign.start("logged", label=gate, seed=seed, config={"gate": gate}) as run:
                validate(run, gate, seed)
                with pytest.raises(SpecError, match="'gaet' is not in the config"):
                    run.knockout("gaet", "val_loss", 1.0)
    campaign.grid("logged", baseline="none", measure=MEASURE)
    assert answers(tmp_path / "campaign", "logged") == EXPECTED


def of(train: Callable[[Any, Run], None], kind: str) -> Experiment:
    """An experiment with this `train`, a gate, and a spec with fields of its own."""

    class Model(Spec):
        window: int = 0
        heads: int = 4

    body = {"__annotations__": {"kind": Literal[kind], "gate": bool, "model": Model}, "kind": kind, "gate": True}
    made: Experiment = type(kind, (Experiment,), {**body, "model": Model(), "train": train, "__module__": __name__})()
    return made


def test_the_change_has_the_error_of_its_items_or_of_both_values(tmp_path: Path, memory: Any) -> None:
    own, left = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.5, "b": 2.5, "c": 3.5}

    def train(_self: Any, run: Run) -> None:
        run.evaluate("loss", items=own)
        run.knockout("gate", "loss", items=left)
        run.knockout(["model.window", "gate"], "loss", items={**left, "c": 4.5})
        run.evaluate("acc", 0.5, point={"length": 8}, items=100, se_items=0.03)
        run.knockout("gate", "acc", 0.4, point={"length": 8}, items=100, se_items=0.04)

    context = memory()
    train_experiment(of(train, "tests_knocked_out"), context, tmp_path)
    rows = {name: row for (_, name, *_), row in context.evaluations.items() if name.startswith("knockout.")}
    assert rows == {
        "knockout.none.loss": (2.0, 3, pytest.approx(1 / math.sqrt(3))),
        "knockout.gate.loss": (0.5, 3, 0.0),  # every item changes by the same
        "knockout.gate+model.window.loss": (pytest.approx(2.5 / 3), 3, pytest.approx(1 / 3)),
        "knockout.none.acc": (0.5, 100, 0.03),
        "knockout.gate.acc": (pytest.approx(-0.1), 100, pytest.approx(0.05)),
    }


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: run.knockout("gaet", "loss", items={"a": 1.0}), "gate"),
        (lambda run: run.knockout("model", "loss", items={"a": 1.0}), "model.window"),
        (lambda run: run.knockout([], "loss", items={"a": 1.0}), "names no fields"),
        (lambda run: run.knockout("gate", "other", items={"a": 1.0}), "no evaluation 'other'"),
        (lambda run: run.knockout("gate", "loss", point={"at": 1}, items={"a": 1.0}), "at this point"),
        (lambda run: run.knockout("gate", "loss", items={"a": 1.0, "c": 2.0}), "'loss' has other items"),
        (lambda run: run.knockout("gate", "loss", 2.0, se_items=0.1), "'loss' has other items"),
        (lambda run: run.knockout("gate", "bare", 2.0, se_items=0.1), "chance"),
        (lambda run: run.knockout("gate", "bare", 2.0), "chance"),
    ],
)
def test_a_knockout_that_says_nothing_is_refused(
    call: Callable[[Run], None], words: str, tmp_path: Path, memory: Any
) -> None:
    def train(_self: Any, run: Run) -> None:
        run.evaluate("loss", items={"a": 1.0, "b": 2.0})
        run.evaluate("bare", 1.0)
        call(run)

    with pytest.raises(Failed, match=words):
        train_experiment(of(train, f"tests_refused_{abs(hash(call))}"), memory(), tmp_path)


def test_a_stop_before_a_knockout_loses_and_doubles_nothing(tmp_path: Path, memory: Any) -> None:
    def train(_self: Any, run: Run) -> None:
        for step in run.steps(3, state={}, name="training"):
            run.log(loss=step)
        run.evaluate("val_loss", items={"a": 1.0, "b": 2.0})
        run.knockout("gate", "val_loss", items={"a": 1.0, "b": 3.0})

    experiment = of(train, "tests_stopped_knockout")
    straight, broken = memory(), memory(stop_at={2, 3})
    for context in (straight, broken):
        while train_experiment(experiment, context, tmp_path).stopped:
            context.stop_at.discard(context.step)
    assert straight.evaluations == broken.evaluations
    assert len(straight.evaluations) == 3
