"""Probes, evaluations, artefacts, kept weights: the training loop gives them what they ask for, and is not changed."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from ablate.grid.errors import SpecError
from ablate.runners.processes.training_context import Diverged
from ablate.training.evaluations import Evaluation, Evaluator
from ablate.training.loop.train import train
from ablate.training.probes import GateSparsity, GradientNorms, LearnedNumbers, SinkShare, TokenClasses
from ablate.training.probes.probe import Found, Probe, ProbeArray, Probed, ProbeInput, Probing
from ablate.training.tasks import AssociativeRecall, Items, LinearFunctions, Measurements, Predict, Task, Text
from ablate.training.trial import Execution, Trial, build_model
from ablate.variants import Backbone, Operator, ssa
from ablate.variants.model.transformer import LayerTrace


class RowSums(Probe):
    """The mean weight per row and head, the hidden norm, and the maps themselves."""

    kind: Literal["row_sums"] = "row_sums"
    least: int = 3

    def check(self, task: Task, model: Backbone, operators: Sequence[Operator]) -> None:
        if model.layers != len(operators) or task.length < self.least:
            raise ValueError("row sums need sequences of three positions")

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:
        weights = layer.worked.attended.weights
        for head, value in enumerate(weights.sum(-1).mean((0, 2)).tolist()):
            yield Probed("row_sum", value, layer.layer, head)
        yield Probed("batch", len(seen.batch.inputs), layer.layer, point={"length": seen.batch.inputs.shape[1]})
        if layer.layer == 1:
            yield ProbeArray("maps", {"weights": weights.to("cpu", torch.float16).numpy()})

    def of_model(self, seen: ProbeInput) -> Found:
        yield Probed("norms", float(len(seen.norms)))
        yield Probed("training", float(seen.model.training))


class Shifted(Evaluation):
    kind: Literal["shifted"] = "shifted"
    points: int = 3

    @property
    def length(self) -> int:
        return self.points

    def check(self, task: Task, model: Backbone) -> None:
        if not isinstance(task, LinearFunctions) or not model.layers:
            raise ValueError("ones are given to a model of scalars; use LinearFunctions")

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        return {"ones": [{}]}

    def open(self, task: Task) -> Evaluator:  # noqa: ARG002
        return Ones(self.points)


class Ones(Evaluator):
    def __init__(self, points: int) -> None:
        self.points = points

    @property
    def record(self) -> Mapping[str, Any]:
        return {"points": self.points}

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        outputs = predict(torch.ones(2, self.points, 1), None)
        assert not outputs.requires_grad
        each = [float(value) for value in outputs[:, -1]]
        yield Measurements("ones", sum(each) / 2, {}, 2, None)
        yield Items("ones", {}, ["left", "right"], each)


def probing(tiny: Trial, **execution: Any) -> Trial:
    return tiny.changed(
        operator=ssa(),
        probing=Probing(probes=(RowSums(), LearnedNumbers()), sequences=3, length=5),
        evaluations=(Shifted(points=5, at_end=False),),
        execution=Execution(**execution),
    )


def test_probes_see_layers_at_every_evaluation(tiny: Trial, memory: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.training.loop.train.NORMS", 7)
    world, early, plain = memory(), memory(), memory()
    assert train(probing(tiny), world).probe_s > 0
    heads = tiny.model.heads
    assert {key[0] for key in world.probes} == {5, 10, 12}
    for step in (5, 10, 12):
        for layer in (0, 1):
            assert world.probes[step, "batch", layer, None, ("length", 5)] == 3
            sums = [world.probes[step, "row_sum", layer, head] for head in range(heads)]
            assert sums == pytest.approx([1] * heads)
        assert world.probes[step, "norms", None, None] == min(step, 7)
        assert world.probes[step, "training", None, None] == 0
        assert world.artefacts[step, "maps"]["weights"].shape == (3, heads, 5, 5)
        assert list(world.single[step, "ones"]) == ["left", "right"]
        assert sum(world.single[step, "ones"].values()) / 2 == world.evaluations[step, "ones"][0]
    assert not np.array_equal(world.artefacts[5, "maps"]["weights"], world.artefacts[12, "maps"]["weights"])
    assert world.began[-1] == {"evaluations": [{"kind": "shifted", "points": 5}]}
    train(probing(tiny).changed(evaluations=(Shifted(),)), early)  # it waits for the end
    assert {step for step, name, *_ in early.evaluations if name == "ones"} == {12}
    train(tiny, plain)
    assert plain.began[-1] is None


def test_looking_and_judging_change_no_number_of_the_training(tiny: Trial, memory: Callable) -> None:
    looked, plain = memory(), memory()
    train(probing(tiny), looked)
    train(tiny.changed(operator=ssa(), probing=Probing()), plain)
    assert looked.logged == plain.logged
    assert plain.evaluations.items() <= looked.evaluations.items()
    assert plain.probes == {}


class Twice(Probe):
    kind: Literal["twice"] = "twice"
    what: Literal["row", "file", "foreign row"]

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:  # noqa: ARG002
        if self.what == "file":
            yield ProbeArray("maps", {"weights": layer.worked.attended.weights.numpy()})

    def of_model(self, seen: ProbeInput) -> Found:  # noqa: ARG002
        places = {"foreign row": [("number.score.n", {})], "row": [("size", {"b": 0.5, "a": 1}), ("size", {"a": 1})]}
        for name, point in places.get(self.what, ()):
            yield Probed(name, 1.0, 1, 0, point)
        if self.what == "row":
            yield Probed("size", 2.0, 1, 0, {"a": 1, "b": 0.5})


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("row", r"twice recorded twice size at a=1, b=0"),
        ("file", "twice recorded twice a file 'maps'"),
        ("foreign row", r"learned_numbers and twice both recorded number\.score\.n of layer 1, head 0"),
    ],
)
def test_two_values_for_one_place_end_the_trial(tiny: Trial, memory: Callable, what: str, words: str) -> None:
    probes = (LearnedNumbers(), Twice.model_validate({"what": what}))
    with pytest.raises(SpecError, match=words):
        train(tiny.changed(operator=ssa(), probing=Probing(probes=probes, sequences=2)), memory())


@pytest.mark.parametrize("again", [False, True])
def test_a_trial_that_diverges_records_its_norms_and_numbers_there(tiny: Trial, memory: Callable, again: bool) -> None:
    """Records include the step whose loss is out of bounds and all before it; no layer is probed."""
    probes = (GradientNorms(), LearnedNumbers(), RowSums())
    training = {"steps": 12, "evaluate_every": None, "optimiser": {"kind": "adamw", "lr": 1e4}}
    trial = tiny.changed(operator=ssa(), training=training, probing=Probing(probes=probes, length=5))
    world = memory(stop_at=[1] if again else [])
    if again:
        assert train(trial, world).stopped
        world.stop_at = set()
    with pytest.raises(Diverged) as caught:
        train(trial, world)
    last = caught.value.step
    assert 1 < last < 12
    assert {key[0] for key in world.probes} == {last}
    assert {key[1].partition(".")[0] for key in world.probes} >= {"gradient_norm_mean", "number"}
    assert "norms" not in {key[1] for key in world.probes}
    norms = [world.logged[step]["grad_norm"] for step in range(1, last + 1)]
    finite = [norm for norm in norms if math.isfinite(norm)]
    assert world.probes[last, "gradient_norm_mean", None, None] == pytest.approx(sum(finite) / len(finite))
    assert world.probes.get((last, "gradient_norm_not_finite", None, None), 0) == len(norms) - len(finite)


def test_weights_are_kept_where_that_is_asked_for_and_are_those_of_the_end(tiny: Trial, memory: Callable) -> None:
    world, other = memory(), memory()
    trial = probing(tiny, keep_weights=True)
    train(trial, world)
    train(probing(tiny), other)
    assert other.kept is None
    step, kept = world.kept
    assert step == 12
    again = Trial.model_validate(kept["spec"])
    assert again.key == trial.key == probing(tiny).key
    model = build_model(again)
    model.load_state_dict(kept["model"])
    with torch.inference_mode():
        assert float(model.eval()(torch.ones(2, 5, 1))[0, -1]) == world.single[12, "ones"]["left"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: [SinkShare(), SinkShare(eps=(0.1,))], "both record importance at position=1"),
        (lambda: [GradientNorms(), GradientNorms(k=(3,))], "both record gradient_norms"),
        (lambda: [GateSparsity(), GateSparsity(below=0.1)], "both record gate_sparsity at below=0.1"),
        (lambda: [TokenClasses(), LearnedNumbers(), TokenClasses()], "token_classes both record token_class.task"),
        (lambda: [SinkShare(eps=(0.3, 0.3))], "rise from value to value"),
    ],
)
def test_two_probes_that_would_record_one_row_are_refused(make: Callable[[], list[Probe]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Probing(probes=tuple(make()))


def test_a_position_beyond_what_is_looked_at_is_refused(tiny: Trial, tmp_path: Any, memory: Callable) -> None:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question. " * 50)
    text = Text(source=str(path), context=100, batch=2)
    model = tiny.model.changed(positions={"kind": "learned", "count": 101})
    far = (SinkShare(positions=(1, 70)),)
    trial = tiny.changed(task=text, model=model, probing=Probing(probes=far, length=70))
    assert trial.changed(model=model.changed(sink_tokens=1), probing=Probing(probes=far, length=69))
    with pytest.raises(SpecError, match=r"probing\.length=64 and a task of up to 100 .* 70 tokens or more"):
        trial.changed(probing=Probing(probes=far))
    recall = AssociativeRecall(context=40, batch=2, evaluation={"lengths": (80,)})
    short = trial.changed(task=recall)
    world = memory()
    with pytest.raises(SpecError, match=r"have 40 tokens, .* 70 or more"):
        train(short, world)
    assert world.began is None
