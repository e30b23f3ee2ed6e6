"""An unfit row of an own evaluation or probe fails its trial, and costs no other trial a row."""

from pathlib import Path

from real_spec import real_spec

from ablate.runners.cli.app import execute
from ablate.store import Campaign

OWN = '''
from typing import Literal

import numpy as np
import torch

from ablate.training.evaluations import Evaluation
from ablate.training.probes import Probing
from ablate.training.probes.probe import Probe, Probed, ProbeArray
from ablate.training.tasks import Measurements

ROWS = {
    "fine": Probed("value", torch.tensor(2.5), np.int64(0), torch.tensor(1), {"x": np.float32(2)}),
    "name": Probed(0, 1.0),
    "line": Probed("two\\nlines", 1.0),
    "long": Probed("x" * 10_000, 1.0),
    "value": Probed("value", "high"),
    "complex": Probed("value", np.complex64(1)),
    "layer": Probed("value", 1.0, layer=2**15),
    "head": Probed("value", 1.0, 0, 0.5),
    "point": Probed("value", 1.0, point={"x": float("nan")}),
    "coordinate": Probed("value", 1.0, point={"": 1.0}),
    "file": ProbeArray("x" * 300, {"a": np.zeros(1)}),
}
MEASURED = {
    "fine": Measurements("own", np.float32(0.5), {"x": torch.tensor(1)}, np.int64(3), torch.tensor(0.25)),
}


class Mine(Probe):
    """Yields one of ROWS."""

    kind: Literal["mine"] = "mine"
    row: str = "fine"

    def of_model(self, seen):
        yield ROWS.get(self.row, ROWS["fine"])


class Own(Evaluation):
    """Yields one of MEASURED."""

    kind: Literal["own"] = "own"
    row: str = "fine"
    at_end: bool = False

    @property
    def length(self):
        return 3

    def measure(self, predict, task):
        yield MEASURED.get(self.row, MEASURED["fine"])
'''
GRID = """
base = grid.base.changed(probing=Probing(probes=(Mine(),)), evaluations=(Own(),))
both = [*ROWS, *MEASURED]
made = [(Probing(probes=(Mine(row=row),)), (Own(row=row),)) for row in dict.fromkeys(both)]
from ablate.grid import zipped
probing = over("probing", [a for a, _ in made], labels=list(dict.fromkeys(both)))
judged = over("evaluations", [b for _, b in made], labels=list(dict.fromkeys(both)))
grid = Grid(name="grid", base=base, axes=[zipped(probing, judged)], seeds=range(1))
"""

NAMED = {
    "name": "probe 0",
    "line": "two",
    "long": "10000",
    "value": "value",
    "complex": "value",
    "layer": "layer",
    "head": "head",
    "point": "'x'",
    "coordinate": "coordinate",
    "file": "300",
}
"""A word in the message of each failed trial."""


def test_an_unfit_row_fails_its_trial_by_name_and_no_other(tmp_path: Path) -> None:
    """One process trains all trials, whose rows share its shards."""
    spec = tmp_path / "spec.py"
    spec.write_text(real_spec("grid", training="steps=4, evaluate_every=2", before=OWN, after=GRID))
    assert execute(["run", str(spec), "--campaign", str(tmp_path / "c"), "--on", "inline"]) == 4
    with Campaign(tmp_path / "c") as campaign:
        assert sorted(campaign.trials().select("label", "state").rows()) == sorted(
            [("fine", "done"), *((label, "failed") for label in NAMED)]
        )
        told = campaign.sql("SELECT label, message FROM attempt JOIN grid_trial USING (trial) WHERE status = 'failed'")
        assert [label for label, message in told.rows() if NAMED[label] not in message] == []
        losses = campaign.sql(
            "SELECT label, count(*) AS n FROM metric JOIN grid_trial USING (trial) WHERE name = 'loss' GROUP BY ALL"
        )
        assert dict(losses.rows()) == {"fine": 4} | dict.fromkeys(NAMED, 2)
        assert campaign.sql("SELECT value, layer, head, point['x'] FROM v_probe").rows() == [(2.5, 0, 1, 2.0)] * 2
        assert campaign.evaluations("own").select("x", "value", "items", "se_items").rows() == [(1.0, 0.5, 3, 0.25)]
