"""Results that other code made: they are counted, told, trained again on request, and never mixed in silence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_spec import real_spec
from toy_campaign import run_quietly, toy_grid
from warm import warm_server

from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.app import execute
from ablate.runners.cli.campaign_plan import plan_campaign
from ablate.runners.execution import Inline, Local
from ablate.runners.execution.run import TOLD_FAILURES, RunResult
from ablate.runners.provenance.code import Codes
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state

OWN = """
from dataclasses import replace
from typing import ClassVar, Literal

from ablate.grid import Measure
from ablate.variants import LogScore, Operator

def power(a):
    return 1.5 * a

class Edited(LogScore):
    source: ClassVar[str] = "mine"
    kind: Literal["KIND"] = "KIND"

    def log_score(self, a):
        return power(a)

    def oracle(self, a):
        import math
        return math.exp(1.5 * a)
"""
JUDGED = 'grid = replace(grid, baseline={"operator": "softmax"}, measure=Measure(name="mse", point={"sigma_f": 1}))'
OPERATORS = "softmax(), Operator(score=Edited())"
SPEC = real_spec("edited", training="steps=3", operators=OPERATORS, seeds=2, before=OWN, after=JUDGED)


@pytest.fixture
def ablate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command on the spec file, which holds `text`, and gives what it printed."""

    def act(command: str, *flags: str, text: str = SPEC, code: int = 0) -> str:
        path = tmp_path / "edited.py"
        path.write_text(text.replace("KIND", f"edited_{tmp_path.name}"))
        what = [str(path)] if command in ("plan", "run") else []
        inline = ["--on", "inline"] if command == "run" else []
        assert execute([command, *what, "--campaign", str(tmp_path / "c"), *inline, *flags]) == code
        said = capsys.readouterr()
        return said.out + said.err

    return act


def test_an_edited_formula_is_told_and_trained_again_on_request(ablate: Callable[..., str], tmp_path: Path) -> None:
    edited = SPEC.replace("return 1.5 * a", "return 1.7 * a")
    ablate("run")
    layout = Layout(tmp_path / "c")
    starts = [read_json(layout.start(key, 1)) for key in layout.trial_keys()]
    assert len({start["code"] for start in starts}) == 1  # the core: verdicts require that it is equal
    assert sum("class Edited" in start["sources"] for start in starts) == 2
    assert "other code" not in ablate("plan") + ablate("table")
    assert "2 finished trials ran other code; `ablate run SPEC --rerun-stale`" in ablate("plan", text=edited)
    more = edited.replace("range(2)", "range(3)")
    assert "2 trained; 4 were done before; 2 of these ran other code" in ablate("run", text=more)
    assert "mix versions of the code (class Edited), so differences may not be" in ablate("table")
    assert "to do: 2 trials" in ablate("plan", "--rerun-stale", text=more)
    assert "2 trained; 4 were done before;" in ablate("run", "--rerun-stale", text=more)
    assert "code" not in ablate("plan", text=more) + ablate("table", text=more)
    assert "to do: 0 trials" in ablate("plan", "--rerun-stale", text=more)
    assert sorted(len(layout.attempts(key)) for key in layout.trial_keys()) == [1] * 4 + [2] * 2
    fewer = edited.replace("range(2)", "range(1)")
    assert "4 finished trials of the campaign are not in this plan" in ablate("plan", text=fewer)


def test_a_trial_that_failed_by_an_error_is_tried_again_once_its_code_has_changed(ablate: Callable[..., str]) -> None:
    mended = SPEC.replace("range(2)", "range(5)")
    wrong = mended.replace("return 1.5 * a", 'raise ValueError("by mistake")')
    told = ablate("run", text=wrong, code=4)
    assert told.count("by mistake (edited.py:") == TOLD_FAILURES < 5
    assert "5 failed before" in ablate("run", text=wrong, code=4)
    assert "to do: 0 trials" in ablate("plan", text=wrong)
    assert "to do: 5 trials" in ablate("plan", text=mended)
    assert "5 trained; 5 were done before; results" in ablate("run", text=mended)


def test_a_trial_that_diverged_is_a_result_and_is_not_tried_again(ablate: Callable[..., str]) -> None:
    wrong = SPEC.replace("return 1.5 * a", "return a / 0")
    assert "2 failed" in ablate("run", text=wrong, code=4)
    assert "to do: 0 trials" in ablate("plan")


@pytest.fixture
def other_code(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From here on, trials run code of that name."""
    real = Codes.sources

    def become(name: str) -> None:
        monkeypatch.setattr(Codes, "sources", lambda self, trial: {**real(self, trial), "edit": name})

    return become


def counts(result: RunResult) -> tuple[int, ...]:
    return (result.done, result.failed, result.stopped, result.skipped, result.skipped_other_code)


def test_old_results_stay(tmp_path: Path, other_code: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no longer")

    grid = toy_grid(seeds=[0])
    run_quietly(tmp_path, grid)
    other_code("new")
    monkeypatch.setattr("toy_training.train", fail)
    assert counts(run_quietly(tmp_path, grid, again=True)) == (0, 2, 0, 0, 0)
    plan = plan_campaign(RunRequest(tmp_path), [grid])
    assert (plan.counts["done"], plan.counts["failed"], plan.other_code) == (2, 0, 2)


def test_a_trial_that_kills_its_worker_when_trained_again_has_failed_and_the_run_ends(tmp_path: Path) -> None:
    (tmp_path / "deaths").write_text("")
    grid = toy_grid(seeds=[0], fates=["dies"], deaths=str(tmp_path / "deaths"))
    root = tmp_path / "campaign"
    assert counts(run_quietly(root, grid)) == (2, 0, 0, 0, 0)
    (tmp_path / "deaths").write_text("x" * 40)
    for key in Layout(root).trial_keys():  # as if older code had made these results
        start = Layout(root).start(key, 1)
        start.write_text(json.dumps({**read_json(start), "sources": {"core": "old"}}))
    assert counts(run_quietly(root, grid, Local(1, start=warm_server), again=True)) == (0, 2, 0, 0, 0)
    assert {trial_state(Layout(root), key).state for key in Layout(root).trial_keys()} == {"done"}


def test_two_at_once_train_a_trial_again_once(tmp_path: Path, other_code: Callable[[str], None]) -> None:
    grid = toy_grid(seeds=[0])
    run_quietly(tmp_path, grid)
    other_code("new")
    inner: list[RunResult] = []

    class Twice(Inline.__mro__[1]):  # type: ignore[misc]  # a machine that runs the same command again meanwhile
        workers = 1

        def run(self, job: Any, rows: Any, overseer: Any) -> None:
            if not inner:
                inner.append(run_quietly(tmp_path, grid, again=True))
            Inline().run(job, rows, overseer)

    assert counts(run_quietly(tmp_path, grid, Twice(), again=True)) == (2, 0, 0, 0, 0)
    assert counts(inner[0]) == (2, 0, 0, 0, 0)
    assert all(Layout(tmp_path).attempts(key) == [1, 2] for key in Layout(tmp_path).trial_keys())
