"""A grid that is compared by what no trial records is refused before anything is written."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import QUIET, toy_grid

from ablate.grid import Grid, Measure, over
from ablate.grid.errors import SpecError
from ablate.runners.cli.campaign_plan import plan_campaign
from ablate.runners.evaluations import BoundaryValues
from ablate.runners.execution import Inline
from ablate.runners.execution.run import run_campaign
from ablate.runners.planning.preflight import METRICS
from ablate.runners.tasks import AskedLengths, AssociativeRecall, Distillation, Task, Text
from ablate.runners.trial import Trial
from tests.runners.test_task_laws import DRAWN, TEXTS


def grid(trial: Trial, name: str, point: dict[str, float] | None = None, **more: Any) -> Grid:
    measure = Measure(name=name, point=point or {})
    more = {"axes": [over("training.steps", [12, 13])], "baseline": {"steps": 12}, "measure": measure, **more}
    return Grid(name="judged", base=trial, seeds=[0], **more)


@pytest.fixture
def refused(tmp_path: Path) -> Any:
    def ask(wrong: Grid) -> str:
        root = tmp_path / "campaign"
        with pytest.raises(SpecError) as raised:
            plan_campaign(root, [wrong])
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


SPEC = """\
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
    spec.write_text(SPEC.replace("NAME", repr(name)).replace("LEVEL", str(level)))
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
    assert plan_campaign(tmp_path, [grid(tiny, name, point)]).to_do == 2
    plan_campaign(tmp_path, [grid(tiny, "mse", axes=[], baseline=None)])  # no verdicts: its point may be open
    plan_campaign(tmp_path, [Grid(name="free", base=tiny, seeds=[0])])
    plan_campaign(tmp_path, [Grid(name="toy", base=toy_grid().base, seeds=[0], measure=Measure(name="anything"))])


def test_every_task_of_a_grid_is_asked(tiny: Trial, task: Text, tmp_path: Path, refused: Any) -> None:
    axis = over("task", [tiny.task, task], labels=["functions", "text"])
    plan_campaign(tmp_path, [grid(tiny, "mse", {"sigma_f": 3}, axes=[axis], baseline={"task": "functions"})])
    plan_campaign(tmp_path, [grid(tiny, "validation_loss", axes=[axis], baseline={"task": "functions"})])
    assert "mse" in refused(grid(tiny, "accuracy", axes=[axis], baseline={"task": "functions"}))


def test_what_an_evaluation_records_can_judge_a_grid(tiny: Trial, tmp_path: Path, refused: Any) -> None:
    beside = tiny.changed(evaluations=(BoundaryValues(slopes=(1, 2), points=4),))
    plan_campaign(tmp_path, [grid(beside, "boundary_upper", {"a": 2})])
    plan_campaign(tmp_path, [grid(beside, "mse", {"sigma_f": 3})])
    assert "on its evaluation grid: a=1; a=2" in refused(grid(beside, "boundary_upper", {"a": 3}))
    assert "none of its trials records" in refused(grid(tiny, "boundary_upper", {"a": 2}))


def test_a_measure_with_the_wrong_direction_is_refused(tiny: Trial, tmp_path: Path, refused: Any) -> None:
    recall = tiny.changed(
        task=AssociativeRecall(context=12, pairs=2, evaluation=AskedLengths(lengths=(12,), sequences=2))
    )
    wrong = grid(recall, "accuracy", {"length": 12})
    assert 'where higher is better; its measure has better="lower": set better="higher"' in refused(wrong)
    right = Measure(name="accuracy", point={"length": 12}, better="higher")
    plan_campaign(tmp_path, [grid(recall, "accuracy", measure=right)])


def test_the_records_of_every_task_are_compared_with_what_it_declares() -> None:
    """By the laws of tasks and the tests of distillation."""
    ours = {member for member in Task.members().values() if member.__module__.startswith("ablate.runners.")}
    assert ours == {Distillation, *map(type, DRAWN.values()), *(kind for kind, _ in TEXTS.values())}
