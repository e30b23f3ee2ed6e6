"""Faults of a grid and of its inputs are found before any trial begins: a plan says so and a run starts nothing."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import QUIET, toy_grid

from ablate.grid import Grid, Measure, over
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.backends.slurm.spec import Slurm
from ablate.runners.cli.app import execute
from ablate.runners.cli.campaign_plan import PlanOptions, plan_campaign
from ablate.runners.execution import Inline
from ablate.runners.execution.run import run_campaign
from ablate.runners.planning.preflight import Preflight
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store.files.layout import Layout
from ablate.training.evaluations import BoundaryValues
from ablate.training.tasks import AskedLengths, AssociativeRecall, Distillation, Task, Text
from ablate.training.trial import METRICS, Trial
from tests.runners.test_task_laws import DRAWN, TEXTS

SPEC = """
from pathlib import Path
from ablate.grid import Grid, over
from ablate import AdamW, BytePairs, MinimalPairs, Probing, Text, Training, Trial
from ablate.variants import gpt2, softmax, ssa

here = Path(__file__).parent
base = Trial(
    task=Text(source=str(here / "a.txt"), context=8, batch=2, tokenizer=BytePairs(vocabulary=258)),
    model=gpt2(layers=1, heads=1, width=8, max_positions=16),
    operator=softmax(),
    training=Training(steps=1),
    probing=Probing(probes=()),
)
pairs = MinimalPairs(source=str(here / "pairs.txt"), scoring="causal", longest=16)
_operators, _sizes = over("operator", [softmax(), ssa()]), "task.tokenizer.vocabulary"
good = Grid(name="good", base=base, axes=[_operators], seeds=[0])
mixed = Grid(name="mixed", base=base, axes=[_operators, over(_sizes, [258, 900, 901])], seeds=[0])
judged = Grid(name="judged", base=base.changed(evaluations=(pairs,)), axes=[_operators], seeds=[0])
"""
TOO_FEW = "of 900 tokens; lower vocabulary"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("aab abb " * 100)
    (tmp_path / "pairs.txt").write_text(f"{'no ' * 30}\nyes\n")
    path = tmp_path / "spec.py"
    path.write_text(SPEC)
    return path


def ablate(*words: str | Path) -> int:
    return execute([str(word) for word in words])


@pytest.mark.parametrize(("grid", "said"), [("mixed", TOO_FEW), ("judged", "is less than")])
def test_where_trials_cannot_begin_a_plan_and_a_run_end_with_2_and_nothing_is_written(
    spec: Path, grid: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ("--grid", grid, "--campaign", spec.parent / "campaign")
    assert ablate("plan", spec, *there) == 2
    page = capsys.readouterr().out
    assert said in page
    assert page.count("  error: trials fail before their first step: ") == (2 if grid == "mixed" else 1)
    assert ablate("plan", spec, *there, "--json") == 2
    assert any(said in each for each in json.loads(capsys.readouterr().out)["data"]["refused"])
    assert ablate("run", spec, *there, "--on", "inline") == 2
    told = capsys.readouterr().err
    assert said in told
    assert ablate("plan", spec, "--grid", "good", *there[2:]) == 0
    assert "error" not in capsys.readouterr().out
    assert not (spec.parent / "campaign").exists()


def test_a_cell_that_has_been_tried_is_opened_before_a_retry(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished trial no longer needs its text, and a failed one has its reason."""

    def bug(task: Text) -> None:
        raise KeyError("a bug")

    grid, options = load_spec_file(spec)["good"], RunRequest(land_every_s=None, progress=False)
    again = replace(options, retry=True)
    with monkeypatch.context() as broken:
        broken.setattr(Text, "open", bug)
        assert run_campaign(tmp_path / "c", [grid], Inline(), options).failed == 2
    text = (tmp_path / "a.txt").read_text()
    (tmp_path / "a.txt").unlink()
    assert run_campaign(tmp_path / "c", [grid], Inline(), options).skipped_failed == 2
    with pytest.raises(SpecError, match="there is no text"):
        run_campaign(tmp_path / "c", [grid], Inline(), again)
    (tmp_path / "a.txt").write_text(text)
    assert run_campaign(tmp_path / "c", [grid], Inline(), again).done == 2
    (tmp_path / "a.txt").unlink()
    assert run_campaign(tmp_path / "c", [grid], Inline(), again).skipped == 2
    with pytest.raises(SpecError, match="there is no text"):
        run_campaign(tmp_path / "other", [grid], Inline(), options)


