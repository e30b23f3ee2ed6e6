"""Findings of plans about operators, on the quickstart's task, for which the knock-out has been made."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate import (
    AdamW,
    Cosine,
    Grammar,
    Grid,
    LogCount,
    Number,
    Operator,
    RunRequest,
    Training,
    Trial,
    gpt2,
    over,
    softmax,
)
from ablate.runners.cli.campaign_plan import plan_campaign, plan_data, plan_lines

TRIAL = Trial(
    task=Grammar(
        nouns=16, verbs=8, names=16, prepositions=4, topics=2, context=32, batch=32,
        validation_windows=128, agreement_pairs=16,
    ),
    model=gpt2(layers=2, heads=2, width=32, max_positions=32),
    operator=softmax(),
    training=Training(steps=300, optimiser=AdamW(lr=5e-3), schedule=Cosine(warmup=30), clip=1.0),
)  # fmt: skip


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
