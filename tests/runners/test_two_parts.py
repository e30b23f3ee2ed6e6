"""Grids whose runs learn or do not: what a plan refuses."""

from pathlib import Path

import pytest

from ablate import AskedLengths, AssociativeRecall, Grid, LearningCriterion, Measure, RunRequest, Trial, over
from ablate.grid.errors import SpecError
from ablate.runners.cli.campaign_plan import plan_campaign

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
