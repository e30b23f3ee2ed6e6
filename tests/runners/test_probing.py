"""Which probes a trial may have: rows told apart, positions that there are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from grid.errors import SpecError
from runners.probes import GateSparsity, GradientNorms, LearnedNumbers, Probe, Probed, Probing, SinkShare, TokenClasses
from runners.tasks import AssociativeRecall, Text
from runners.training.loop import train
from runners.trial import Trial
from tests.runners.probe_fixtures import by_place, make_model, probe_model
from variants import gated_heads

ALL = [member for member in Probe.members().values() if member.__module__.startswith("runners.probes.")]


def ids(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("probes", "said"),
    [
        ((SinkShare(), SinkShare(eps=(0.1,))), r"sink_share and sink_share both record importance at position=1"),
        ((SinkShare(eps=()), SinkShare(positions=(0, 1))), "both record importance at position=1"),
        ((GradientNorms(), GradientNorms(k=(3,))), "both record gradient_norms"),
        ((GateSparsity(), GateSparsity(below=0.1)), "both record gate_sparsity at below=0.1"),
        ((TokenClasses(), LearnedNumbers(), TokenClasses()), "token_classes both record token_class.task"),
        ((LearnedNumbers(), LearnedNumbers()), "both record learned_numbers"),
    ],
)
def test_two_probes_that_would_record_one_row_are_refused(probes: tuple[Probe, ...], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Probing(probes=probes)


def test_probes_of_one_kind_whose_rows_differ_are_recorded_both() -> None:
    probes = (
        *(SinkShare(), SinkShare(positions=(2,)), SinkShare(of="weights")),
        *(GateSparsity(), GateSparsity(below=0.6)),
        *(TokenClasses(by="bytes"), TokenClasses(by="bytes", normalise="softmax"), TokenClasses(by="closed_class")),
    )
    assert Probing(probes=probes).probes == probes
    layerwise = (each for each in probes if getattr(each, "by", "bytes") == "bytes")
    found = probe_model(make_model(gated_heads()), ids(2, 7), *layerwise)
    by_place(found)  # no place has two values
    names = {each.name.rpartition(".")[0] or each.name for each in found}
    assert {"token_class.bytes", "token_class_softmax.bytes", "importance", "raw_importance"} <= names


@pytest.mark.parametrize("member", ALL, ids=lambda member: member.model_fields["kind"].default)
def test_what_a_probe_says_that_it_records_is_among_what_it_records(member: type[Probe]) -> None:
    """A probe that says no rows of its own has its kind to itself."""
    probe = member()
    if probe.records() == [(probe.label, {})]:
        with pytest.raises(ValidationError, match=f"both record {probe.label}"):
            Probing(probes=(probe, probe))
        return
    if isinstance(probe, TokenClasses):
        probe = TokenClasses(by="bytes")
    found = [each for each in probe_model(make_model(gated_heads()), ids(2, 7), probe) if isinstance(each, Probed)]
    for name, point in probe.records():
        assert any((row.name == name or row.name.startswith(f"{name}.")) and row.point == point for row in found)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SinkShare(eps=(0.3, 0.3)), "rises from value to value"),
        (lambda: SinkShare(positions=(1, 1)), "rises from value to value"),
        (lambda: GradientNorms(k=(9, 6)), "rises from value to value"),
        (lambda: SinkShare(positions=()), "at least 1 item"),
    ],
)
def test_points_that_would_come_twice_are_refused(make: Callable[[], Probe], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        make()


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
