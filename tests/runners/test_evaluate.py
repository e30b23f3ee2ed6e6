"""Finished trials judged later: the rows of a spec that asks for them, once, whatever is killed or damaged."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from own_experiment import line_grid
from real_spec import real_spec

from ablate.grid.errors import NotFoundError
from ablate.runners.checkpoint import load_checkpoint, save_checkpoint
from ablate.runners.cli.app import execute
from ablate.runners.execution.repro import values_of
from ablate.runners.execution.run import run_campaign
from ablate.store.files.atomic import read_json
from ablate.store.files.layout import Layout
from ablate.store.files.trust import trust
from ablate.store.ingest.ingest import ingest
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store
from ablate.training.evaluations import Evaluation, Evaluator
from ablate.training.posthoc import evaluation_records
from ablate.training.tasks.task import Items, Measurements, Predict, Task

DEVIANT = "DeviantInputs(sigma=(1.0, 10.0), functions={n}, sequences=2, points=5, prompts=())"
ROWS = "SELECT name, CAST(point AS VARCHAR) AS point, value, items, se_items FROM v_evaluation"


def run(place: Path, *, use: bool = False) -> Path:
    """Train, with DEVIANT among the evaluations of the spec where it is in `use`."""
    place.mkdir()
    change = f"grid = replace(grid, base=grid.base.changed(evaluations=({DEVIANT.format(n=3)},)))" if use else ""
    imports = "from dataclasses import replace\nfrom ablate import DeviantInputs"
    text = real_spec("small", training="steps=3", execution="keep_weights=True", seeds=2, before=imports, after=change)
    (place / "spec.py").write_text(text)
    campaign = place / "c"
    assert execute(["run", str(place / "spec.py"), "--campaign", str(campaign), "--on", "inline"]) == 0
    return campaign


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("trained") / "p")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same trials, whose specs ask for the evaluation: other keys, the same training."""
    return run(tmp_path_factory.mktemp("planned") / "p", use=True)


