"""A plan says what a run would do and which differences its seeds can tell apart, and does nothing."""

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_campaign import run_quietly, toy_grid
from toy_training import ToyTrial, train

from ablate.grid import Grid, Measure, Spec, forbid, over
from ablate.grid.errors import NotFoundError, SpecError
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.cli.campaign_plan import PlanOptions, RunPlan, plan_campaign, plan_data, plan_lines
from ablate.runners.planning.duration import MEASURED_STEPS, measure_seconds
from ablate.runners.planning.power import Noise, Resolution, _resolution, noise_among, resolution_lines, resolutions
from ablate.runners.processes.training_context import TrainingContext, TrainingResult
from ablate.store.files.layout import Layout
from ablate.store.ingest.ingest import ingest
from ablate.store.statistics.paired_differences import summarise
from ablate.store.statistics.two_part import Learners, boschloo_p
from ablate.store.statistics.verdict import decide
from ablate.store.store import Store


def files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())


def counts(plan: RunPlan) -> tuple[int, ...]:
    return (*(plan.counts[state] for state in ("done", "failed", "running", "pending")), plan.to_do)


def test_a_plan_knows_what_is_done_and_what_failed(tmp_path: Path) -> None:
    run_quietly(tmp_path, toy_grid(seeds=[0], fates=["ok", "raises"]))
    before = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    grid = toy_grid(fates=["ok", "raises"])
    plan = plan_campaign(RunRequest(tmp_path), [grid])
    assert counts(plan) == (2, 2, 0, 8, 8)
    said = "\n".join(plan_lines(plan))
    assert "2 done, 2 failed, 8 pending" in said
    assert counts(plan_campaign(RunRequest(tmp_path, retry=True), [grid])) == (2, 2, 0, 8, 10)
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == before


def test_a_plan_counts_what_rules_left_out_and_shared_trials_once(tmp_path: Path) -> None:
    whole = toy_grid("whole")
    rule = forbid(lambda trial: trial.operator.kind == "rising", reason="rising numbers are forbidden")
    part = type(whole)(name="part", base=whole.base, axes=whole.axes, rules=[rule], seeds=whole.seeds)
    plan = plan_campaign(RunRequest(tmp_path), [whole, part])
    found = [(header["grid"], header["cells"], header["trials"]) for header in plan.grids]
    assert found == [("whole", 2, 6), ("part", 1, 3)]
    assert plan.grids[1]["rules"] == [{"reason": "rising numbers are forbidden", "count": 1}]
    assert len(plan.trials) == plan.to_do == 6


def test_a_plan_lists_axes_and_the_first_ten_cells_in_the_order_of_the_spec(tmp_path: Path) -> None:
    rates = [0.5**number for number in range(12)]
    grid = Grid("many", ToyTrial(), [over("operator.rate", rates, name="rate")], seeds=[3, 4])
    lines = lines_of(tmp_path, grid)
    every = [*plan_lines(plan_campaign(RunRequest(tmp_path), [grid]), every_cell=True)]
    assert sum(trial.key[:11] in line for line in every for trial in grid.cells()) == 12
    (axis,) = [line for line in lines if line.startswith("  axis ")]
    assert axis.startswith("  axis rate: 1.0, 0.5, 0.25, ")
    assert axis.endswith(", ... (12 values)")
    listed = [line.split() for line in lines if line.startswith("    rate=")]
    planned = [each for each in grid.enumerate() if each.seed == 3]
    assert listed == [[each.label, each.key[:11]] for each in planned[:10]]
    cells = plan_data(plan_campaign(RunRequest(tmp_path), [grid]))["cells"]
    assert [each["key"] for each in cells] == [each.key for each in planned]


def test_a_plan_writes_nothing_and_without_anything_to_go_by_the_time_is_unknown(tmp_path: Path) -> None:
    plan = plan_campaign(RunRequest(tmp_path / "campaign"), [toy_grid()])
    assert counts(plan) == (0, 0, 0, 6, 6)
    assert list(tmp_path.iterdir()) == []
    assert plan.estimate.trial_s is plan.estimate.hours is plan.estimate.wall_s is None
    assert plan.estimate.basis.startswith("unknown")
    with pytest.raises(SpecError, match=r"two grids .* 'toy'"):
        plan_campaign(RunRequest(tmp_path), [toy_grid(), toy_grid()])


