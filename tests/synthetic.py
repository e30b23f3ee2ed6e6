"""Campaigns on disk that no training made: every file of the wire format, with planted effects; nothing is synced.

    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(5))
    Store.open(campaign.root)

The planted truth: the "mse" of a trial at `point` is

    sigma_f**2 * (1 + sigma_x**2) / 1000 * exp(effect + seed effect + noise)

where the effect of a cell is `effect(axes)`, the seed effect is shared by all cells (runs are paired) and the noise
has the standard deviation `noise`.
"""

import math
import os
import random
import socket
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from ablate.grid import Grid
from ablate.grid.key import canonical_json, content_key
from ablate.grid.names import label_of
from ablate.store.files.atomic import write_atomic, write_json
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer, encode_shard, shard_prefix
from ablate.store.files.trial_state import process_started

EPOCH = 1_790_000_000.0
SUBMISSION = "20260921T141320-0a1b2c"
MEASURE: dict[str, Any] = {
    "name": "mse",
    "point": {"sigma_f": 5.0, "sigma_x": 1.0},
    "scale": "log",
    "better": "lower",
    "rope": 0.05,
    "alpha": 0.05,
    "unit": "squared output units",
}

Selection = Collection[tuple[str, int]]
"""Trials by (label of the cell, seed)."""
Measures = Mapping[str, Sequence[Mapping[str, float]]]
"""Points of evaluations by name."""


@dataclass(frozen=True)
class Campaign:
    """The files written."""

    root: Path
    layout: Layout
    header: dict[str, Any]
    lines: list[dict[str, Any]]
    effects: dict[str, float] = field(default_factory=dict)
    """Planted log effect by cell key."""

    def line(self, label: str, seed: int) -> dict[str, Any]:
        """The trial line of one cell and seed."""
        return next(line for line in self.lines if line["label"] == label and line["seed"] == seed)


def write_campaign(
    root: Path,
    *,
    operators: Sequence[str] = ("softmax", "SSA", "Integral", "Principled"),
    seeds: Sequence[int] = range(5),
    grid: str = "quickstart",
    factors: Mapping[str, Sequence[Any]] | None = None,
    effect: Callable[[Mapping[str, Any]], float] | None = None,
    noise: float = 0.05,
    failed: Mapping[tuple[str, int], str] | None = None,
    pending: Selection = (),
    running: Selection = (),
    resumed: Selection = (),
    steps: int = 60,
    sigma_f: Sequence[float] = tuple(range(1, 11)),
    sigma_x: Sequence[float] = (1, 2),
    submission: str = SUBMISSION,
) -> Campaign:
    """Write a whole campaign below `root`.

    A cell is an operator with one level of each of `factors`; its label is "SSA" or "SSA · head". `failed` maps trials
    to a reason ("diverged", "out_of_memory", "error"). `pending` ones have no attempt, `running` ones an attempt of
    this process, and `resumed` ones a stopped attempt before the one that finished.
    """
    layout = Layout(root)
    lines = plan_lines(operators, seeds, grid, factors or {})
    if unknown := {*pending, *running, *resumed, *(failed or ())} - {(line["label"], line["seed"]) for line in lines}:
        raise ValueError(f"no trial of the plan is {sorted(unknown)}")
    header = plan_header(lines, grid, factors or {}, operators)
    publish_grid(layout, header, lines, submission)
    effects = {line["cell"]: (effect or _default_effect)(line["axes"]) for line in lines}
    writer = _Writer(layout, submission, steps, [{"sigma_x": x, "sigma_f": f} for x in sigma_x for f in sigma_f])
    for line in lines:
        who = (line["label"], line["seed"])
        shift = effects[line["cell"]] + _seed_effect(line["seed"]) + noise * _normal(line["trial"])
        if who in pending:
            continue
        if who in running:
            writer.running(line, shift)
        elif failed and who in failed:
            writer.write_failed(line, shift, failed[who])
        else:
            writer.write_finished(line, shift, resumed=who in resumed)
    writer.buffer.flush("nothing")
    return Campaign(root, layout, header, lines, effects)


def write_grid(root: Path, grid: Grid, *, noise: float = 0.05, measures: Measures | None = None) -> Campaign:
    """Write a campaign in which every trial of the real `grid` has finished, without any effect.

    `measures` are names and points of its evaluations, in place of those of "mse"; then its own measure stays.
    """
    lines = [
        {
            "trial": planned.key,
            "cell": planned.cell,
            "seed": planned.seed,
            "grid": grid.name,
            "label": planned.label,
            "operator": "softmax",
            "axes": dict(planned.axes),
            "spec": planned.trial.data(),
        }
        for planned in grid.trials()
    ]
    header = {**grid.header(), "measure": MEASURE} if measures is None else grid.header()
    campaign = Campaign(root, Layout(root), header, lines)
    publish_grid(campaign.layout, campaign.header, lines)
    writer = _Writer(campaign.layout, SUBMISSION, 60, [MEASURE["point"]] if measures is None else [], measures or {})
    for line in lines:
        writer.write_finished(line, _seed_effect(line["seed"]) + noise * _normal(line["trial"]), resumed=False)
    writer.buffer.flush("nothing")
    return campaign


