"""A loss that leaves all bounds, from the step it does so to the command that says what failed."""

import json
import math
from pathlib import Path

import pytest

from grid import Grid, over
from runners.cli.app import execute
from runners.execution import Inline
from runners.execution.run import RunOptions, run_campaign
from runners.trial import Trial
from store.files.layout import Layout
from store.store import Store


def test_a_trial_that_diverges_ends_there_with_its_step_and_reason(
    tiny: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The step in the record is the one whose loss is out of bounds, which is the last that was logged."""
    axes = [over("training.optimiser.lr", [1e-3, 1e4])]
    grid = Grid(name="rates", base=tiny, axes=axes, seeds=[0])
    result = run_campaign(tmp_path, [grid], Inline(), RunOptions(progress=False))
    assert (result.ok, result.failed) == (1, 1)
    (wild,) = (planned.key for planned in grid.trials() if planned.axes["lr"] == 1e4)
    end = json.loads(Layout(tmp_path).end(wild, 1).read_bytes())
    assert (end["status"], end["reason"]) == ("failed", "diverged")
    assert 1 < end["step"] < tiny.training.steps
    with Store.open(tmp_path, refresh=False) as store:
        losses = dict(
            store.sql(f"select step, value from metric where trial = '{wild}' and name = 'loss' order by step").rows()
        )
    bound = 1000 * tiny.task.open().constant_loss
    assert max(losses) == end["step"]
    assert not losses[end["step"]] <= bound
    assert all(losses[step] <= bound for step in range(1, end["step"]))
    assert math.isnan(losses[end["step"]]) or f"{losses[end['step']]}" in end["message"]
    assert f"at step {end['step']}" in end["message"]
    capsys.readouterr()
    assert execute(["failures", "--json", "--campaign", str(tmp_path)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["data"]["failures"]
    assert (found["reason"], found["n"]) == ("diverged", 1)
    assert f"at step {end['step']}" in found["message"]
