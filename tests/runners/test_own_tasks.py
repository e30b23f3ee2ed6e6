"""Tasks and evaluations of a user's own: each mistake is answered before anything is trained."""

import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from ablate.grid.errors import SpecError
from ablate.runners.provenance.specfile import import_spec_file
from ablate.store.files.layout import Layout
from ablate.training.planning import tried_task
from ablate.training.planning.task_laws import TASK_LAWS, require_evaluation_laws, require_task_laws
from ablate.training.planning.tried_task import TriedTask
from ablate.training.tasks import Batch, Data, LinearFunctions, ShiftGrid, Task

SOUND = (Path(__file__).parents[1] / "own_task.py").read_text(encoding="utf-8")
BATCH = "return self.draw(generator, self.task.batch, self.task.part).to(device)"
SEED = "torch.Generator().manual_seed(1_000_003 * seed + step)"
HELD_OUT = "torch.Generator().manual_seed(part)"
INPUTS = "return Batch(tokens[:, :-1], targets)"
CONSTANT = "return float(torch.tensor(self.task.vocabulary).log())"
DRAWN = "once = torch.randint(self.task.vocabulary, (sequences, part), generator=generator)"
YIELD = 'yield over_items("accuracy", right.double().mean(1), {"part": part})'

KINDS = count()

MISTAKES = {
    "another name in measures": ('return {"accuracy"', 'return {"acuracy"', "measures"),
    "another point in measures": ('{"part": part} for', '{"parts": part} for', "measures"),
    "a point that is not declared": ("for part in self.lengths]", "for part in self.lengths[:1]]", "measures"),
    "a unit of another name": (
        'units: ClassVar[Mapping[str, str]] = {"accuracy"',
        'units: ClassVar[Mapping[str, str]] = {"acuracy"',
        "measures",
    ),
    "a value twice": (YIELD, f"{YIELD}\n            {YIELD}", "measures"),
    "several numbers as a value": (
        'over_items("accuracy", right.double().mean(1), {"part": part})',
        'Measurements("accuracy", right.double().mean(1), {"part": part}, 20, None)',
        "evaluation",
    ),
    "random evaluation data": (HELD_OUT, "torch.Generator().manual_seed(torch.Generator().seed())", "evaluation"),
    "evaluation data of the process": (HELD_OUT, "None", "evaluation"),
    "random answers": ("right.double()", "(right.double() * torch.rand(1))", "evaluation"),
    "a short length": ("2 * max(self.part, *self.lengths) - 1", "2 * self.part - 1", "length"),
    "a length shorter than batches": ("2 * max(self.part, *self.lengths) - 1", "self.part", "inputs"),
    "a target outside of the vocabulary": (
        "targets[:, : part - 1] = UNSCORED",
        "targets[:, : part - 1] = self.task.vocabulary",
        "targets",
    ),
    "an input outside of the vocabulary": (INPUTS, "return Batch(tokens[:, :-1] + 1, targets)", "inputs"),
    "targets as floats": (INPUTS, "return Batch(tokens[:, :-1], targets.float())", "targets"),
    "targets of the last position": (INPUTS, "return Batch(tokens[:, :-1], targets[:, -1])", "targets"),
    "nothing scored": ("targets[:, : part - 1] = UNSCORED", "targets[:] = UNSCORED", "targets"),
    "inputs as floats": (INPUTS, "return Batch(tokens[:, :-1].float(), targets)", "inputs"),
    "a batch for all seeds": (SEED, "torch.Generator().manual_seed(step)", "batches"),
    "a batch for all steps": (SEED, "torch.Generator().manual_seed(seed)", "batches"),
    "batches of the process": (SEED, "None", "batches"),
    "batches of numpy": (SEED, 'torch.Generator().manual_seed(__import__("numpy").random.randint(2**30))', "batches"),
    "batches in the order of calls": (
        SEED,
        "self.__dict__.setdefault('drawn', torch.Generator().manual_seed(seed))",
        "batches",
    ),
    "a small constant loss": (CONSTANT, "return 1e-4", "constant loss"),
    "no constant loss": (CONSTANT, "return 0.0", "constant loss"),
    "a large constant loss": (CONSTANT, "return 1e6", "constant loss"),
    "another number of sequences": (BATCH, "return self.draw(generator, 4, self.task.part).to(device)", "inputs"),
    "no batch": (BATCH, "return tuple(self.draw(generator, self.task.batch, self.task.part))", "inputs"),
    "no device": (", device: torch.device = CPU) -> Batch", ") -> Batch", "inputs"),
    "an error": (DRAWN, f"{DRAWN}[{{}}['here']]", "inputs"),
    "an error in an evaluation": (".cpu() ==", ".cpu()[:, 1:] ==", "evaluation"),
    "an exit": (DRAWN, f"{DRAWN}; import sys; sys.exit()", "inputs"),
    "a file that is not there": ("self.task = task", "self.task = open('/nowhere')", "inputs"),
    "a visibility of another shape": (INPUTS, "return Batch(tokens[:, :-1], targets, tokens > 0)", "inputs"),
    "a loss for each target": (
        "    def draw(",
        "    def loss(self, outputs, targets):\n        return outputs.sum(-1)\n\n    def draw(",
        "targets",
    ),
    "NaN": (
        "    def draw(",
        "    def loss(self, outputs, targets):\n        return outputs.sum() / 0\n\n    def draw(",
        "targets",
    ),
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def save(old: str = "", new: str = "") -> Path:
        assert old in SOUND
        path, text = tmp_path / "mine.py", SOUND.replace(old, new) if old else SOUND
        path.write_text(text.replace('"tests_', f'"tests_{next(KINDS)}_'), encoding="utf-8")  # a kind has one class
        return path

    return save


def broken(task: Task) -> dict[str, str]:
    """The laws that a task breaks."""
    tried, found = TriedTask(task), {}
    for law in TASK_LAWS:
        try:
            law.check(tried)
        except SpecError as error:
            found[law.name] = str(error)
    return found


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_breaks_its_law_and_is_one_sentence(mistake: str, write: Callable[..., Path]) -> None:
    old, new, law = MISTAKES[mistake]
    found = broken(import_spec_file(write(old, new)).Repeat())
    assert next(iter(found)) == law
    assert "\n" not in found[law]
    assert "_repeat" in found[law]


class Points(LinearFunctions):
    """Linear functions whose third sequence has a gap."""

    kind: Literal["tests_points"] = "tests_points"  # type: ignore[assignment]
    gap: str = "0"

    def open(self) -> Data:
        data = super().open()
        draw = data.batch

        def batch(*place: Any) -> Batch:
            drawn = draw(*place)
            drawn.inputs[2, 5] += float(self.gap)
            return drawn

        data.batch = batch  # type: ignore[method-assign]
        return data


@pytest.mark.parametrize("forever", ["while True:\n            pass", "__import__('time').sleep(1e6)"])
@pytest.mark.parametrize(
    ("place", "law"), [(BATCH, "inputs"), ("for part in self.task.lengths:", "evaluation"), (CONSTANT, "constant loss")]
)
def test_what_does_not_end_is_stopped_and_its_law_named(
    place: str, law: str, forever: str, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried_task, "LONGEST_LAW_S", 0.5)
    task = import_spec_file(write(place, f"{forever}\n        {place}")).Repeat()
    (check,) = (each.check for each in TASK_LAWS if each.name == law)
    with (
        pytest.raises(SpecError, match=f"has not ended after 0.5 s of the law '{law}'"),
        tried_task.law_of("task", law),
    ):
        check(TriedTask(task))
    with pytest.raises(SpecError, match="has not ended"):
        require_task_laws(task)


def test_other_timers_go_on_after_a_law() -> None:
    def ring(*_: object) -> None:
        rung.append(True)

    rung, before = list[bool](), signal.signal(signal.SIGALRM, ring)
    left = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with tried_task.law_of("task", "inputs"):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 100
        assert signal.getsignal(signal.SIGALRM) is ring
        while not rung:
            signal.pause()
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *left)


