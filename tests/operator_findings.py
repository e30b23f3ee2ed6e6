"""Findings of plans about operators, on the quickstart's task, for which the knock-out has been made."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate import Grid, LogCount, Number, Operator, RunRequest, Trial, over
from ablate.runners.cli.campaign_plan import plan_campaign, plan_data, plan_lines
from ablate.runners.provenance.specfile import load_spec_file

TRIAL: Trial = load_spec_file(Path(__file__).parents[1] / "specs" / "quickstart.py")["quickstart"].base  # type: ignore[assignment]


def margin(start: float, per: str = "head") -> Operator:
    return Operator(margin=LogCount(amplification=Number(init=start).at(per)))


def findings(tmp_path: Path, operators: Sequence[Operator], base: Trial = TRIAL, **more: Any) -> dict[str, Any]:
    labels = [f"cell {number}" for number in range(len(operators))]
    grid = Grid("g", base, [over("operator", operators, labels=labels)], seeds=[0], **more)
    plan = plan_campaign(RunRequest(tmp_path), [grid])
    found: dict[str, Any] = plan_data(plan)["findings"]["g"]
    json.dumps(found)
    said = "\n".join(plan_lines(plan))
    assert all(line in said for line in found["unchecked"])
    return found
