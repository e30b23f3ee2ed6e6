"""Laws of every task: its batches, examples and records, and that runs resume; identity and parts of a trial."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ablate import (
    BytePairs,
    FixedToken,
    MaskedText,
    Probing,
    Quantifiers,
    RandomTokens,
    SelectiveCopy,
    ShiftGrid,
    Text,
)
from ablate.grid.errors import SpecError
from ablate.grid.spec import cell_key
from ablate.training.loop.batch_parts import parts
from ablate.training.loop.train import train
from ablate.training.optimisers import Training
from ablate.training.probes.probe import probe_model as probe_batch
from ablate.training.tasks import (
    AskedLengths,
    AssociativeRecall,
    Grammar,
    Induction,
    LengthGrid,
    LinearFunctions,
    MultiQueryRecall,
    Needle,
)
from ablate.training.tasks.task import Batch, Task
from ablate.training.trial import Execution, Trial
from ablate.variants import Placement, Scalars, babyberta, gpt2, integral, softmax, ssa

GRID = AskedLengths(lengths=(21, 34), sequences=30)
SHIFTS = ShiftGrid(sigma_x=(1, 2), sigma_f=(1, 3), functions=4, sequences=2, points=7)
DRAWN: dict[str, Task] = {
    "linear_functions": LinearFunctions(points=9, batch=6, evaluation=SHIFTS),
    "quantifiers": Quantifiers(points=9, batch=6, evaluation=LengthGrid(lengths=(5, 9), sigma=(1, 2), sequences=20)),
    "recall": AssociativeRecall(context=20, pairs=4, keys=7, values=5, filler=3, batch=6, evaluation=GRID),
    "some recall": AssociativeRecall(context=20, pairs=4, queries=2, evaluated_pairs=(3, 5), batch=6, evaluation=GRID),
    "released recall": MultiQueryRecall(
        context=24, pairs=4, symbols=24, batch=6, evaluation=AskedLengths(lengths=(20, 34), sequences=30)
    ),
    "released recall of more pairs": MultiQueryRecall(
        context=24,
        pairs=4,
        symbols=24,
        evaluated_pairs=(3, 5),
        batch=6,
        evaluation=AskedLengths(lengths=(20, 34), sequences=30),
    ),
    "induction": Induction(context=20, symbols=9, span=4, batch=6, evaluation=GRID),
    "copy": SelectiveCopy(context=20, copied=5, contents=6, batch=6, evaluation=GRID),
    "needle": Needle(context=20, keys=5, values=6, filler=3, batch=6, depths=(0, 0.3, 1), evaluation=GRID),
    "grammar": Grammar(context=40, batch=6, validation_windows=8, agreement_pairs=6),
}
TEXTS: dict[str, tuple[type[Task], dict[str, object]]] = {
    "text": (Text, {}),
    "prefix": (Text, {"prefix": 4, "intervention": RandomTokens(positions=(1, 6))}),
    "documents": (
        Text,
        {"packing": "documents", "intervention": FixedToken(position=2), "tokenizer": BytePairs(vocabulary=262)},
    ),
    "masked": (MaskedText, {"context": 60}),
}


@pytest.fixture(params=[*DRAWN, *TEXTS])
def task(request: pytest.FixtureRequest, tmp_path: Path) -> Task:
    if request.param in DRAWN:
        return DRAWN[request.param]
    path = tmp_path / "prose.txt"
    path.write_text("".join(f"Line {n} says that {n * n} is the square of {n}.\n" for n in range(400)))
    kind, fields = TEXTS[request.param]
    return kind.model_validate({"source": str(path), "context": 20, "batch": 6, **fields})


def make_trial(task: Task) -> Trial:
    model = gpt2(layers=1, heads=2, width=16)
    if task.sees_ahead:
        model = babyberta(layers=1, heads=2, width=16, feedforward_width=32, max_positions=80)
    return Trial(
        task=task, model=model, operator=softmax(), training=Training(steps=4, evaluate_every=3), probing=Probing()
    )


def tensors(batch: Batch) -> Iterator[Tensor]:
    return (each for each in batch if each is not None)


def equal(one: Batch, other: Batch) -> bool:
    pairs = zip(tensors(one), tensors(other), strict=True)
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def shown_to_a_model(task: Task) -> tuple[list[Tensor], list[tuple[str, dict[str, float]]]]:
    seen: list[Tensor] = []
    width = 1 if isinstance(task.inputs, Scalars) else task.inputs.vocabulary

    def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        seen.append(inputs)
        return torch.zeros(*inputs.shape[:2], width)

    return seen, [(row.name, dict(row.point)) for row in task.open().evaluate(predict)]


def test_a_batch_follows_from_seed_and_step_alone(task: Task) -> None:
    data = task.open()
    first = data.batch(4, 9)
    for seed, step in ((5, 9), (4, 10)):
        assert not torch.equal(first.inputs, data.batch(seed, step).inputs)
    assert equal(first, task.open().batch(4, 9))
    assert len(first.inputs) == task.batch


def test_examples_are_as_many_as_asked_for_and_nobody_trains_on_them(task: Task) -> None:
    few, many = (task.changed(batch=batch).open().examples(9) for batch in (4, 12))
    assert equal(few, many)
    assert len(few.inputs.unique(dim=0)) == 9
    for seed, step in product((0, 1), (1, 2, 3)):
        batch = task.open().batch(seed, step).inputs
        width = min(batch.shape[1], few.inputs.shape[1])
        equals = few.inputs[:, None, :width] == batch[None, :, :width]
        assert not equals.flatten(2).all(2).any()


def test_probes_see_the_first_examples_cut_with_what_is_visible_in_them(task: Task) -> None:
    data = task.open()
    whole, cut = data.examples(3), probe_batch(data, Probing(sequences=3, length=4))
    assert torch.equal(cut.inputs, whole.inputs[:, :4])
    assert (cut.visible is None) == (whole.visible is None)
    if whole.visible is not None and cut.visible is not None:
        assert torch.equal(cut.visible, whole.visible[:, :4, :4])


def test_what_is_measured_is_what_is_announced_on_inputs_that_the_task_alone_decides(task: Task) -> None:
    seen, rows = shown_to_a_model(task)
    announced = [(name, dict(point)) for name, points in task.measures().items() for point in points]
    assert sorted(map(str, rows)) == sorted(map(str, announced))
    again, _ = shown_to_a_model(task.changed(batch=5))
    assert all(torch.equal(a, b) for a, b in zip(seen, again, strict=True))
    assert Task.members()[task.label].model_validate(task.data()) == task


@pytest.mark.parametrize("name", DRAWN)
def test_another_sample_is_judged_on_other_inputs_and_trained_on_the_same(name: str) -> None:
    task = DRAWN[name]
    other = task.changed(sample=1) if name == "grammar" else task.changed(evaluation=task.evaluation.changed(sample=1))
    (one, _), (two, _) = shown_to_a_model(task), shown_to_a_model(other)
    assert not any(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert equal(task.open().batch(1, 1), other.open().batch(1, 1))


def draw_outputs(task: Task, batch: Batch) -> Tensor:
    width = 1 if isinstance(task.inputs, Scalars) else task.inputs.vocabulary
    return torch.randn(*batch.inputs.shape[:2], width, generator=torch.Generator().manual_seed(0))


def test_the_losses_are_one_graph(task: Task) -> None:
    """They are compiled with the model: a value that the host reads would stop the compiler."""
    torch._dynamo.reset()  # it keeps eight graphs of a function
    data = task.open()
    batch = data.batch(1, 1)
    outputs = draw_outputs(task, batch)
    compiled = torch.compile(data.losses, fullgraph=True, backend="eager")(outputs, batch.targets)
    assert all(map(torch.equal, compiled, data.losses(outputs, batch.targets)))


@pytest.mark.parametrize(
    ("task", "where"),
    [
        (LinearFunctions(points=50, batch=64, evaluation=SHIFTS), "cpu"),
        (Induction(symbols=64, context=256, batch=64, evaluation=GRID), "cpu"),
        (Induction(symbols=64, context=256, batch=65, evaluation=GRID), "cuda"),
        (Induction(symbols=4096, context=256, batch=5, evaluation=GRID), "cuda"),
    ],
)
def test_small_batches_are_drawn_on_the_host(task: Task, where: str) -> None:
    assert task.drawn_on(torch.device("cuda", 1)).type == where
    assert task.drawn_on(torch.device("cpu")).type == "cpu"


def test_parts_of_a_batch_make_up_the_loss_of_the_whole(task: Task) -> None:
    data = task.open()
    batch = data.batch(1, 1)
    outputs = draw_outputs(task, batch)
    split = zip(parts(data, batch, 4, range(4)), outputs.tensor_split(4), strict=True)
    total = sum(float(data.loss(rows, part.batch.targets)) * part.terms for part, rows in split)
    assert total == pytest.approx(float(data.loss(outputs, batch.targets)))


class _Reads(TorchDispatchMode):
    """Counts the single numbers that the host reads."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_the_host_does_not_wait_for_each_part(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU every number that it reads stops it; all counts are one list."""
    data = task.open()
    batch = data.batch(1, 1)
    lists = list[Tensor]()
    read = Tensor.tolist
    monkeypatch.setattr(Tensor, "tolist", lambda x: lists.append(x) or read(x))
    with _Reads() as reads:
        parts(data, batch, 4, range(4))
    assert reads.count == 0
    assert len(lists) <= 1