def test_other_faults_are_left(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening, mixed = Preflight(Layout(tmp_path / "c")), load_spec_file(spec)["mixed"]
    assert (
        plan_campaign(RunRequest(tmp_path / "c"), [mixed], PlanOptions(slurm=Slurm())).refused == ()
    )  # no text is needed here
    with pytest.raises(SpecError, match=rf"'softmax · vocabulary=900' .* {TOO_FEW}.*; `ablate plan` tells this and 1"):
        run_campaign(tmp_path / "c", [mixed], Inline())
    for planned in mixed.cells():
        opening.add_cell("mixed", planned)
    assert len(list(opening.refusals())) == 2

    def fail(task: Text) -> None:
        raise EnvironmentProblem("the disk is gone")

    monkeypatch.setattr(Text, "open", fail)
    assert list(opening.refusals()) == []


def grid(trial: Trial, name: str, point: dict[str, float] | None = None, **more: Any) -> Grid:
    measure = Measure(name=name, point=point or {})
    more = {"axes": [over("training.steps", [12, 13])], "baseline": {"steps": 12}, "measure": measure, **more}
    return Grid(name="judged", base=trial, seeds=[0], **more)


@pytest.fixture
def refused(tmp_path: Path) -> Any:
    def ask(wrong: Grid) -> str:
        root = tmp_path / "campaign"
        with pytest.raises(SpecError) as raised:
            plan_campaign(RunRequest(root), [wrong])
        assert not root.exists()
        return str(raised.value)

    return ask


def test_a_run_refuses_what_a_plan_refuses(tiny: Trial, refused: Any, tmp_path: Path) -> None:
    wrong = grid(tiny, "mes")
    with pytest.raises(SpecError) as raised:
        run_campaign(tmp_path / "campaign", [wrong], Inline(), QUIET)
    assert str(raised.value) == refused(wrong)


@pytest.mark.parametrize(
    ("name", "point", "said"),
    [
        ("mes", {"sigma_x": 1, "sigma_f": 3}, "'mes', which none of its trials records; .*mse.*; did you mean 'mse'"),
        ("mse", {"sigma_x": 1, "sigma_f": 4}, "not on its evaluation grid: sigma_x=1, sigma_f=1; sigma_x=1, sigma_f=3"),
        ("mse", {"sigma_x": 1}, "leaves 2 points, such as sigma_x=1, sigma_f=1 and sigma_x=1, sigma_f=3: say at which"),
        ("loss", {"sigma_x": 1}, "not on its evaluation grid: no point"),
    ],
)
def test_the_nearest_measure_is_named(tiny: Trial, refused: Any, name: str, point: dict[str, float], said: str) -> None:
    message = refused(grid(tiny, name, point))
    assert "grid 'judged'" in message
    assert re.search(said, message), message


MEASURED_SPEC = """\
from ablate import Grid, LinearFunctions, Measure, ShiftGrid, Training, Trial, gpt2, over, softmax
task = LinearFunctions(points=5, evaluation=ShiftGrid(sigma_x=(1,), sigma_f=(1,), points=5))
model = gpt2(layers=1, heads=1, width=8, max_positions=16)

judged = Grid(
    name="judged",
    base=Trial(task=task, model=model, operator=softmax(), training=Training(steps=2)),
    axes=[over("model.layers", [1, 2])],
    baseline={"layers": LEVEL},
    measure=Measure(name=NAME),
)
"""


@pytest.mark.parametrize(("name", "level", "said"), [("mes", 1, "'mes'"), ("mse", 3, "layers=3")])
def test_a_wrong_measure_or_baseline_is_told_with_its_line(
    tmp_path: Path, name: str, level: int, said: str, ablate: Callable
) -> None:
    spec = tmp_path / "spec.py"
    spec.write_text(MEASURED_SPEC.replace("NAME", repr(name)).replace("LEVEL", str(level)))
    for command in ("plan", "run"):
        error = ablate(command, spec, "--campaign", tmp_path / "campaign", code=2).err
        assert f"ablate: {spec}:5: " in error
        assert said in error


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("mse", {"sigma_x": 1, "sigma_f": 3}),
        ("mse", {"sigma_f": 3}),
        ("squared_error", {"sigma_x": 1, "sigma_f": 1, "position": 5}),
        *((metric, {}) for metric in METRICS),
    ],
)
def test_a_measure_of_one_point_is_taken(tiny: Trial, tmp_path: Path, name: str, point: dict[str, float]) -> None:
    assert plan_campaign(RunRequest(tmp_path), [grid(tiny, name, point)]).to_do == 2
    open_point = grid(tiny, "mse", axes=[], baseline=None)  # it may be open: there are no verdicts
    toys = Grid(name="toy", base=toy_grid().base, seeds=[0], measure=Measure(name="anything"))
    for each in (open_point, Grid(name="free", base=tiny, seeds=[0]), toys):
        plan_campaign(RunRequest(tmp_path), [each])


