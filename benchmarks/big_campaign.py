"""Large campaigns on disk that no training made: files as tests write them, and shards of many rows."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import synthetic

from ablate.store.files.atomic import write_atomic
from ablate.store.files.layout import Layout
from ablate.store.files.shards import encode_shard, shard_prefix

SUBMISSION: Final[str] = synthetic.SUBMISSION
SEEDS = 10
STEPS = 3_333
NAMES = ("loss", "grad_norm", "learning_rate")


def write_plan(layout: Layout, trials: int) -> list[str]:
    """A grid of cells with ten seeds each, and the submission that trained it; the keys of its trials."""
    factors = {"width": range(trials // SEEDS)}
    lines = synthetic.plan_lines(["softmax"], range(SEEDS), "large", factors)
    measure = {**synthetic.MEASURE, "point": {"sigma_f": 5.0}}
    header = {**synthetic.plan_header(lines, "large", factors, ["softmax"]), "measure": measure}
    synthetic.publish_grid(layout, header, lines)
    return [line["trial"] for line in lines]


def write_attempt(layout: Layout, key: str, status: str = "ok") -> None:
    """Start, heartbeat and end of the only attempt of a trial, on this host."""
    synthetic.write_start(layout, key, 1)
    cost = {"steps": STEPS, "tokens": 64 * STEPS, "flops": 1e12, "train_s": 2.0, "evaluate_s": 0.4, "probe_s": 0.1}
    synthetic.write_end(layout, key, 1, status=status, step=STEPS, cost=cost)


def write_rows(layout: Layout, table: str, columns: Mapping[str, Sequence[Any]], sequence: int) -> None:
    """One shard of the spool."""
    shard = encode_shard(table, columns, shard_prefix(SUBMISSION, 0, sequence))
    write_atomic(layout.spool / shard.name, shard.data, durable="nothing")


def curves(key: str, first: int, count: int) -> dict[str, Any]:
    """`count` metrics of a trial, as training writes them: three names per step from step `first` on."""
    at = np.arange(count)
    return {
        "trial": [key] * count,
        "attempt": np.full(count, 1, np.int32),
        "step": first + at // len(NAMES),
        "name": np.resize(NAMES, count).tolist(),
        "value": np.exp(-1e-4 * at) * np.sin(at + int(key[:6], 16)),
        "wall_s": 1e-3 * at,
    }


def judged(key: str) -> dict[str, Any]:
    """The evaluation of a trial at its end and halfway, at ten points."""
    steps = [step for step in (STEPS // 2, STEPS) for _ in range(10)]
    return {
        "trial": [key] * 20,
        "attempt": [1] * 20,
        "step": steps,
        "name": ["mse"] * 20,
        "point": [{"sigma_f": float(i % 10 + 1)} for i in range(20)],
        "value": [0.1 + 0.01 * i + int(key[:4], 16) / 65536 for i in range(20)],
        "items": [100] * 20,
        "se_items": [0.01] * 20,
    }


def write_campaign(layout: Layout, trials: int, rows: int) -> None:
    """Finished trials with a shard of `rows` metrics each, and one of evaluations per hundred trials."""
    batch = list[dict[str, Any]]()
    for number, key in enumerate(write_plan(layout, trials)):
        write_attempt(layout, key)
        write_rows(layout, "metric", curves(key, 0, rows), 2 * number)
        batch.append(judged(key))
        if len(batch) == 100 or number == trials - 1:
            write_rows(layout, "evaluation", join(batch), 2 * number + 1)
            batch = []


def join(parts: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, list[Any]]:
    """Rows of several trials as one table."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}
