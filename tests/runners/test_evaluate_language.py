"""Finished language models judged later: stretched positions, and what goes wrong with one trial of several."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from ablate.grid.errors import EnvironmentProblem
from ablate.runners.cli.app import execute
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trust
from ablate.training.evaluations import Evaluation, Evaluator
from ablate.training.posthoc import evaluation_records
from ablate.training.tasks.task import Items, Measurements, Predict, Task
from tests.runners.test_evaluate import LATER, evaluate, rows

SPEC = """
from ablate.grid import Grid
from ablate import Execution, Grammar, LengthExtrapolation, Stretch, Training, Trial
from ablate.variants import Rotary, llama2, softmax
later = {later}
grid = Grid(
    name="small",
    base=Trial(
        task=Grammar(nouns=6, verbs=5, names=7, prepositions=3, topics=2, context=16, batch=2),
        model=llama2(layers=2, heads=2, width=16, feedforward_width=16).changed(positions=Rotary(base=50)),
        operator=softmax(),
        training=Training(steps=3),
        evaluations={use},
        execution=Execution(device="cpu", keep_weights=True),
    ),
    axes=[],
    seeds=range({seeds}),
)
"""
PLAIN = "LengthExtrapolation(lengths=(7, 40), count={count}, bucket=40, last=6)"
STRETCHED = PLAIN[:-1] + ", scaling=Stretch(factor=4, original=16, beta_fast=3))"
BOTH = f"({PLAIN}, {STRETCHED})".format(count=3)


def run(place: Path, *, use: str, seeds: int) -> Path:
    place.mkdir()
    (place / "spec.py").write_text(SPEC.format(later=BOTH, use=use, seeds=seeds))
    assert execute(["run", str(place / "spec.py"), "--campaign", str(place / "c"), "--on", "inline"]) == 0
    return place / "c"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("trained") / "p", use="()", seeds=3)


@pytest.fixture
def campaign(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(trained, tmp_path / "c")
    trust(Layout(tmp_path / "c"), "code")
    return tmp_path / "c"


def asking(path: Path, *written: str) -> Path:
    names = ", ".join(written).replace("{count}", "3")
    path.write_text(f"from ablate import LengthExtrapolation, Stretch\nevaluations = ({names},)\n")
    return path


def test_positions_are_stretched_for_the_evaluation_that_asks_for_it(campaign: Path, tmp_path: Path) -> None:
    """Its rows are those of a trial whose spec asks for it; the next evaluation finds positions as they were."""
    planned = run(tmp_path / "planned", use="later", seeds=1)
    assert evaluate(campaign, "seed=0", "--with", asking(tmp_path / "evaluator.py", STRETCHED, PLAIN)) == 0
    query = """
        SELECT e.name, e.point['factor'] AS factor, e.point['length'] AS length, e.value, e.items, e.se_items
        FROM v_evaluation e JOIN grid_trial g USING (trial)
        WHERE g.seed = 0 AND e.name LIKE 'length_extrapolation%' ORDER BY ALL
    """
    found = rows(campaign, query)
    assert len(found) == 12
    assert found == rows(planned, query)
    values = {row[:3]: row[3] for row in found}
    assert all(values[name, 1, 40] != values[name, 4, 40] for name, _, _ in values)


def test_one_wrong_folder_is_one_only(campaign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another process has the first, and in place of the second's folder there is a file."""
    first, second, third = found = [*Layout(campaign).trial_keys()]
    Layout(campaign).evaluations(second, 1).write_text("")
    with evaluation_records.lock_attempt(Layout(campaign), first, 1):
        asked = asking(tmp_path / "evaluator.py", PLAIN)
        assert evaluate(campaign, "grid=small", "--with", asked, "--json") == 4
    said = {each["trial"]: each for each in json.loads(capsys.readouterr().out)["data"]}
    assert {key: said[key]["outcome"] for key in found} == {first: "failed", second: "failed", third: "made"}
    assert "another process is evaluating" in said[first]["message"]
    assert str(Layout(campaign).evaluations(second, 1)) in said[second]["message"]


def test_what_all_trials_lack_ends_it(campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def full(*words: object) -> None:
        calls.append(words)
        raise EnvironmentProblem("no space")

    monkeypatch.setattr(evaluation_records, "write_atomic", full)
    assert evaluate(campaign, "grid=small", "--with", asking(tmp_path / "evaluator.py", PLAIN)) == 5
    assert len(calls) == 1


def test_a_record_that_cannot_be_read_keeps_its_shards(
    campaign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be mended, so another evaluation that is written, and made again, leaves them; its own are replaced."""
    key, *_ = Layout(campaign).trial_keys()
    place = Layout(campaign).evaluations(key, 1)
    assert evaluate(campaign, key, "--with", asking(tmp_path / "evaluator.py", PLAIN, PLAIN)) == 0
    assert "1 evaluation of 1 trial: 1 made" in capsys.readouterr().err
    (record,) = place.glob("*.json")
    whole, before, shards = record.read_bytes(), rows(campaign, LATER), set(place.glob("*.parquet"))
    assert before
    assert shards
    record.write_bytes(whole[:-9])
    other = asking(tmp_path / "other.py", STRETCHED)
    for again in ((), ("--again",)):
        assert evaluate(campaign, key, "--with", other, *again) == 0
        assert set(place.glob("*.parquet")) > shards
    record.write_bytes(whole)
    assert set(before) < set(rows(campaign, LATER))
    assert evaluate(campaign, key, "--with", other, "--again") == 0
    assert len(set(place.glob("*.parquet"))) == 2 * len(shards)


class Talks(Evaluation):
    """About a subject that only its evaluator knows, like the tasks of a folder."""

    kind: Literal["talks"] = "talks"
    about: str = "talk"
    at: int = 0
    loud: bool = False
    length: ClassVar = 1

    def open(self, task: Task) -> "TalksEvaluator":  # noqa: ARG002
        return TalksEvaluator(self)


class TalksEvaluator(Evaluator):
    asked = 0

    def __init__(self, spec: Talks) -> None:
        self.spec = spec

    @property
    def subjects(self) -> Mapping[str, Mapping[str, float]]:
        return {self.spec.about: {"at": self.spec.at}}

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:  # noqa: ARG002
        TalksEvaluator.asked += 1
        yield Measurements(f"{self.spec.about}.words", 1.0, {"at": self.spec.at}, 1, None)


def test_a_subject_that_was_spoken_of_at_its_point_is_refused_before_the_work(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    key, *_ = Layout(campaign).trial_keys()
    monkeypatch.setattr(TalksEvaluator, "asked", 0)
    file = asking(tmp_path / "evaluator.py", "")

    def evaluate_with(spec: Talks) -> int:
        monkeypatch.setattr("ablate.training.posthoc.evaluate.evaluations_of", lambda _: (spec,))
        return evaluate(campaign, key, "--with", file)

    assert evaluate_with(Talks()) == 0
    assert evaluate_with(Talks(loud=True)) == 2
    assert "has recorded talk.words" in capsys.readouterr().err
    assert TalksEvaluator.asked == 1
    assert [evaluate_with(each) for each in (Talks(at=1), Talks(about="talking"), Talks(about="tal"))] == [0, 0, 0]
    assert TalksEvaluator.asked == 4