@pytest.fixture
def campaign(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(trained, tmp_path / "c")
    trust(Layout(tmp_path / "c"), "code")
    return tmp_path / "c"


@pytest.fixture
def first(trained: Path) -> str:
    """The key of a trial."""
    return next(iter(Layout(trained).trial_keys()))


def with_evaluations(path: Path, *written: str) -> Path:
    path.write_text(f"from ablate import DeviantInputs\nevaluations = ({', '.join(written)},)\n")
    return path


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A file of evaluations."""
    return with_evaluations(tmp_path / "evaluator.py", DEVIANT.format(n=3))


def kill(*_: object) -> None:
    raise KeyboardInterrupt


def evaluate(campaign: Path, *words: str | Path) -> int:
    return execute(["evaluate", *map(str, words), "--campaign", str(campaign)])


def rows(campaign: Path, query: str) -> list[tuple[Any, ...]]:
    with Store.open(campaign) as store:
        assert store.bad_shards().is_empty()
        return store.sql(query).rows()


LATER = f"{ROWS} WHERE later IS NOT NULL ORDER BY ALL"


def test_the_rows_are_those_of_a_trial_whose_spec_asks_for_them(campaign: Path, asked: Path, planned: Path) -> None:
    assert evaluate(campaign, "grid=small", "--with", asked) == 0
    query = """
        SELECT g.label, g.seed, e.step, e.name, CAST(e.point AS VARCHAR), e.value, e.items, e.se_items
        FROM v_evaluation e JOIN grid_trial g USING (trial) WHERE {} ORDER BY ALL
    """
    names = "e.name LIKE '%deviant%'"
    wanted = rows(planned, query.format(names))
    assert len(wanted) == 4 * 3 * 2
    assert rows(campaign, query.format(names)) == wanted
    assert rows(campaign, query.format("e.later IS NOT NULL")) == wanted
    # slow trials have rows of the machine's load
    final = """SELECT label, seed, name, CAST(point AS VARCHAR), step, value FROM v_final
               WHERE NOT starts_with(name, 'system.') ORDER BY ALL"""
    assert rows(campaign, final) == rows(planned, final)


def test_an_evaluation_is_made_once_and_is_no_result_of_the_training(
    campaign: Path, first: str, asked: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(campaign) as store:
        trained = values_of(store, first)
    told = Layout(campaign).trial(first).parent
    before_ns = told.stat().st_mtime_ns
    assert evaluate(campaign, first[:9], "--with", asked, "--json") == 0
    assert told.stat().st_mtime_ns > before_ns, "an ingest that is not thorough would not look there"
    (made,) = json.loads(capsys.readouterr().out)["data"]
    assert (made["trial"], made["outcome"], len(made["measured"])) == (first, "made", 6)
    before = rows(campaign, LATER)
    assert len(before) == 6
    with monkeypatch.context() as patched:
        patched.setattr("ablate.training.posthoc.trained_model.build_model", None)  # nothing is computed
        assert evaluate(campaign, first, "--with", asked, "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["data"][0]["outcome"] == "there"
    assert "--again repeats it" in said.err
    with monkeypatch.context() as patched:
        patched.setattr(evaluation_records, "write_json", kill)  # the earlier result is kept
        assert evaluate(campaign, first, "--with", asked, "--again") == 130
    assert rows(campaign, LATER) == before
    assert len(rows(campaign, "FROM shard WHERE later")) == 1
    assert evaluate(campaign, first, "--with", asked, "--again") == 0
    assert rows(campaign, LATER) == before
    found = Layout(campaign).evaluations(first, 1)
    assert len(list(found.glob("*.parquet"))) == len(list(found.glob("*.json"))) == 1
    with Store.open(campaign) as store:
        live = store.content_hash()
        assert values_of(store, first) == trained
    rebuild(campaign)
    with Store.open(campaign, refresh=False) as store:
        assert store.content_hash() == live
    shutil.rmtree(found)  # takes its rows along
    taken = ingest(campaign)
    assert (taken.evaluated, taken.published) == (1, True)
    assert rows(campaign, LATER) == rows(campaign, "FROM shard WHERE later") == []


def test_a_kill_leaves_an_evaluation_undone_or_done(
    campaign: Path, first: str, asked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the shards, and between them and the record."""
    place = Layout(campaign).evaluations(first, 1)
    for shards, name in enumerate(("write_atomic", "write_json")):
        with monkeypatch.context() as patched:
            patched.setattr(evaluation_records, name, kill)
            assert evaluate(campaign, first, "--with", asked) == 130
        assert len(list(place.glob("*.parquet"))) == shards, name
        assert rows(campaign, LATER) == [], name
    assert evaluate(campaign, first, "--with", asked) == 0
    assert len(rows(campaign, LATER)) == 6
    assert len(list(place.glob("*.parquet"))) == 1


def test_damage_is_said_and_mended_by_the_same_command(campaign: Path, first: str, asked: Path) -> None:
    assert evaluate(campaign, first, "--with", asked) == 0
    before = rows(campaign, LATER)
    for ending in ("json", "parquet"):
        (path,) = Layout(campaign).evaluations(first, 1).glob(f"*.{ending}")
        path.write_bytes(path.read_bytes()[:-9])
        with Store.open(campaign) as store:
            assert store.sql(LATER).is_empty(), ending
            (warning,) = store.warnings()
            assert path.name in warning
            live = store.content_hash()
        rebuild(campaign)
        with Store.open(campaign, refresh=False) as store:
            assert store.content_hash() == live, ending
        assert evaluate(campaign, first, "--with", asked) == 0
        assert rows(campaign, LATER) == before, ending
    (path,) = Layout(campaign).weights(first, 1).glob("*.pt")
    path.write_bytes(path.read_bytes()[:-1])
    assert evaluate(campaign, first, "--with", asked, "--again") == 6
    assert rows(campaign, LATER) == before


def test_of_two_that_say_the_same_only_one_counts(
    campaign: Path, first: str, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = with_evaluations(tmp_path / "other.py", DEVIANT.format(n=2))
    wide = with_evaluations(tmp_path / "wide.py", DEVIANT.format(n=2).replace("(1.0, 10.0)", "(10.0, 20.0)"))
    assert evaluate(campaign, first, "--with", asked) == 0
    with monkeypatch.context() as patched:
        patched.delattr("ablate.training.posthoc.trained_model.TrainedModel.evaluate")  # it is refused before the work
        assert evaluate(campaign, first, "--with", other) == 2
    assert evaluate(campaign, first, "--with", other, "--again") == 0
    items = "SELECT point['sigma_first'] AS s, items FROM v_evaluation WHERE later IS NOT NULL ORDER BY ALL"
    assert rows(campaign, items) == [(1.0, 2)] * 3 + [(10.0, 2)] * 3
    assert len(rows(campaign, "FROM evaluated")) == 1  # the other said nothing else
    assert evaluate(campaign, first, "--with", asked, "--again") == 0
    assert evaluate(campaign, first, "--with", wide, "--again") == 0
    assert rows(campaign, items) == [(1.0, 3)] * 3 + [(10.0, 2)] * 3 + [(20.0, 2)] * 3
    layout = Layout(campaign)
    layout.attempt(first, 2).mkdir()
    for path in (layout.start, layout.end):  # another result: what judged the first counts no more
        record = read_json(path(first, 1))
        path(first, 2).write_text(json.dumps({**record, "attempt": 2}))
    assert rows(campaign, LATER) == []
    assert {counts for (counts,) in rows(campaign, "SELECT counts FROM v_evaluated")} == {False}
    assert rows(campaign, f"FROM v_final WHERE trial = '{first}' AND name LIKE '%deviant%'") == []


def test_measured_is_measured(planned: Path, tmp_path: Path, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = next(iter(Layout(planned).trial_keys()))
    assert evaluate(planned, key, "--with", asked) == 0
    assert "part of the trial" in capsys.readouterr().err
    other = with_evaluations(tmp_path / "other.py", DEVIANT.format(n=2))
    assert evaluate(planned, key, "--with", other, "--again") == 2
    assert rows(planned, LATER) == []


def test_another_function_is_refused(campaign: Path, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = Layout(campaign)
    first, second, *_ = layout.trial_keys()
    for key in (first, second):
        start = read_json(layout.start(key, 1))
        start["sources"]["Score exponential"] = "0"
        layout.start(key, 1).write_text(json.dumps(start))
    assert evaluate(campaign, first, "--with", asked) == 0
    said = capsys.readouterr().err
    assert "Score exponential changed since" in said
    ((changed,),) = rows(campaign, "SELECT changed FROM v_evaluated")
    assert "Score exponential" in changed
    (path,) = layout.weights(second, 1).glob("*.pt")
    step, state = load_checkpoint(path, second)
    path.unlink()
    state["model"]["read_in.weight"] += 1.0
    save_checkpoint(layout.weights(second, 1), second, step, state)
    assert evaluate(campaign, second, "--with", asked) == 2
    assert "computes another function" in capsys.readouterr().err
    assert evaluate(campaign, second, "--with", asked, "--allow-code-change") == 0


class Picky(Evaluation):
    """Fails the second time it is asked."""

    kind: Literal["picky"] = "picky"

    @property
    def length(self) -> int:
        return 1

    def open(self, task: Task) -> "PickyEvaluator":  # noqa: ARG002
        return PickyEvaluator()


class PickyEvaluator(Evaluator):
    calls = 0

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:  # noqa: ARG002
        PickyEvaluator.calls += 1
        if PickyEvaluator.calls == 2:
            raise ArithmeticError("no second one")
        yield Measurements("picked", float(PickyEvaluator.calls), {}, 2, None)
        yield Items("picked", {}, ("a", "b"), (1.0, 2.0))


def test_a_failure_of_one_trial_does_not_lose_the_others(
    campaign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PickyEvaluator, "calls", 0)
    monkeypatch.setattr("ablate.training.posthoc.evaluate.evaluations_of", lambda _: (Picky(),))
    path = tmp_path / "picky.py"
    path.write_text("")
    assert evaluate(campaign, "grid=small", "--with", path) == 4
    said = capsys.readouterr().err
    assert "ArithmeticError: no second one" in said
    assert "3 made, 1 failed" in said
    picked = rows(campaign, "SELECT value FROM v_evaluation WHERE name = 'picked' ORDER BY ALL")
    assert picked == [(1.0,), (3.0,), (4.0,)]
    assert len(rows(campaign, "FROM v_item WHERE name = 'picked'")) == 6
    assert evaluate(campaign, "grid=small", "--with", path) == 0
    assert len(rows(campaign, "FROM v_evaluation WHERE name = 'picked'")) == 4


def test_a_request_without_meaning_is_refused(trained: Path, tmp_path: Path) -> None:
    unsuitable = "__import__('ablate').LargeValue(numbers=3, sequences=2)"
    for words in (
        [],
        ["grid=small"],
        ["grid=small", "--with", with_evaluations(tmp_path / "none.py", "7")],
        ["seed=0", "softmax", "--with", with_evaluations(tmp_path / "unsuitable.py", unsuitable)],
    ):
        assert evaluate(trained, *words) == 2
    assert evaluate(trained, "grid=small", "--with", tmp_path / "missing.py") == NotFoundError.exit_code == 3


def test_without_weights_it_says_what_to_do(campaign: Path, asked: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = Layout(campaign)
    first, second, *_ = layout.trial_keys()
    shutil.rmtree(layout.weights(first, 1))
    assert evaluate(campaign, first, "--with", asked) == NotFoundError.exit_code == 3
    assert "keep_weights=True" in capsys.readouterr().err
    layout.end(second, 1).unlink()
    assert evaluate(campaign, second, "--with", asked) == 3
    assert "run it first" in capsys.readouterr().err
    assert evaluate(campaign, "grid=small", "--with", asked) == 4


NOTED = """
class Noted(type(grid.base)):
    kind: Literal["tests_noted_model"] = "tests_noted_model"
    remark: str = ""

fields = {name: getattr(grid.base, name) for name in type(grid.base).model_fields}
grid = replace(grid, base=Noted(**fields), seeds=[0])
"""


def test_a_subclass_of_trial_is_evaluated_and_another_experiment_is_refused(tmp_path: Path, asked: Path) -> None:
    spec, campaign = tmp_path / "spec.py", tmp_path / "c"
    imports = "from dataclasses import replace\nfrom typing import Literal"
    execution = "keep_weights=True"
    spec.write_text(real_spec("small", training="steps=1", execution=execution, before=imports, after=NOTED))
    assert execute(["run", str(spec), "--campaign", str(campaign), "--on", "inline"]) == 0
    assert run_campaign(campaign, [line_grid(seeds=range(1))]).done == 2
    trust(Layout(campaign), "code")
    assert evaluate(campaign, "grid=small", "--with", asked) == 0
    assert rows(campaign, LATER)
    assert evaluate(campaign, "grid=line", "--with", asked) == 4
    (key, *_) = rows(campaign, "SELECT trial FROM grid_trial WHERE grid = 'line' ORDER BY ALL")
    assert evaluate(campaign, *key, "--with", asked) == 2
