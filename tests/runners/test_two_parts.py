"""Grids whose runs learn or do not: what a plan refuses, and both parts below the table."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import MEASURE, SUBMISSION, write_campaign, write_shard

from ablate import AskedLengths, AssociativeRecall, Grid, LearningCriterion, Measure, RunRequest, Trial, over
from ablate.grid.errors import SpecError
from ablate.runners.cli.campaign_plan import plan_campaign
from ablate.store.files.atomic import write_json

AT = {"length": 12}


def grid(tiny: Trial, learned: LearningCriterion | None) -> Grid:
    task = AssociativeRecall(context=12, pairs=2, evaluation=AskedLengths(lengths=(12,), sequences=2))
    measure = Measure(name="validation_loss", point=AT)
    axes, base = [over("training.steps", [12, 13])], tiny.changed(task=task)
    return Grid("judged", base, axes, seeds=[0], baseline={"steps": 12}, measure=measure, learned=learned)


def test_learned_is_in_the_header_and_in_no_key(tiny: Trial) -> None:
    learned = LearningCriterion(name="accuracy", point=AT, limit=0.9, better="higher")
    plain, said = grid(tiny, None), grid(tiny, learned)
    assert [each.key for each in plain.trials()] == [each.key for each in said.trials()]
    assert said.header() == {**plain.header(), "learned": learned.data()}
    assert (said | grid(tiny, learned).changed(axes=[over("training.steps", [14])], baseline=None)).learned == learned
    with pytest.raises(SpecError):
        said | plain


@pytest.mark.parametrize(
    ("learned", "told"),
    [
        ({"name": "acuracy", "better": "higher"}, "'accuracy'"),
        ({"name": "accuracy", "better": "lower"}, 'better="higher"'),
        ({"name": "accuracy", "better": "higher", "point": {"length": 13}}, "length=12"),
        ({"name": "accuracy", "better": "higher", "limit": 90}, "90"),
        ({"name": "accuracy", "better": "higher", "limit": -0.1}, "-0.1"),
    ],
)
def test_a_limit_that_no_run_can_be_held_to_is_refused(
    tiny: Trial, tmp_path: Path, learned: dict[str, object], told: str
) -> None:
    wrong = grid(tiny, LearningCriterion.model_validate({"point": AT, "limit": 0.9, **learned}))
    with pytest.raises(SpecError) as raised:
        plan_campaign(RunRequest(tmp_path / "campaign"), [wrong])
    assert told in str(raised.value)
    assert not (tmp_path / "campaign").exists()


def test_both_parts_are_below_the_table_and_in_json(tmp_path: Path, ablate: Callable) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(8), sigma_f=(5,), sigma_x=(1,))
    late = {("SSA", seed) for seed in range(6)} | {("softmax", 7)}
    columns = {name: [] for name in ("trial", "attempt", "step", "name", "point", "value", "items", "se_items")}
    for line in campaign.lines:
        value = 0.1 if (line["label"], line["seed"]) in late else 0.95
        row = (line["trial"], 1, 60, "accuracy", MEASURE["point"], value, 400, 0.01)
        for of, each in zip(columns.values(), row, strict=True):
            of.append(each)
    write_shard(campaign.layout, "evaluation", columns, submission=SUBMISSION, worker=7, sequence=0)
    learned = {"name": "accuracy", "point": MEASURE["point"], "limit": 0.9, "better": "higher"}
    plain = json.loads(ablate("table", "--json", "--campaign", tmp_path).out)["data"]
    assert all("two_part" not in row for row in plain)
    write_json(campaign.layout.grid_header("quickstart"), {**campaign.header, "learned": learned})
    text = ablate("table", "--campaign", tmp_path).out
    assert "2 of 8" in text
    assert "7 of 8" in text
    report = tmp_path / "report.html"
    ablate("report", tmp_path, "--out", report)
    assert "2 of 8</td>" in report.read_text()
    (row,) = json.loads(ablate("table", "--json", "--campaign", tmp_path).out)["data"]
    found = row.pop("two_part")
    assert (plain[0]["noise"], row["noise"]) == ("yes", "no"), "the limit divides the runs of both cells"
    assert {**row, "noise": "yes", "doubt": plain[0]["doubt"]} == plain[0]
    assert (found["learned"], found["runs"], found["pairs"], found["verdict"]) == (2, 8, 1, "worse")