@pytest.mark.parametrize("gap", ["nan", "inf"])
def test_numbers_are_finite(gap: str) -> None:
    evaluation = ShiftGrid(sigma_x=(1,), sigma_f=(1, 3), functions=6, sequences=3, points=5)
    sound = Points(points=5, batch=8, evaluation=evaluation)
    assert broken(sound) == {}
    assert next(iter(broken(sound.changed(gap=gap)))) == "inputs"


@pytest.mark.parametrize(
    "mistake", ["another name in measures", "batches of the process", "targets as floats", "an error"]
)
def test_plan_and_run_end_with_2_and_train_nothing(
    mistake: str, write: Callable[..., Path], tmp_path: Path, ablate: Callable[..., object]
) -> None:
    old, new, _ = MISTAKES[mistake]
    spec, root = write(old, new), tmp_path / "campaign"
    ablate("plan", spec, "--campaign", root, code=2)
    ablate("run", spec, "--campaign", root, code=2)
    assert not Layout(root).exists()


def test_a_sound_task_is_trained(write: Callable[..., Path], tmp_path: Path, ablate: Callable[..., object]) -> None:
    ablate("plan", write(), "--campaign", tmp_path / "campaign")
    ablate("run", write(), "--campaign", tmp_path / "campaign", "--workers", 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"confidence": [{}]}', '{"confident": [{}]}'),
        ('{"confidence": "share', '{"confident": "share'),
        ("return self.tokens\n", "return 3\n"),
        ("torch.arange(self.tokens)[None]", "torch.randint(5, (1, self.tokens))"),
        ("[None] % 5", "[None] + 5"),
        (".amax(-1)[0]", ".amax(-1)[3]"),
    ],
)
def test_an_evaluation_keeps_the_same_laws(old: str, new: str, write: Callable[..., Path]) -> None:
    own = import_spec_file(write())
    require_evaluation_laws(own.Confidence(), own.Repeat())
    own = import_spec_file(write(old, new))
    with pytest.raises(SpecError):
        require_evaluation_laws(own.Confidence(), own.Repeat())