def write_quickstart(root: Path) -> Campaign:
    """Write a campaign of specs/quickstart.py, with all that its task measures."""
    from ablate.runners.provenance.specfile import load_spec_file

    grid = load_spec_file(Path(__file__).parents[1] / "specs" / "quickstart.py")["quickstart"]
    return write_grid(root, grid, measures=grid.base.task.measures())


def plan_lines(
    operators: Sequence[str], seeds: Sequence[int], grid: str, factors: Mapping[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    """Trial lines in execution order: seeds outermost."""
    lines = []
    for seed, operator, levels in product(seeds, operators, list(product(*factors.values()))):
        axes = {"operator": operator, **dict(zip(factors, levels, strict=True))}
        spec = {"operator": {"kind": operator.lower(), **axes}, "task": {"kind": "linear_functions", "points": 11}}
        lines.append(
            {
                "trial": content_key(canonical_json({**spec, "seed": seed})),
                "cell": content_key(canonical_json(spec)),
                "seed": seed,
                "grid": grid,
                "label": " · ".join(map(label_of, (operator, *levels))),
                "operator": operator,
                "axes": axes,
                "spec": {**spec, "seed": seed},
            }
        )
    return lines


def plan_header(
    lines: Sequence[Mapping[str, Any]], grid: str, factors: Mapping[str, Sequence[Any]], operators: Sequence[str]
) -> dict[str, Any]:
    """The grid header; the baseline is the first cell."""
    levels = {"operator": operators, **factors}
    return {
        "schema": 1,
        "grid": grid,
        "cells": len({line["cell"] for line in lines}),
        "trials": len(lines),
        "seeds": sorted({line["seed"] for line in lines}),
        "axes": [
            {
                "path": "operator" if name == "operator" else f"operator.{name}",
                "name": name,
                "labels": [*map(label_of, of)],
            }
            for name, of in levels.items()
        ],
        "rules": [{"reason": "signals must divide the width of a head", "count": 2}],
        "baseline": lines[0]["cell"] if lines else None,
        "measure": MEASURE,
        "base": lines[0]["spec"] if lines else {},
    }


def publish_grid(
    layout: Layout, header: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], submission: str | None = SUBMISSION
) -> None:
    """Write the grid's two files and, with a `submission`, its manifest and index."""
    encoded = [canonical_json(line).encode() + b"\n" for line in lines]
    write_atomic(layout.grid_trials(header["grid"]), b"".join(encoded), durable="nothing")
    write_json(layout.grid_header(header["grid"]), header, durable="nothing")
    if submission is not None:
        offsets = [0]
        for text in encoded[:-1]:
            offsets.append(offsets[-1] + len(text))
        index = struct.pack(f"<{len(encoded)}Q", *offsets[: len(encoded)])
        write_atomic(layout.manifest_index(submission), index, durable="nothing")
        write_atomic(layout.manifest(submission), b"".join(encoded), durable="nothing")


def write_shard(
    layout: Layout, table: str, columns: Mapping[str, Sequence[Any]], *, submission: str, worker: int, sequence: int
) -> Path:
    """Publish one shard of `table`; `columns` maps every column to its values, a point to a mapping."""
    encoded = encode_shard(table, columns, shard_prefix(submission, worker, sequence))
    return write_atomic(layout.shard(encoded.name), encoded.data)


def write_start(layout: Layout, key: str, attempt: int, /, **fields: Any) -> None:
    """The start.json of an attempt, with `fields` in place of the usual ones."""
    start = {
        "schema": 1,
        "trial": key,
        "attempt": attempt,
        "submission": SUBMISSION,
        "worker": 0,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "pid_started": process_started(os.getpid()),
        "started": EPOCH + attempt,
        "resumed_from": None,
        "path": "reference",
        "device": "cpu",
        "threads": 1,
        "code": "c0de" * 10,
        "versions": {"python": "3.11.7", "torch": "2.13.0", "ablate": "0.1.0"},
        "data": None,
    }
    write_json(layout.start(key, attempt), {**start, **fields}, durable="nothing")
    layout.heartbeat(key, attempt).touch()


def write_end(layout: Layout, key: str, attempt: int, /, **fields: Any) -> None:
    """The end.json of an attempt, with `fields` in place of the usual ones."""
    end = {
        "schema": 1,
        "trial": key,
        "attempt": attempt,
        "status": "ok",
        "reason": None,
        "message": None,
        "traceback": None,
        "step": 60,
        "wall_s": 2.5,
        "train_s": 2.0,
        "evaluate_s": 0.5,
        "ended": EPOCH + attempt + 2.5,
        "parameters": 25_000,
        "operator_parameters": 24,
        "memory_bytes": 300_000_000,
    }
    write_json(layout.end(key, attempt), {**end, **fields}, durable="nothing")


_MESSAGES = {
    "diverged": "the loss was nan at step 30",
    "out_of_memory": "CUDA out of memory: tried to allocate 2.00 GiB",
    "error": "ValueError: signals must divide the head width",
}


@dataclass
class _Writer:
    layout: Layout
    submission: str
    steps: int
    points: list[dict[str, float]]
    measures: Measures = field(default_factory=dict)
    buffer: ShardBuffer = field(init=False)

    def __post_init__(self) -> None:
        self.buffer = ShardBuffer(self.layout, submission=self.submission, worker=0)

    def running(self, line: Mapping[str, Any], shift: float) -> None:
        write_start(self.layout, line["trial"], 1, submission=self.submission)
        self._curve(line, shift, 1, range(self.steps // 3))

    def write_failed(self, line: Mapping[str, Any], shift: float, reason: str) -> None:
        key, last = line["trial"], self.steps // 2
        write_start(self.layout, key, 1, submission=self.submission)
        self._curve(line, shift, 1, range(last))
        if reason == "diverged":
            self.buffer.add("metric", (key, 1, last, "loss", math.nan, 0.01 * last))
        trace = "Traceback (most recent call last):\n  ...\n" + _MESSAGES[reason] if reason == "error" else None
        write_end(
            self.layout, key, 1, status="failed", reason=reason, message=_MESSAGES[reason], traceback=trace, step=last
        )

    def write_finished(self, line: Mapping[str, Any], shift: float, *, resumed: bool) -> None:
        key, attempt, begin = line["trial"], 1, 0
        if resumed:
            begin, attempt = self.steps // 2, 2
            write_start(self.layout, key, 1, submission=self.submission)
            self._curve(line, shift + 1.0, 1, range(begin + 5))
            write_end(self.layout, key, 1, status="stopped", step=begin + 5)
        origin = {"attempt": 1, "step": begin} if resumed else None
        write_start(self.layout, key, attempt, submission=self.submission, resumed_from=origin)
        self._curve(line, shift, attempt, range(begin, self.steps))
        for step in (self.steps // 2, self.steps):
            self._evaluate(line, shift + (0.0 if step == self.steps else 1.0), attempt, step)
        write_end(self.layout, key, attempt, step=self.steps)

    def _curve(self, line: Mapping[str, Any], shift: float, attempt: int, steps: range) -> None:
        key = line["trial"]
        for step in steps:
            loss = (0.1 + math.exp(-6 * step / self.steps)) * math.exp(shift)
            values = {"loss": loss, "grad_norm": 2 * loss, "learning_rate": 1e-3}
            wall_s = 0.01 * (step - steps.start)
            self.buffer.extend("metric", [(key, attempt, step, name, of, wall_s) for name, of in values.items()])

    def _evaluate(self, line: Mapping[str, Any], shift: float, attempt: int, step: int) -> None:
        key = line["trial"]
        for point in self.points:
            value = point["sigma_f"] ** 2 * (1 + point["sigma_x"] ** 2) / 1000 * math.exp(shift)
            self.buffer.add("evaluation", (key, attempt, step, "mse", point, value, 400, value / 20))
        if self.points:
            self.buffer.add("item", (key, attempt, step, "mse", point, "first", value))
        for name, points in self.measures.items():
            self.buffer.extend("evaluation", [(key, attempt, step, name, at, shift, 400, 0.01) for at in points])
        if line["operator"] != "softmax":
            for layer, head in product(range(2), range(2)):
                number = 0.1 * layer + 0.01 * head + shift
                self.buffer.add("probe", (key, attempt, step, "number.strength", layer, head, {}, number))


def _default_effect(axes: Mapping[str, Any]) -> float:
    """softmax 0; every other operator the better the later it comes in the alphabet; factors do nothing."""
    operator = str(axes.get("operator", "softmax"))
    return 0.0 if operator == "softmax" else -0.1 * (1 + (ord(operator[0].lower()) - ord("a")) % 5)


def _seed_effect(seed: int) -> float:
    return 0.3 * random.Random(f"seed {seed}").gauss(0, 1)


def _normal(key: str) -> float:
    return random.Random(key).gauss(0, 1)
