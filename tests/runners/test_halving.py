"""Successive halving stops cells on the way, changes no number of the others, and claims nothing of what it stopped."""

import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from halved import GRID, HALVING, OPTIONS, SHORT, STEPS, HalvedTrial, Schedule, halve, halved_grid
from toy_campaign import tables

from grid import Grid, Measure, over
from grid.errors import SpecError, StoreError
from runners.cli import execute
from runners.commands.plan import plan_campaign
from runners.commands.plan_text import halving_line
from runners.machines import Inline
from runners.planning.halving import Halving, Rung, promoted, rungs, saved
from runners.runs import halving as runs_halving
from runners.runs.halving import run_by_halving
from runners.runs.run import RunOptions, RunResult, run_campaign
from runners.trial import Trial
from store.layout import Layout
from store.status import paused_at, trial_state
from store.store import Store
from store.verdicts import verdicts

TESTS = Path(__file__).resolve().parent.parent
CUT = [(label, seed) for label in ("a", "d", "e") for seed in (0, 1)]
Found = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What the whole grid comes to without halving."""
    root = tmp_path_factory.mktemp("whole")
    whole(root)
    return tables(root)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """The whole grid by halving, and what the run came to."""
    root = tmp_path_factory.mktemp("stopped")
    return root, halve(root)


KEPT = {"base", "b", "c"}


def whole(root: Path, grid: Grid = GRID) -> RunResult:
    return run_campaign(root, [grid], Inline(), OPTIONS)


def read(root: Path, query: str) -> list[tuple[Any, ...]]:
    with Store.open(root) as store:
        return store.sql(query).rows()


def of(found: Found, keys: set[str]) -> Found:
    """What `tables` says of some trials."""
    names = ("metric", "evaluation", "probe", "trial")
    return {name: [row for row in found[name] if row[0] in keys] for name in names}


def keys(grid: Grid, labels: set[str]) -> set[str]:
    return {planned.key for planned in grid.trials() if planned.label in labels}


# The rule ----------------------------------------------------------------------------------------------------------


def beats(a: Sequence[float | None], b: Sequence[float | None], measure: Measure) -> int:
    """1 where `a` is before `b` by the rule, -1 where it is after, 0 where they are equal; in exact arithmetic."""

    def sound(values: Sequence[float | None]) -> list[float]:
        known = [value for value in values if value is not None and not math.isnan(value) and not math.isinf(value)]
        return [value for value in known if measure.scale != "log" or value >= 0]

    mine, theirs = sound(a), sound(b)
    if len(mine) != len(theirs):
        return 1 if len(mine) > len(theirs) else -1
    if not mine:
        return 0
    if measure.scale == "log":  # a geometric mean is larger where the product is
        x, y = math.prod(map(Fraction, mine)), math.prod(map(Fraction, theirs))
    else:
        x, y = sum(map(Fraction, mine)), sum(map(Fraction, theirs))
    smaller = (x < y) - (x > y)
    return smaller if measure.better == "lower" else -smaller


@pytest.mark.parametrize("scale", ["log", "linear", "logit"])
@pytest.mark.parametrize("better", ["lower", "higher"])
def test_those_go_on_that_too_few_others_are_before(scale: Any, better: Any) -> None:
    draw = random.Random(f"{scale} {better}")
    measure = Measure(name="mse", scale=scale, better=better)
    choices = [None, math.nan, math.inf, -math.inf, 0.0, 0.25, 0.5, 1.0, 2.0, -1.0, 4.0]
    for _ in range(300):
        seeds, cells, eta = draw.randint(1, 3), draw.randint(1, 9), draw.randint(2, 5)
        values = {
            f"cell {i}": [draw.choice(choices) if draw.random() < 0.4 else draw.choice([0.25, 0.5, 1.0, 2.0])] * seeds
            for i in range(cells)
        }
        baseline = draw.choice([None, *values])
        others = [cell for cell in values if cell != baseline]
        before = {
            cell: sum(
                beats(values[other], values[cell], measure) > 0
                or (beats(values[other], values[cell], measure) == 0 and others.index(other) < others.index(cell))
                for other in others
            )
            for cell in others
        }
        expected = [cell for cell in values if cell == baseline or before[cell] * eta < len(others)]
        assert promoted(values, measure, Halving(eta), baseline) == expected, values


@pytest.mark.parametrize(
    ("every", "eta", "least", "cells", "expected"),
    [
        (2, 2, 3, 6, [(4, 6), (6, 4), (12, 3)]),
        (1, 2, 3, 6, [(3, 6), (6, 4), (12, 3)]),
        (1, 3, None, 10, [(2, 10), (6, 4), (12, 2)]),
        (5, 2, 1, 5, [(5, 5), (10, 3), (12, 2)]),
        (1, 2, 1, 3, [(1, 3), (12, 2)]),  # one beside the baseline is left: nobody to stop
        (1, 4, 10, 9, [(10, 9), (12, 3)]),
    ],
)
def test_rungs_are_where_all_are_judged(
    every: int, eta: int, least: int | None, cells: int, expected: list[tuple[int, int]]
) -> None:
    grid = halved_grid({f"cell {i}": (i, i) for i in range(cells)}, training=Schedule(evaluate_every=every))
    found = rungs(grid, Halving(eta, least))
    assert [tuple(rung) for rung in found] == expected


def test_a_plan_says_the_steps_that_are_saved(tmp_path: Path, stopped: tuple[Path, RunResult]) -> None:
    found = rungs(GRID, HALVING)
    layout = Layout(stopped[0])
    ends = [(trial_state(layout, key).attempts[-1].end or {}) for key in layout.trial_keys()]
    beyond = sum(end["status"] == "stopped" for end in ends)  # each trains a step past its rung
    trained = sum(end["step"] for end in ends) - beyond
    assert saved(found) == pytest.approx(1 - trained / (STEPS * len(ends)))
    assert saved([Rung(STEPS, 7)]) == 0
    line = halving_line(plan_campaign(tmp_path, [GRID]), found)
    assert "6 cells to step 4, 4 cells to step 6, 3 cells to the end (step 12); saves 31 %" in line


@pytest.mark.parametrize(
    ("change", "halving", "said"),
    [
        ({"training": Schedule(evaluate_every=None)}, (2, 3), "set training.evaluate_every, such as 1"),
        ({}, (2, 12), "a step between 12 and 12"),
        ({}, (2, 11), "a step between 11 and 12"),
    ],
)
def test_a_grid_that_cannot_be_halved_is_refused_before_anything_is_written(
    tmp_path: Path, change: dict[str, Any], halving: tuple[int, int], said: str
) -> None:
    grid = halved_grid({"base": (1, 1), "a": (2, 2), "b": (2, 3)}, **change)
    with pytest.raises(SpecError, match=said):
        halve(tmp_path, grid, Halving(*halving))
    assert list(tmp_path.iterdir()) == []


def test_cells_of_unequal_steps_or_without_a_measure_are_refused(tmp_path: Path) -> None:
    lengths = Grid(
        name="lengths", base=HalvedTrial(), axes=[over("training.steps", [12, 24])], measure=Measure(name="mse")
    )
    with pytest.raises(SpecError, match="equal steps; the cells of grid 'lengths' train for 12, 24 steps"):
        halve(tmp_path, lengths)
    blind = Grid(name="blind", base=HalvedTrial(), axes=[over("levels", [(1.0, 1.0), (2.0, 2.0)])])
    with pytest.raises(SpecError, match="grid 'blind' has none"):
        halve(tmp_path, blind)
    with pytest.raises(SpecError, match="leave out --again"):
        halve(tmp_path, again=True)
    with pytest.raises(SpecError, match="at least 2; got 1"):
        Halving(1)
    with pytest.raises(SpecError, match="at least 1; got 0"):
        Halving(2, 0)


SPEC = """
from grid import Grid, Measure, over
from halved import HalvedTrial
grid = Grid(
    name="spec", base=HalvedTrial(), axes=[over("levels", [(1.0, 1.0), (2.0, 2.0)])], measure=Measure(name="mse")
)
"""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--halving", "2", "--on", "slurm"], "works with --on local and inline"),
        (["--halving", "2", "--again"], "leave --again out"),
        (["--min-steps", "2"], "give both"),
        (["--halving", "1"], "N is at least 2; got 1"),
        (["--halving", "2", "--min-steps", "0"], "at least 1; got 0"),
        (["--halving", "2", "--min-steps", "12"], "a step between 12 and 12"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_flags_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, flags: list[str], said: str
) -> None:
    (tmp_path / "spec.py").write_text(SPEC)
    assert execute([command, str(tmp_path / "spec.py"), "--campaign", str(tmp_path / "campaign"), *flags]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "campaign").exists()


# What it does ------------------------------------------------------------------------------------------------------


def test_survivors_are_those_of_an_undisturbed_run_bit_for_bit(
    stopped: tuple[Path, RunResult], undisturbed: Found
) -> None:
    root, result = stopped
    kept = keys(GRID, KEPT)
    assert (result.ok, result.failed, result.stopped, result.truncated) == (6, 0, 0, 6)
    assert of(tables(root), kept) == of(undisturbed, kept)
    assert len(of(undisturbed, kept)["metric"]) == 6 * STEPS
    layout = Layout(root)
    assert all(len(layout.attempts(key)) == 3 for key in kept)  # they did pause, twice
    assert read(root, "SELECT label, seed, step FROM v_truncated ORDER BY ALL") == [
        (*cut, 7 if cut[0] == "a" else 5) for cut in CUT
    ]


def test_a_real_trial_survives_bit_for_bit(tmp_path: Path, tiny: Trial) -> None:
    training = tiny.training.changed(steps=12, evaluate_every=3)
    grid = Grid(
        name="real",
        base=tiny.changed(training=training),
        axes=[over("training.optimiser.lr", [1e-5, 1e-2, 1e-6], name="lr")],
        seeds=[0],
        baseline={"lr": 1e-5},
        measure=Measure(name="mse", point={"sigma_x": 1, "sigma_f": 3}),
    )
    options = RunOptions(land_every_s=None, progress=False)
    run_campaign(tmp_path / "whole", [grid], Inline(), options)
    result = run_by_halving(tmp_path / "halved", grid, Halving(2, 6), Inline(), options)
    assert (result.ok, result.truncated) == (2, 1)
    halved, undisturbed = tables(tmp_path / "halved"), tables(tmp_path / "whole")
    kept = {row[0] for row in halved["trial"] if row[2] == "ok"}
    assert of(halved, kept) == of(undisturbed, kept)
    assert of(halved, kept)["probe"]


def test_a_run_without_halving_finishes_what_was_truncated(
    tmp_path: Path, stopped: tuple[Path, RunResult], undisturbed: Found
) -> None:
    root = shutil.copytree(stopped[0], tmp_path / "c")
    layout = Layout(root)
    paused = {key: paused_at(trial_state(layout, key)) for key in keys(GRID, {"a", "d", "e"})}
    again = halve(root)
    assert (again.ok, again.skipped, again.truncated, again.submission) == (0, 6, 6, None)
    result = whole(root)
    assert (result.ok, result.skipped) == (6, 6)
    assert tables(root) == undisturbed
    assert read(root, "FROM v_truncated") == []
    for key, step in paused.items():
        assert trial_state(layout, key).attempts[-1].start["resumed_from"]["step"] == step


# What is claimed, and what befalls a run ---------------------------------------------------------------------------


def test_no_verdict_is_drawn_from_truncated_cells(tmp_path: Path) -> None:
    """Not even where three of their seeds were trained to the end before, which would do for one."""
    arms = {"base": (9.0, 9.0), "a": (1.0, 4.0), "b": (2.0, 3.0), "c": (8.0, 8.0)}
    whole(tmp_path, halved_grid(arms, seeds=3))
    with Store.open(tmp_path) as store:
        before = {row["label"]: row["verdict"] for row in verdicts(store, "halved").iter_rows(named=True)}
    assert set(before.values()) == {"better"}
    halve(tmp_path, halved_grid(arms, seeds=4))
    with Store.open(tmp_path) as store:
        after = {row["label"]: row for row in verdicts(store, "halved").iter_rows(named=True)}
        warned = store.warnings()
    assert {label: row["verdict"] for label, row in after.items()} == {
        "a": "no verdict", "b": "better", "c": "no verdict",
    }  # fmt: skip
    assert after["c"]["reason"].startswith("truncated at step 5 by halving; `ablate run SPEC` without --halving")
    assert after["c"]["pairs"] == 3
    assert {row["family"] for row in after.values()} == {3}  # those that were stopped still count
    assert len(warned) == 1
    assert "2 trials of 2 cells of halved stand where halving stopped them, at step 5, 7: no verdict" in warned[0]


def test_a_failed_trial_sets_its_cell_back_and_is_not_trained_on(tmp_path: Path) -> None:
    grid = halved_grid({"base": (9.0, 9.0), "a": (5.0, 5.0), "b": (4.0, 4.0)})
    broken = Grid(
        name="broken",
        base=HalvedTrial(),
        axes=[over("levels", [(9.0, 9.0), (5.0, 5.0)], name="arm"), over("breaks_at", [0, 3])],
        seeds=[0],
        measure=grid.measure,
    )
    result = halve(tmp_path, broken)
    assert (result.ok, result.failed, result.truncated) == (1, 2, 1)
    assert read(tmp_path, "SELECT DISTINCT label FROM v_final") == [("5.0, 5.0 · breaks_at=0",)]
    again = halve(tmp_path, broken)
    assert (again.ok, again.failed, again.skipped_failed) == (0, 0, 2)
    retried = halve(tmp_path, broken, retry=True)
    assert (retried.failed, retried.skipped_failed) == (2, 0)


def test_a_trial_that_was_stopped_beyond_a_rung_is_truncated_there_too(tmp_path: Path) -> None:
    """Otherwise it would count as one that is only late."""
    (one,) = keys(SHORT, {"e"})
    stop_at(8, lambda: run_campaign(tmp_path, [SHORT], Inline(), replace(OPTIONS, only=frozenset([one]))))
    assert (trial_state(Layout(tmp_path), one).attempts[-1].end or {})["step"] == 8
    assert halve(tmp_path, SHORT).truncated == 3
    assert read(tmp_path, "SELECT count(*), count(*) FILTER (WHERE step = 9) FROM v_truncated") == [(3, 1)]


def test_a_value_that_cannot_be_read_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_halving, "values_at", lambda *_: {})
    with pytest.raises(StoreError, match="no readable 'mse' at step 4"):
        halve(tmp_path, SHORT)


def test_a_run_that_ends_between_rungs_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Found
) -> None:
    def ends(*_: Any) -> list[str]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runs_halving, "promoted", ends)
        with pytest.raises(KeyboardInterrupt):
            halve(tmp_path, SHORT)
    _goes_on(tmp_path, undisturbed)


def test_a_signal_stops_behind_a_rung_and_the_same_run_goes_on(tmp_path: Path, undisturbed: Found) -> None:
    result = stop_at(33, lambda: halve(tmp_path, SHORT))
    assert result.interrupted
    assert result.stopped > 0
    _goes_on(tmp_path, undisturbed)


def stop_at(count: int, run: Callable[[], RunResult]) -> RunResult:
    """What `run` comes to when a signal asks for its end after so many steps."""
    steps: list[int] = []

    def stepped(run: Any, *_: Any) -> None:
        steps.append(1)
        if len(steps) == count:
            run._interrupts.requested = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runners.runs.run._Run.stepped", stepped)
        return run()


def test_a_killed_run_goes_on_from_any_rung(tmp_path: Path, undisturbed: Found) -> None:
    """Processes that are killed in the first rung, in the second, and on the way to the end, each going on."""
    done = subprocess.run(
        [sys.executable, "-m", "halved", str(tmp_path), "29", "9", "13"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[-9, -9, -9]", done.stderr
    _goes_on(tmp_path, undisturbed)


def _goes_on(place: Path, undisturbed: Found) -> None:
    result = halve(place, SHORT)
    assert (result.stopped, result.failed, result.ok + result.skipped, result.truncated) == (0, 0, 3, 3)
    kept = keys(SHORT, KEPT)
    assert of(tables(place), kept) == of(undisturbed, kept)
    assert read(place, "SELECT label, seed FROM v_truncated ORDER BY ALL") == [cut for cut in CUT if cut[1] == 0]
