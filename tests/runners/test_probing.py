"""Which probes a trial may have: rows told apart, positions that there are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from grid.errors import SpecError
from runners.probes import GateSparsity, GradientNorms, LearnedNumbers, Probe, Probing, SinkShare, TokenClasses
from runners.tasks import AssociativeRecall, Text
from runners.training.loop import train
from runners.trial import Trial
from tests.runners.probe_fixtures import by_place, make_model, probe_model
from variants import gated_heads

ALL = [member for member in Probe.members().values() if member.__module__.startswith("runners.probes.")]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: [SinkShare(), SinkShare(eps=(0.1,))],
            "sink_share and sink_share both record importance at position=1",
        ),
        (lambda: [GradientNorms(), GradientNorms(k=(3,))], "both record gradient_norms"),
        (lambda: [GateSparsity(), GateSparsity(below=0.1)], "both record gate_sparsity at below=0.1"),
        (lambda: [TokenClasses(), LearnedNumbers(), TokenClasses()], "token_classes both record token_class.task"),
        (lambda: [SinkShare(eps=(0.3, 0.3))], "rises from value to value"),
    ],
)
def test_two_probes_that_would_record_one_row_are_refused(make: Callable[[], list[Probe]], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Probing(probes=tuple(make()))


def test_probes_of_one_kind_whose_rows_differ_are_recorded_both() -> None:
    probes = (
        *(SinkShare(), SinkShare(positions=(2,)), SinkShare(of="weights")),
        *(GateSparsity(), GateSparsity(below=0.6)),
        *(TokenClasses(by="bytes"), TokenClasses(by="bytes", normalise="softmax"), TokenClasses(by="closed_class")),
    )
    assert Probing(probes=probes).probes == probes
    layerwise = (each for each in probes if getattr(each, "by", "bytes") == "bytes")
    records = by_place(probe_model(make_model(gated_heads()), torch.arange(14).view(2, 7), *layerwise))
    names = {name.rpartition(".")[0] or name for name, *_ in records}
    assert {"token_class.bytes", "token_class_softmax.bytes", "importance", "raw_importance"} <= names


def test_a_position_beyond_what_is_looked_at_is_refused(tiny: Trial, tmp_path: Any, memory: Callable) -> None:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question. " * 50)
    text = Text(source=str(path), context=100, batch=2)
    model = tiny.model.changed(positions={"kind": "learned", "count": 101})
    far = (SinkShare(positions=(1, 70)),)
    trial = tiny.changed(task=text, model=model, probing=Probing(probes=far, length=70))
    assert trial.changed(model=model.changed(sink_tokens=1), probing=Probing(probes=far, length=69))
    with pytest.raises(SpecError, match=r"70 tokens or more; got probing\.length=64 and a task of up to 100"):
        trial.changed(probing=Probing(probes=far))
    recall = AssociativeRecall(context=40, batch=2, evaluation={"lengths": (80,)})  # type: ignore[arg-type]
    short = trial.changed(task=recall)
    world = memory()
    with pytest.raises(SpecError, match=r"70 tokens or more.* have 40"):
        train(short, world)
    assert world.began is None