def test_a_run_goes_on_exactly_where_it_stopped(task: Task, memory: Callable) -> None:
    trial = make_trial(task)
    whole, stopped = memory(), memory(stop_at=[2])
    train(trial, whole)
    train(trial, stopped)
    stopped.stop_at.clear()
    train(trial, stopped)
    assert stopped.logged == whole.logged
    assert stopped.evaluations == whole.evaluations


def test_what_is_identity_of_a_trial_and_of_its_cell(tiny: Trial) -> None:
    other = tiny.changed(execution=Execution(path="reference", log_every=7, threads=2, device="cpu"))
    assert other.key == tiny.key
    assert other.data()["execution"]["path"] == "reference"
    seeded = tiny.changed(seed=4)
    assert seeded.key != tiny.key
    assert cell_key(seeded) == cell_key(tiny)
    shares = [0.01, 1 / tiny.model.layers]  # the same layers
    assert len({tiny.changed(placement=Placement(share=share)).key for share in shares}) == 1
    half = tiny.changed(operator=ssa(), placement=Placement(share=0.5, rest=ssa(name="the same")))
    assert half.key == tiny.changed(operator=ssa()).key  # all layers have one operator
    assert tiny.changed(placement=Placement(share=0.5)).key == tiny.key


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": LinearFunctions(points=5)}, "up to 79 tokens and the model has 16 positions"),
        ({"operator": integral(3)}, "operator .* in gpt2 2L 2H 8: signals.count divides a head's 4 channels; got 3"),
        ({"operator": ssa(), "execution": {"path": "sdpa"}}, "path 'sdpa' cannot run 'SSA'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tiny: Trial, fields: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        tiny.changed(**fields)
