"""Inputs of trials are opened before any is trained. If that fails, a plan says so and a run starts nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.cli.app import execute
from ablate.runners.cli.campaign_plan import PlanOptions, plan_campaign
from ablate.runners.execution import Inline
from ablate.runners.execution.run import RunOptions, run_campaign
from ablate.runners.planning.preflight import Preflight
from ablate.runners.provenance.specfile import load_spec_file
from ablate.runners.slurm.spec import Slurm
from ablate.runners.tasks import Text
from ablate.store.files.layout import Layout

SPEC = """
from pathlib import Path
from ablate.grid import Grid, over
from ablate.runners import AdamW, BytePairs, MinimalPairs, Probing, Text, Training, Trial
from ablate.variants import gpt2, softmax, ssa

here = Path(__file__).parent
base = Trial(
    task=Text(source=str(here / "a.txt"), context=8, batch=2, tokenizer=BytePairs(vocabulary=258)),
    model=gpt2(layers=1, heads=1, width=8, max_positions=16),
    operator=softmax(),
    training=Training(steps=1),
    probing=Probing(probes=()),
)
pairs = MinimalPairs(source=str(here / "pairs.txt"), scoring="causal", longest=16)
_operators, _sizes = over("operator", [softmax(), ssa()]), "task.tokenizer.vocabulary"
good = Grid(name="good", base=base, axes=[_operators], seeds=[0])
mixed = Grid(name="mixed", base=base, axes=[_operators, over(_sizes, [258, 900, 901])], seeds=[0])
judged = Grid(name="judged", base=base.changed(evaluations=(pairs,)), axes=[_operators], seeds=[0])
"""
TOO_FEW = "of 900 tokens; lower vocabulary"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("aab abb " * 100)
    (tmp_path / "pairs.txt").write_text(f"{'no ' * 30}\nyes\n")
    path = tmp_path / "spec.py"
    path.write_text(SPEC)
    return path


def ablate(*words: str | Path) -> int:
    return execute([str(word) for word in words])


@pytest.mark.parametrize(("grid", "said"), [("mixed", TOO_FEW), ("judged", "is less than")])
def test_where_trials_cannot_begin_a_plan_and_a_run_end_with_2_and_nothing_is_written(
    spec: Path, grid: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ("--grid", grid, "--campaign", spec.parent / "campaign")
    assert ablate("plan", spec, *there) == 2
    page = capsys.readouterr().out
    assert said in page
    assert page.count("  error: trials fail before their first step: ") == (2 if grid == "mixed" else 1)
    assert ablate("plan", spec, *there, "--json") == 2
    assert any(said in each for each in json.loads(capsys.readouterr().out)["data"]["refused"])
    assert ablate("run", spec, *there, "--on", "inline") == 2
    told = capsys.readouterr().err
    assert said in told
    assert ablate("plan", spec, "--grid", "good", *there[2:]) == 0
    assert "error" not in capsys.readouterr().out
    assert not (spec.parent / "campaign").exists()


def test_a_cell_that_has_been_tried_is_opened_before_a_retry(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished trial no longer needs its text, and a failed one has its reason."""

    def bug(task: Text) -> None:
        raise KeyError("a bug")

    grid, options = load_spec_file(spec)["good"], RunOptions(land_every_s=None, progress=False)
    again = replace(options, retry=True)
    with monkeypatch.context() as broken:
        broken.setattr(Text, "open", bug)
        assert run_campaign(tmp_path / "c", [grid], Inline(), options).failed == 2
    text = (tmp_path / "a.txt").read_text()
    (tmp_path / "a.txt").unlink()
    assert run_campaign(tmp_path / "c", [grid], Inline(), options).skipped_failed == 2
    with pytest.raises(SpecError, match="there is no text"):
        run_campaign(tmp_path / "c", [grid], Inline(), again)
    (tmp_path / "a.txt").write_text(text)
    assert run_campaign(tmp_path / "c", [grid], Inline(), again).ok == 2
    (tmp_path / "a.txt").unlink()
    assert run_campaign(tmp_path / "c", [grid], Inline(), again).skipped == 2
    with pytest.raises(SpecError, match="there is no text"):
        run_campaign(tmp_path / "other", [grid], Inline(), options)


def test_other_faults_are_left(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening, mixed = Preflight(Layout(tmp_path / "c")), load_spec_file(spec)["mixed"]
    assert plan_campaign(tmp_path / "c", [mixed], PlanOptions(slurm=Slurm())).refused == ()  # no text is needed here
    with pytest.raises(SpecError, match=rf"'softmax · vocabulary=900' .* {TOO_FEW}.*; `ablate plan` tells this and 1"):
        run_campaign(tmp_path / "c", [mixed], Inline())
    for planned in mixed.cells():
        opening.add_cell("mixed", planned)
    assert len(list(opening.refusals())) == 2

    def fail(task: Text) -> None:
        raise EnvironmentProblem("the disk is gone")

    monkeypatch.setattr(Text, "open", fail)
    assert list(opening.refusals()) == []
