"""Optional methods of a user's experiment: what is wrong with one is told in one sentence, and stops what it must.

The effect of each is in test_experiment_features.py.
"""

import itertools
from pathlib import Path
from typing import Any, Literal

import pytest

from ablate.grid import ControlChange, Experiment, Grid, Measure, Run, SpecError, over
from ablate.grid.experiment import Findings
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.campaign_plan import PlanOptions, RunPlan, plan_campaign, plan_lines
from ablate.runners.execution.run import run_campaign
from ablate.runners.planning.longer import choose_longer
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout

_numbers = itertools.count()


def train(self: Any, run: Run) -> None:
    """Record one value, which a gate makes better."""
    run.evaluate("loss", 3.0 - 0.5 * self.gate + 0.01 * self.seed**2)


def grid_of(wanted: Any = (), factor: int | None = None, **methods: Any) -> Grid:
    """A grid of an experiment with these methods."""
    kind = f"tests_methods_{next(_numbers)}"
    body = {"__annotations__": {"kind": Literal[kind], "gate": bool}, "kind": kind, "gate": False, "train": train}
    made: Experiment = type("Net", (Experiment,), {**body, "__module__": __name__, **methods})()
    return Grid(
        name="g",
        base=made,
        axes=[over("gate", [False, True])],
        seeds=range(3),
        baseline={"gate": "false"},
        measure=Measure(name="loss", rope=0.05),
        controls=wanted,
        longer=factor,
    )


def plan(root: Path, grid: Grid) -> RunPlan:
    request = RunRequest(root=root, progress=False)
    return plan_campaign(request, [grid], PlanOptions(parameters=True))


def run(root: Path, grid: Grid, **options: Any) -> int:
    return run_campaign(root, [grid], None, RunRequest(progress=False, land_every_s=None, **options)).done


def raises(*_: object) -> Any:
    """Raise as code of a user does."""
    return [][0]


WRONG: list[tuple[str, Any, str]] = [
    ("parameters", lambda _: "12", "whole number"),
    ("parameters", lambda _: -1, "whole number"),
    ("parameters", raises, "IndexError"),
    ("measures", lambda _: ["loss"], "points by name"),
    ("measures", lambda _: {"loss": 3}, "points by name"),
    ("measures", raises, "IndexError"),
    ("measures", lambda _: {"mse": [{}]}, "none of its trials records"),
    ("row_infos", lambda _: {"loss": "nats"}, "RowInfo"),
    ("row_infos", raises, "IndexError"),
    ("controls", lambda _, measure, baseline: "width", "ControlChange"),  # noqa: ARG005
    ("controls", lambda _, measure: [], "TypeError"),  # noqa: ARG005
    ("controls", raises, "IndexError"),
]


@pytest.mark.parametrize(("name", "method", "words"), WRONG)
def test_a_method_that_fails_is_named_with_its_line(name: str, method: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        plan(tmp_path / "c", grid_of(**{name: method}))
    sentence = str(caught.value)
    assert "\n" not in sentence
    if words != "none of its trials records":
        assert Path(__file__).name in sentence
        assert f"{method.__qualname__}()" in sentence


def test_times_of_other_cells_are_in_proportion_to_flops(tmp_path: Path) -> None:
    """One trial has finished; the estimate of the other cell is its time, times the ratio of FLOPs."""
    estimates = {}
    for name, count in (("known", lambda self: 5.0 if self.gate else 1.0), ("unknown", lambda _: None)):
        grid = grid_of(flops=count)
        first, *_ = [each.key for each in grid.trials() if not each.trial.gate]
        assert run(tmp_path / name, grid, only={first}) == 1
        (took,) = (read_json(path)["wall_s"] for path in tmp_path.glob(f"{name}/trials/*/*/*/end.json"))
        estimates[name] = plan(tmp_path / name, grid).estimate.trial_s / took
    assert estimates == {"known": pytest.approx(2 + 3 * 5.0), "unknown": pytest.approx(5)}


@pytest.mark.parametrize("flops", [lambda _: "many", lambda _: -1.0, raises])
def test_flops_that_cannot_be_counted_are_a_line_of_the_plan(flops: Any, tmp_path: Path) -> None:
    grid = grid_of(flops=flops)
    assert run(tmp_path / "c", grid, only={next(iter(grid.trials())).key}) == 1
    (*_, line) = plan(tmp_path / "c", grid).estimate.problems
    assert Path(__file__).name in line


@pytest.mark.parametrize("warnings", [lambda _, cells: 3, lambda _, cells: Findings(3), lambda _: [], raises])  # noqa: ARG005
def test_warnings_that_fail_are_a_line_and_stop_nothing(warnings: Any, tmp_path: Path) -> None:
    grid = grid_of(warnings=classmethod(warnings))
    (line,) = plan(tmp_path / "c", grid).findings["g"].lines
    assert Path(__file__).name in line
    assert run(tmp_path / "c", grid) == 6


def test_warnings_may_be_a_list_of_sentences(tmp_path: Path) -> None:
    said = plan(tmp_path / "c", grid_of(warnings=classmethod(lambda _, cells: [f"{each} is wide" for each in cells])))
    assert said.findings["g"].lines == ["gate=false is wide", "gate=true is wide"]
    assert "  gate=true is wide" in [*plan_lines(said)]


@pytest.mark.parametrize("check", [raises, lambda _: False])
def test_inputs_that_cannot_be_checked_stop_a_run_before_it_begins(check: Any, tmp_path: Path) -> None:
    grid = grid_of(check_inputs=check)
    assert len(plan(tmp_path / "c", grid).refused) == 1
    with pytest.raises(SpecError, match="nothing was trained"):
        run(tmp_path / "c", grid)


def test_a_longer_one_is_of_the_class_and_another(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"has no longer\(factor\)"):
        grid_of(factor=2)
    for longer, words in (
        (lambda self, _: self, "as it was"),
        (lambda *_: 3, "the experiment"),
        (raises, "IndexError"),
    ):
        with pytest.raises(SpecError, match=words):
            grid_of(factor=2, longer=longer)

        def of_the_variant(self: Any, factor: int, longer: Any = longer) -> Any:
            return longer(self, factor) if self.gate else self.changed(gate=True)

        root = tmp_path / str(next(_numbers))
        grid = grid_of(factor=2, longer=of_the_variant)
        assert run(root, grid) == 6
        with pytest.raises(SpecError, match=words):
            _ = choose_longer(Layout(root), grid).lengthened


def test_a_control_of_a_field_that_is_not_there_is_told_in_the_plan(tmp_path: Path) -> None:
    def controls(_self: Any, _measure: Measure, _baseline: Any) -> list[ControlChange]:
        return [ControlChange("twice the width", "width", {"width": 2})]

    assert any("width" in line for line in plan(tmp_path / "c", grid_of("auto", controls=controls)).controls["g"])
