"""`Grid(longer=2)`: once all trials have ended, a run adds the baseline and the best variant, trained twice as long."""

import json
from pathlib import Path

import pytest

from ablate import (
    AdamW,
    Cosine,
    Grid,
    LinearFunctions,
    Measure,
    RunRequest,
    ShiftGrid,
    Training,
    Trial,
    gpt2,
    over,
    run_campaign,
    softmax,
    ssa,
    ssmax,
)
from ablate.runners.execution import Inline
from ablate.runners.planning.longer import choose_longer
from ablate.store.analysis.explain_verdict import why
from ablate.store.analysis.finished_check import finished_checks
from ablate.store.analysis.verdicts import verdicts
from ablate.store.files.layout import Layout
from ablate.store.store import Store

BASE = Trial(
    task=LinearFunctions(
        points=4, batch=4, evaluation=ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=4, sequences=4, points=4)
    ),
    model=gpt2(layers=1, heads=2, width=8, max_positions=16),
    operator=softmax(),
    training=Training(steps=8, optimiser=AdamW(lr=1e-2), schedule=Cosine(warmup=2), evaluate_every=4),
)
MEASURE = Measure(name="mse", point={"sigma_x": 1, "sigma_f": 1}, rope=0.1)


def grid(*axes, **how):
    fixed = {"seeds": range(3), "baseline": {"operator": "softmax"}, "measure": MEASURE, "longer": 2}
    return Grid("g", BASE, [over("operator", [softmax(), ssa(), ssmax()]), *axes], **{**fixed, **how})


def header(root):
    return json.loads(Layout(root).grid_header("g").read_bytes())


def train(root, made, **how):
    return run_campaign(root, [made], Inline(), RunRequest(progress=False, **how))


def test_a_trial_that_is_longer_keeps_the_shape_of_its_schedule() -> None:
    longer = BASE.longer(2)
    assert (longer.training.steps, longer.training.schedule.warmup, longer.training.evaluate_every) == (16, 4, 8)
    assert longer.changed(training=BASE.training) == BASE


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A campaign after three runs of one grid, with what each trained and the header after it."""
    root = tmp_path_factory.mktemp("longer")
    runs = [(train(root, grid()).done, header(root)) for _ in range(3)]
    return root, runs


def test_the_second_run_adds_the_best_variant_and_its_baseline(trained) -> None:
    root, runs = trained
    assert [done for done, _ in runs] == [9, 6, 0]
    assert runs[0][1]["longer"]["of"] == {}
    with Store.open(root) as store:
        best = verdicts(store, "g").sort("difference").row(0, named=True)
        assert set(runs[1][1]["longer"]["of"]) == {best["cell"], best["baseline"]}
        steps = store.sql(
            "SELECT DISTINCT longer, (spec->>'$.training.steps')::INT AS steps FROM grid_trial "
            "JOIN trial USING (trial) WHERE longer IS NOT NULL ORDER BY ALL"
        ).rows()
    assert steps == sorted((cell, 16) for cell in (best["cell"], best["baseline"]))


def test_they_are_in_no_family_and_answer_for_the_best_variant_alone(trained) -> None:
    root, runs = trained
    added = set(runs[1][1]["longer"]["added"])
    assert len(added) == 2
    with Store.open(root) as store:
        rows, found = verdicts(store, "g"), finished_checks(store, "g")
        assert added.isdisjoint(rows["cell"])
        assert set(rows["family"]) == {2}
        best = rows.sort("difference")["cell"].to_list()
        assert found[best[0]].answer in ("yes", "no")
        assert found[best[1]].answer in ("no", "unknown")
        for cell in added:
            with pytest.raises(Exception, match="longer"):
                why(store, "g", cell)


def test_what_was_chosen_stays(trained) -> None:
    """Whatever later results say: here all values of the variant that was chosen are as if it were the worst."""
    root, runs = trained
    assert runs[2][1]["longer"] == runs[1][1]["longer"]
    more = choose_longer(Layout(root), grid(seeds=range(5), measure=MEASURE.changed(better="higher")))
    assert set(more.chosen) == set(runs[1][1]["longer"]["of"])
    assert len(list(more.trials())) == 5 * 5


def test_while_trials_are_outstanding_nothing_is_chosen(tmp_path: Path) -> None:
    train(tmp_path, grid(), seeds=(0, 1))
    assert choose_longer(Layout(tmp_path), grid()).chosen == ()
    assert train(tmp_path, grid()).done == 3
    assert len(choose_longer(Layout(tmp_path), grid()).chosen) == 2


def test_the_best_level_of_a_nuisance_axis_is_trained_longer(tmp_path: Path) -> None:
    rates = over("training.optimiser.lr", [1e-3, 1e-2, 1e-1], tune=True)
    train(tmp_path, grid(rates))
    with Store.open(tmp_path) as store:
        best = verdicts(store, "g").sort("difference").row(0, named=True)
    assert choose_longer(Layout(tmp_path), grid(rates)).chosen == (best["baseline"], best["cell"])


SPEC = f"""
from ablate import *

grid = Grid(
    "g",
    Trial(
        task=LinearFunctions(
            points=4, batch=4, evaluation=ShiftGrid(sigma_x=(1,), sigma_f=(1,), functions=4, sequences=4, points=4)
        ),
        model=gpt2(layers=1, heads=2, width=8, max_positions=16),
        operator=softmax(),
        training=Training(steps=8),
    ),
    [over("operator", [softmax(), ssa()])],
    seeds=range(3),
    baseline={{"operator": "softmax"}},
    measure=Measure(name="mse", point={dict(MEASURE.point)}),
    longer=2,
)
"""


def test_the_commands_add_it_without_taking_anything_out(tmp_path: Path, ablate) -> None:
    spec, root = tmp_path / "spec.py", tmp_path / "runs"
    spec.write_text(SPEC)
    counts = [[2, 6], [4, 12], [4, 12]]
    for cells, trials in counts:
        plan = json.loads(ablate("plan", spec, "--campaign", root, "--json").out)["data"]
        assert [plan["grids"][0]["cells"], plan["grids"][0]["trials"]] == [cells, trials]
        ablate("run", spec, "--campaign", root, "--on", "inline")
        assert header(root)["cells"] == cells
    ablate("table", "--campaign", root)
    for words in ("SSA", "SS"):  # the beginning of both labels
        assert json.loads(ablate("table", "--why", words, "--campaign", root, "--json").out)["data"]["label"] == "SSA"
    ablate("table", "--why", "SSA, 2 times as long", "--campaign", root, code=2)