def test_each_operator_is_measured_and_counted_once_and_shared_by_the_workers(tmp_path: Path) -> None:
    measured: list[str] = []

    def seconds(trial: Spec) -> float:
        measured.append(trial.operator.label)
        return 10.0 if trial.operator.label == "falling" else 30.0

    plan = plan_campaign(RunRequest(tmp_path), [toy_grid()], PlanOptions(workers=2, seconds=seconds, parameters=True))
    assert plan.estimate.trial_s == 3 * 10 + 3 * 30
    assert plan.estimate.wall_s == 30 + 30
    assert sorted(measured) == ["falling", "rising"]
    assert [(each.parameters, each.operator_parameters) for each in plan.cells] == [(21, 1), (21, 2)]


def test_measuring_stops_after_a_few_steps_and_scales_to_all() -> None:
    steps: list[int] = []

    def slow(trial: Spec, context: TrainingContext) -> TrainingResult:
        result = train(trial.changed(execution=trial.execution.changed(step_s=0.001)), context)
        steps.append(result.step)
        return result

    found = measure_seconds(ToyTrial(steps=100_000, fate_at=200_000), slow)
    assert found >= 100_000 * 0.001
    assert steps == [1 + MEASURED_STEPS]
    assert measure_seconds(ToyTrial(steps=1), train) is None  # too few


def test_a_plan_says_which_operator_could_not_be_timed_and_why(tmp_path: Path) -> None:
    def seconds(trial: Spec) -> float | None:
        if trial.seed:
            raise RuntimeError("shapes differ\n  [3]\n  [4]")
        if trial.operator.label == "falling":
            return measure_seconds(trial.changed(fate="raises", fate_at=1), train)
        return 5.0

    plan = plan_campaign(RunRequest(tmp_path), [toy_grid(seeds=[0])], PlanOptions(seconds=seconds))
    (problem,) = plan.estimate.problems
    assert problem.startswith("falling: ValueError: seed 0 met its fate (toy_training.py:")
    assert plan.estimate.broken
    assert (plan.estimate.trial_s, plan.estimate.unknown) == (5.0, 1)
    assert "1 trial of unknown duration" in plan.estimate.basis
    assert f"  could not be measured: {problem}" in plan_lines(plan)
    plan = plan_campaign(RunRequest(tmp_path), [toy_grid(seeds=[1])], PlanOptions(seconds=seconds))
    (problem,) = plan.estimate.problems
    assert problem.startswith("falling, rising: RuntimeError: shapes differ (test_plan.py:")


OWN = """
from typing import Literal
from ablate import Experiment, Grid, Run

class Own(Experiment):
    kind: Literal["tests_calibrated"] = "tests_calibrated"
    def train(self, run: Run) -> None:
        run.log(loss=self.widht)

grid = Grid(name="own", base=Own(), seeds=range(2))
"""


def test_a_bug_in_the_steps_that_are_measured_is_one_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    assert "(own.py:8)" in ablate("plan", "own.py", "--calibrate", code=2).out
    ablate("plan", "own.py")


def judged_grid(cells: int = 5, seeds: int = 4, **changes: Any) -> Grid:
    measure = Measure(name="mse", point={"sigma": 1.0}, **changes)
    rates = [0.5 + 0.4 * at / cells for at in range(cells)]
    return Grid(
        name="judged",
        base=ToyTrial(),
        axes=[over("operator.rate", rates, name="rate")],
        seeds=range(seeds),
        baseline={"rate": rates[0]},
        measure=measure,
    )


def resolution(root: Path, grid: Grid) -> Resolution:
    (found,) = resolutions(Layout(root), [grid])
    return found


@pytest.mark.parametrize(("comparisons", "seeds", "in_sd"), [(1, 3, 3.3), (1, 10, 1.0), (191, 5, 6.7)])
def test_it_is_what_the_documentation_says(tmp_path: Path, comparisons: int, seeds: int, in_sd: float) -> None:
    found = resolution(tmp_path, judged_grid(comparisons + 1, seeds))
    assert found.comparisons == comparisons
    assert found.in_sd == pytest.approx(in_sd, abs=0.05)


