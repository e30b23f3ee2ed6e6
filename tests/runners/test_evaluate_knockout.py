"""Knock-outs of finished trials: the rows that training would have written, once, for any measure of the trial."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from small_grammar import TRIAL

from ablate import Grid, Measure, RunRequest, over, run_campaign
from ablate.runners.cli.app import execute
from ablate.runners.execution import Inline
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trust
from ablate.store.store import Store
from ablate.training.trial import Trial
from ablate.variants import LogCount, Number, Operator, gated_heads, softmax

MEASURE = Measure(name="validation_loss", scale="linear", rope=0.03)


def margin(per: Any) -> Operator:
    return Operator(margin=LogCount(amplification=Number(init=0.0, per=per)))


def make_grid(measure: Measure | None = MEASURE, *, keep: bool = True) -> Grid:
    operators = {"softmax": softmax(), "layer": margin("layer"), "head": margin("head")}
    base = TRIAL.changed(execution={"keep_weights": keep})
    axes = [over("operator", list(operators.values()), labels=list(operators))]
    baseline = {"operator": "softmax"} if measure else None
    return Grid(name="g", base=base, axes=axes, seeds=[0], baseline=baseline, measure=measure)


def train(root: Path, grid: Grid) -> Path:
    assert run_campaign(root, [grid], Inline(), RunRequest(progress=False)).done == 3
    trust(Layout(root), "code")
    return root


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("planned"), make_grid())


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign as of an earlier release, whose trials were trained without knock-outs."""
    root, patched = tmp_path_factory.mktemp("old"), pytest.MonkeyPatch()
    with patched.context() as context:
        context.setattr("ablate.runners.planning.worklist.plan_knockouts", lambda *_: {})
        return train(root, make_grid())


@pytest.fixture
def campaign(old: Path, tmp_path: Path) -> Path:
    shutil.copytree(old, tmp_path / "c")
    trust(Layout(tmp_path / "c"), "code")
    return tmp_path / "c"


def knocked(campaign: Path, condition: str = "true") -> list[tuple[Any, ...]]:
    query = f"""SELECT trial, step, name, CAST(point AS VARCHAR), value, items, se_items FROM v_evaluation
                WHERE starts_with(name, 'knockout.') AND {condition} ORDER BY ALL"""
    with Store.open(campaign) as store:
        assert store.bad_shards().is_empty()
        return store.sql(query).rows()


def evaluate(campaign: Path, *words: str) -> int:
    return execute(["evaluate", *words, "--campaign", str(campaign)])


def test_the_rows_are_those_of_a_new_run(campaign: Path, planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert knocked(campaign) == []
    assert evaluate(campaign, "grid=g", "--knockout") == 0
    assert knocked(campaign) == knocked(campaign, "later IS NOT NULL") == knocked(planned)
    assert {row[2].split(".")[1] for row in knocked(planned)} == {
        *("none", "margin", "all", "uniform", "mean-margin-layer", "refit")
    }
    before = knocked(campaign)
    capsys.readouterr()
    assert evaluate(campaign, "grid=g", "--knockout", "--json") == 0
    assert [each["outcome"] for each in json.loads(capsys.readouterr().out)["data"]] == ["there"] * 3
    assert evaluate(campaign, "grid=g", "--knockout", "--again") == 0
    assert knocked(campaign) == before


def test_what_training_measured_is_not_measured_again(planned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = knocked(planned)
    assert evaluate(planned, "grid=g", "--knockout", "--json") == 0
    assert [each["outcome"] for each in json.loads(capsys.readouterr().out)["data"]] == ["own"] * 3
    assert knocked(planned) == before


def test_a_refit_of_each_component_is_made_on_request_only(tmp_path: Path) -> None:
    two = margin("layer").changed(output_gate=gated_heads().output_gate)
    axis = over("operator", [softmax(), margin("layer"), two], labels=["softmax", "margin", "two"])
    grid = make_grid().changed(axes=[axis])
    campaign = train(tmp_path, grid)
    before = knocked(campaign)
    assert evaluate(campaign, "grid=g", "--refit-each") == 2
    assert evaluate(campaign, "grid=g", "--knockout", "--refit-each") == 0
    added = [row for row in knocked(campaign) if row not in before]
    assert sorted(row[2].split(".")[1] for row in added) == ["refit-margin", "refit-output_gate"]
    assert len(knocked(campaign)) == len(before) + 2
    assert all(row[6] >= 0 and row[5] == 24 for row in added)
    assert evaluate(campaign, "grid=g", "--knockout", "--refit-each", "--again") == 0
    assert [row for row in knocked(campaign) if row not in before] == added


def test_another_measure(campaign: Path) -> None:
    assert evaluate(campaign, "grid=g", "label=head", "--knockout", "--measure", "loss") == 0
    (trial,) = {row[0] for row in knocked(campaign)}
    with Store.open(campaign) as store:
        spec = json.loads(store.sql("SELECT spec FROM trial WHERE trial = $t", {"t": trial})["spec"][0])
    assert Trial.model_validate(spec).operators()[0] == margin("head")
    assert {row[2].split(".", 2)[2] for row in knocked(campaign)} == {"loss"}
    assert {row[5] for row in knocked(campaign)} == {32}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--knockout", "--measure", "validation_los"), 3),
        (("--measure", "loss"), 2),
        (("--knockout", "--measure", "grad_norm"), 2),
    ],
)
def test_a_measure_that_cannot_be_taken_is_one_sentence(campaign: Path, words: tuple[str, ...], code: int) -> None:
    assert evaluate(campaign, "grid=g", "label=head", *words) == code
    assert knocked(campaign) == []


def test_without_weights_or_a_measure_nothing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = train(tmp_path / "bare", make_grid(keep=False))
    assert evaluate(bare, "grid=g", "label=head", "--knockout") == 3
    unjudged = train(tmp_path / "unjudged", make_grid(None))
    assert evaluate(unjudged, "grid=g", "label=head", "--knockout") == 2
    capsys.readouterr()
    assert evaluate(unjudged, "grid=g", "--knockout", "--json") == 4
    assert [each["outcome"] for each in json.loads(capsys.readouterr().out)["data"]] == ["failed"] * 3
    assert evaluate(unjudged, "grid=g", "label=head", "--knockout", "--measure", "validation_loss") == 0
    assert {row[2] for row in knocked(unjudged)} >= {"knockout.mean-margin-layer.validation_loss"}
