"""Proving the tasks, evaluations, probes and experiments of a spec file, with planted faults."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from ablate.grid.errors import SpecError
from ablate.runners.provenance.specfile import import_spec_file
from ablate.training.catalogue.prove import prove
from ablate.training.catalogue.prove_own import Proven, own_subjects
from ablate.training.planning import tried_task

TASK, EXPERIMENT = (
    (Path(__file__).parents[1] / name).read_text(encoding="utf-8") for name in ("own_task.py", "own_experiment.py")
)
NUMBERS = count()
SEED = "torch.Generator().manual_seed(1_000_003 * seed + step)"
PROBED = 'yield Probed("first_weight", float(weight.flatten()[0]))'
STATE = "            return {"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def save(text: str, old: str = "", new: str = "") -> Path:
        assert old in text
        path, text = tmp_path / "mine.py", text.replace(old, new) if old else text
        path.write_text(text.replace('"tests_', f'"proved_{next(NUMBERS)}_'), encoding="utf-8")  # a kind has one class
        return path

    return save


def broken(subjects: list[Proven]) -> set[str]:
    """The laws that are broken, with the first word of what breaks them."""
    found = set()
    for title, laws in subjects:
        for name, check in laws.items():
            try:
                check()
            except SpecError:
                found.add(f"{title.split()[0]} {name}")
    return found


@pytest.mark.parametrize(("text", "subjects"), [(TASK, 3), (EXPERIMENT, 1)])
def test_sound_ones_keep_their_laws(text: str, subjects: int, write: Callable[..., Path]) -> None:
    path = write(text)
    assert len(own_subjects(import_spec_file(path), path)) == subjects
    assert prove(path, None) == 0


@pytest.mark.parametrize(
    ("old", "new", "law"),
    [
        (SEED, 'torch.Generator().manual_seed(abs(hash(f"{seed} {step}")))', "task fresh process"),
        (
            "    def draw(",
            "    def terms(self, targets):\n        return range(1, 1 + len(targets))\n\n    def draw(",
            "task parts",
        ),
        (SEED, "torch.Generator().manual_seed(step)", "task batches"),
        ('{"confidence": [{}]}', '{"confident": [{}]}', "evaluation evaluation"),
        (PROBED, PROBED.replace("first_weight", "first"), "probe probe"),
        (PROBED, PROBED.replace(".flatten()[0]", ".flatten()[0] + torch.rand(())"), "probe probe"),
        (PROBED, f"weight.mul_(2)\n        {PROBED}", "probe probe"),
        (PROBED, "raise KeyError('weight')", "probe probe"),
        (PROBED, f"next(seen.model.buffers()).add_(1)\n        {PROBED}", "probe probe"),
        (PROBED, f"__import__('sys').exit()\n        {PROBED}", "probe probe"),
    ],
)
def test_a_planted_fault_breaks_one_law(old: str, new: str, law: str, write: Callable[..., Path]) -> None:
    path = write(TASK, old, new)
    assert broken(own_subjects(import_spec_file(path), path)) == {law}


def test_what_does_not_end_is_tried_by_one_law(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tried_task, "LONGEST_LAW_S", 2)
    spec = write(EXPERIMENT, 'run.evaluate("start"', 'while True:\n            pass\n        run.evaluate("start"')
    assert prove(spec, None) == 4
    out = " ".join(capsys.readouterr().out.split())
    assert "BREAKS records records:" in out
    assert "has not ended after 2 s of the law 'records'" in out


def test_a_broken_law_ends_with_4(write: Callable[..., Path]) -> None:
    assert prove(write(TASK, SEED, "torch.Generator().manual_seed(step)"), None) == 4


@pytest.mark.parametrize(
    ("old", "new", "laws"),
    [
        ('                "optimiser": optimiser,\n', "", {"experiment stop"}),
        ('                "generator": generator,\n', "", {"experiment stop"}),
        ("+ random.random()", "+ random.SystemRandom().random()", {"experiment repeat", "experiment stop"}),
        (
            "        model = torch.nn.S",
            "        [seed(0) for seed in (torch.manual_seed, random.seed, np.random.seed)]\n"
            "        self = self.changed(seed=0)\n        model = torch.nn.S",
            {"experiment seeds"},
        ),
        (
            "        model = torch.nn.S",
            "        raise KeyError('lr')\n        model = torch.nn.S",
            {f"experiment {law}" for law in ("records", "repeat", "seeds", "stop")},
        ),
        (
            '    deaths: str = ""\n',
            '    deaths: str = ""\n\n    def model_post_init(self, _: object) -> None:\n'
            '        object.__setattr__(self, "lr", self.lr * 2)\n',
            {"experiment data"},
        ),
    ],
)
def test_a_planted_fault_in_an_experiment_is_found(
    old: str, new: str, laws: set[str], write: Callable[..., Path]
) -> None:
    path = write(EXPERIMENT, old, new)
    assert broken(own_subjects(import_spec_file(path), path)) == laws