@pytest.mark.parametrize(
    ("comparisons", "seeds", "share", "fewest"),
    [(1, 3, None, 4), (1, 4, 4, 4), (12, 5, 5, 5), (13, 5, None, 6), (5, 12, 7, 5), (1, 40, None, 4)],
)
def test_a_plan_knows_which_shares_of_runs_that_learn_differ(
    tmp_path: Path, comparisons: int, seeds: int, share: int | None, fewest: int
) -> None:
    found = resolution(tmp_path, judged_grid(comparisons + 1, seeds))
    assert (found.share, found.seeds_for_share) == (share, fewest)
    level = 0.05 / comparisons / 2
    assert (
        boschloo_p(Learners(fewest, fewest, 0, fewest))
        <= level
        < boschloo_p(Learners(fewest - 1, fewest - 1, 0, fewest - 1))
    )
    if share is not None:
        assert boschloo_p(Learners(share, seeds, 0, seeds)) <= level
    unseen = f"{100 * (1 - 0.05 ** (1 / seeds)):.0f} % of a cell"
    assert any(unseen in line for line in resolution_lines(found)) is (seeds < 29)


@pytest.mark.parametrize(
    ("comparisons", "seeds", "variance", "advised"),
    [(5, 3, "own", True), (5, 5, "own", True), (4, 5, "own", False), (5, 6, "own", False), (5, 3, "shared", False)],
)
def test_a_shared_variance_is_advised_where_it_helps(
    tmp_path: Path, comparisons: int, seeds: int, variance: str, advised: bool
) -> None:
    found = resolution(tmp_path, judged_grid(comparisons + 1, seeds).changed(variance=variance))
    assert any("Grid(" in line for line in resolution_lines(found)) is advised
    seen = found._replace(noise=found.noise._replace(pairs=9))
    assert not any("Grid(" in line for line in resolution_lines(seen))


def line_of(plan: RunPlan, words: str = " find ") -> str:
    (line,) = [line for line in plan_lines(plan) if words in line]
    return line


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_finished_pairs_give_the_spread_and_a_plan_writes_nothing_for_it(tmp_path: Path, scale: str) -> None:
    grid = judged_grid(seeds=6, scale=scale)
    run_quietly(tmp_path, judged_grid(seeds=4, scale=scale))
    ingest(tmp_path, threads=1)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    plan = plan_campaign(RunRequest(tmp_path), [grid])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    with Store.open(tmp_path, refresh=False) as store:
        rows = store.final("judged", "mse", {"sigma": 1.0}).select("label", "seed", "value").rows()
    values = {(label, seed): math.log(value) if scale == "log" else value for label, seed, value in rows}
    base, *labels = sorted({label for label, _ in values}, key=lambda label: float(label.rpartition("=")[2]))
    each = [[values[label, seed] - values[base, seed] for seed in range(4)] for label in labels]
    expected = math.sqrt(statistics.mean(statistics.variance(found) for found in each))
    (found,) = plan.resolutions
    assert found.noise.pairs == 16
    assert found.noise.sd == pytest.approx(expected)
    data = plan_data(plan)["resolutions"][0]
    assert data["detectable"] == pytest.approx(expected * data["in_sd"])
    line = line_of(plan)
    assert "over 16 pairs" in line
    assert ("%" in line.partition(" (power")[0]) == (scale == "log")


def test_a_grid_takes_noise_and_hours_of_one_with_its_baseline(tmp_path: Path) -> None:
    run_quietly(tmp_path, judged_grid(seeds=3))
    ingest(tmp_path, threads=1)
    (found,) = plan_campaign(RunRequest(tmp_path), [judged_grid(seeds=3).named("other")]).resolutions
    assert found.noise == resolution(tmp_path, judged_grid(seeds=3)).noise._replace(source="grid judged")
    stranger = Grid("strange", ToyTrial(), [over("operator.rate", [0.01, 0.02], name="rate")], seeds=range(3),
                    baseline={"rate": 0.01}, measure=judged_grid().measure)  # fmt: skip
    assert resolution(tmp_path, stranger).noise == Noise()
    with Store.open(tmp_path, refresh=False) as store:
        walls = store.sql("SELECT cell, mean(wall_s) AS s FROM trial GROUP BY cell")["s"]
    assert (found.hours, found.unit) == (pytest.approx(walls.sum() / 3600), "CPU-h")


def test_two_seeds_tell_nothing_and_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    plan = plan_campaign(RunRequest(tmp_path), [judged_grid(seeds=2)])
    assert plan.resolutions[0].in_sd is None
    alone = Grid(name="alone", base=ToyTrial(), axes=[over("steps", [1, 2])], seeds=[0])
    plan = plan_campaign(RunRequest(tmp_path), [alone])
    assert plan.resolutions == ()


