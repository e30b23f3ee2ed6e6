"""Trained components that are on, off, or no more than a temperature, as a grid of the quickstart's task shows them."""

from pathlib import Path

import pytest

from ablate.grid import Grid, Measure, over
from ablate.grid.spec import Spec
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Local
from ablate.runners.execution.run import run_campaign
from ablate.runners.provenance.specfile import load_spec_file
from ablate.store import Store
from ablate.store.analysis.judge import JudgedGrid, conclude, judge
from ablate.variants import fox, integral, principled, softmax, ssa

OPERATORS = {
    "softmax": softmax(),
    "Principled from -5": principled(per="head"),
    "FoX": fox(),
    "SSA": ssa(),
    "Integral": integral(signals=4),
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> JudgedGrid:
    quickstart = load_spec_file(Path(__file__).parents[2] / "specs" / "quickstart.py")["quickstart"]
    assert isinstance(quickstart.base, Spec)
    grid = Grid(
        name="parts",
        base=quickstart.base,
        axes=[over("operator", list(OPERATORS.values()), labels=list(OPERATORS))],
        seeds=range(2),
        baseline={"operator": "softmax"},
        measure=Measure(name="loss", scale="linear", rope=0.03, unit="nats per token"),
    )
    root = tmp_path_factory.mktemp("parts") / "campaign"
    run_campaign(root, [grid], Local(2), RunRequest(root))
    with Store.open(root, conclude=conclude) as store:
        return judge(store, "parts")


@pytest.mark.parametrize(
    ("label", "answer", "words"),
    [
        ("FoX", "yes", "on"),
        ("SSA", "yes", "on, but no more than a temperature and a size"),
        ("Integral", "yes", "on, but no more than a temperature and a size"),
    ],
)
def test_a_component_that_was_on(judged: JudgedGrid, label: str, answer: str, words: str) -> None:
    cell = judged.rows.filter(label=label)["cell"].item()
    check = next(each for each in judged.checks[cell] if each.name == "on")
    assert (check.answer, check.word) == (answer, words)


def test_a_margin_that_starts_at_minus_five_was_off(judged: JudgedGrid) -> None:
    cell = judged.rows.filter(label="Principled from -5")["cell"].item()
    check = next(each for each in judged.checks[cell] if each.name == "on")
    assert "margin off" in check.reason
    assert check.answer != "no"  # the gate's projection and the ground state woke up


def test_every_row_has_all_checks(judged: JudgedGrid) -> None:
    assert all(
        [each.name for each in own] == ["on", "tuned", "finished", "noise", "control"] for own in judged.checks.values()
    )