def test_every_task_of_a_grid_is_asked(tiny: Trial, task: Text, tmp_path: Path, refused: Any) -> None:
    axis = over("task", [tiny.task, task], labels=["functions", "text"])
    for name, point in (("mse", {"sigma_f": 3}), ("validation_loss", {})):
        functions = grid(tiny, name, point, axes=[axis], baseline={"task": "functions"})
        plan_campaign(RunRequest(tmp_path), [functions])
    assert "mse" in refused(grid(tiny, "accuracy", axes=[axis], baseline={"task": "functions"}))


def test_what_an_evaluation_records_can_judge_a_grid(tiny: Trial, tmp_path: Path, refused: Any) -> None:
    beside = tiny.changed(evaluations=(BoundaryValues(slopes=(1, 2), points=4),))
    plan_campaign(RunRequest(tmp_path), [grid(beside, "boundary_upper", {"a": 2})])
    plan_campaign(RunRequest(tmp_path), [grid(beside, "mse", {"sigma_f": 3})])
    assert "on its evaluation grid: a=1; a=2" in refused(grid(beside, "boundary_upper", {"a": 3}))
    assert "none of its trials records" in refused(grid(tiny, "boundary_upper", {"a": 2}))


def test_a_measure_with_the_wrong_direction_is_refused(tiny: Trial, tmp_path: Path, refused: Any) -> None:
    recall = tiny.changed(
        task=AssociativeRecall(context=12, pairs=2, evaluation=AskedLengths(lengths=(12,), sequences=2))
    )
    wrong = grid(recall, "accuracy", {"length": 12})
    assert 'where higher is better; its measure has better="lower": set better="higher"' in refused(wrong)
    right = Measure(name="accuracy", point={"length": 12}, better="higher")
    plan_campaign(RunRequest(tmp_path), [grid(recall, "accuracy", measure=right)])


def test_the_records_of_every_task_are_compared_with_what_it_declares() -> None:
    """By the laws of tasks and the tests of distillation."""
    ours = {member for member in Task.members().values() if member.__module__.startswith("ablate.training.")}
    assert ours == {Distillation, *map(type, DRAWN.values()), *(kind for kind, _ in TEXTS.values())}