def test_pairs_that_are_all_equal_have_no_spread_and_a_plan_says_so(tmp_path: Path) -> None:
    """Seeds that change nothing are a defect to find, not a lack of pairs."""
    base = math.log(3.0)
    values = {
        cell: {seed: math.exp(base * (1 + seed) + 0.1 * at) for seed in range(4)} for at, cell in enumerate("abc")
    }
    rows = [(cell, seed, value) for cell, found in values.items() for seed, value in found.items()]
    assert noise_among(rows, "a", "log")[:2] == (0.0, 8)
    few = noise_among([row for row in rows if row[1] < 2], "a", "log")
    assert (few.sd, few.pairs) == (None, 4)
    plan = plan_campaign(RunRequest(tmp_path), [judged_grid()])
    found = plan.resolutions[0]
    line = next(iter(resolution_lines(found._replace(noise=found.noise._replace(sd=0.0, pairs=8, basis="pairs")))))
    assert "SD of a pair 0: the 8 pairs" in line
    assert "unknown" not in line


def lines_of(root: Path, grid: Grid, **options: Any) -> list[str]:
    return list(plan_lines(plan_campaign(RunRequest(root), [grid], PlanOptions(**options))))


def test_baseline_seeds_alone_give_a_noise_that_counts_seeds_as_unrelated() -> None:
    values = [0.3, 0.5, 0.35, 0.8]
    rows = [*(("base", seed, value) for seed, value in enumerate(values)), ("cell", 0, 0.4), ("cell", 1, None)]
    found = noise_among(rows, "base", "log")
    assert (found.basis, found.seeds, found.pairs) == ("baseline", 4, 0)
    assert found.seed_sd == pytest.approx(statistics.stdev(map(math.log, values)))
    assert found.sd == pytest.approx(math.sqrt(2) * found.seed_sd)
    assert noise_among(rows[:2], "base", "log").sd is None
    apart = [*rows, *(("high", seed, 100 * value) for _, seed, value in rows[:4])]
    several = noise_among(apart, {"a": "base", "b": "high"}, "log")  # a level of each baseline is no noise
    assert (several.seed_sd, several.seeds) == (pytest.approx(found.seed_sd), 2 * found.seeds)
    logit = noise_among(rows, "base", "logit")
    assert logit.seed_sd == pytest.approx(statistics.stdev(math.log(v / (1 - v)) for v in values))
    assert noise_among([("base", 0, 1.0), ("base", 1, 0.0), ("base", 2, 0.5)], "base", "logit").seeds == 1


def test_a_plan_takes_the_noise_of_a_campaign_that_is_named(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    run_quietly(there, judged_grid(seeds=4))
    ingest(there, threads=1)
    named = judged_grid(seeds=6).named("new")
    (found,) = plan_campaign(RunRequest(here), [named], PlanOptions(noise_from=Layout(there))).resolutions
    known = resolution(there, judged_grid(seeds=6))
    assert found.noise == known.noise._replace(source=f"grid judged of {there}")
    assert found.noise.pairs == 16
    assert found.hours is None  # trials of another campaign have no cost here
    with pytest.raises(NotFoundError, match="has no results; `ablate status` there reads them"):
        lines_of(here, named, noise_from=Layout(tmp_path / "nothing"))


def test_power_at_what_counts_as_equal_is_that_of_the_simulated_verdicts(tmp_path: Path) -> None:
    import numpy as np

    found = resolution(tmp_path, judged_grid(2, 6, rope=0.1))
    known = _resolution(judged_grid(2, 6, rope=0.1).header(), 1, Noise(0.08, 20, 0.07, 5, "pairs"))
    assert (found.power_at_rope, found.seeds_for_rope) == (None, None)
    assert known.rope == pytest.approx(math.log(1.1))
    differences = np.random.default_rng(0).normal(known.rope, 0.08, size=(4000, 1, 6))
    claimed = (decide(summarise(differences), rope=0.0, alpha=0.05, better="lower").p <= 0.05).mean()
    assert known.power_at_rope == pytest.approx(claimed, abs=4 * math.sqrt(0.25 / 4000))
    assert known.seeds_for_rope > 6
