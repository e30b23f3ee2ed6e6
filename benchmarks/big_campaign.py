"""Large campaigns on disk that no training made: every file that the store reads, written without fsync."""

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from store.files.layout import Layout
from store.files.shards import encode_shard, shard_prefix

SUBMISSION = "20260101T000000-abcdef"
SEEDS = 10
STEPS = 3_333
NAMES = ("loss", "grad_norm", "learning_rate")


def key_of(*words: object) -> str:
    """32 hexadecimal digits that stand for a spec."""
    return blake2b(" ".join(map(str, words)).encode(), digest_size=16).hexdigest()


def write_plan(layout: Layout, trials: int) -> list[str]:
    """A grid of cells with ten seeds each, and the submission that trained it; the keys of its trials."""
    lines = [line_of(cell, seed) for seed in range(SEEDS) for cell in range(trials // SEEDS)]
    header = {
        "schema": 1,
        "grid": "large",
        "cells": trials // SEEDS,
        "trials": trials,
        "seeds": list(range(SEEDS)),
        "axes": [{"path": "operator.width", "name": "width", "labels": [str(i) for i in range(trials // SEEDS)]}],
        "rules": [],
        "baseline": lines[0]["cell"],
        "measure": {"name": "mse", "point": {"sigma_f": 5.0}, "scale": "log", "better": "lower", "rope": 0.05},
        "base": lines[0]["spec"],
    }
    encoded = [json.dumps(line).encode() + b"\n" for line in lines]
    offsets = [0, *np.cumsum([len(text) for text in encoded])[:-1].tolist()]
    write(layout.grid_trials("large"), b"".join(encoded))
    write(layout.grid_header("large"), json.dumps(header).encode())
    write(layout.manifest(SUBMISSION), b"".join(encoded))
    write(layout.manifest_index(SUBMISSION), struct.pack(f"<{len(offsets)}Q", *offsets))
    return [line["trial"] for line in lines]


def line_of(cell: int, seed: int) -> dict[str, Any]:
    """A line of the plan."""
    spec = {"operator": {"kind": "softmax", "width": cell}, "task": {"kind": "linear_functions"}, "seed": seed}
    return {
        "trial": key_of(cell, seed),
        "cell": key_of(cell),
        "seed": seed,
        "grid": "large",
        "label": f"softmax · {cell}",
        "operator": "softmax",
        "axes": {"width": cell},
        "spec": spec,
    }


def write(path: Path, data: bytes) -> None:
    """Without fsync: what is measured reads it from memory anyway."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def write_attempt(layout: Layout, key: str, attempt: int, status: str | None = "ok", **start: object) -> None:
    """Start, heartbeat and, with a status, end of one attempt, at work or ended on this host."""
    directory = layout.attempt(key, attempt)
    directory.mkdir(parents=True)
    place = {"schema": 1, "trial": key, "attempt": attempt}
    process = {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": None}
    begun = {"submission": SUBMISSION, "worker": 0, **process, "started": 1.79e9, "device": "cpu", **start}
    (directory / "start.json").write_text(json.dumps({**place, **begun}))
    (directory / "heartbeat").write_bytes(b"")
    if status is not None:
        took = {"wall_s": 2.5, "train_s": 2.0, "evaluate_s": 0.5, "ended": 1.79e9 + 3}
        cost = {"steps": STEPS, "tokens": 64 * STEPS, "flops": 1e12, "train_s": 2.0, "evaluate_s": 0.4, "probe_s": 0.1}
        end = {"status": status, "step": STEPS, **took, "cost": cost}
        (directory / "end.json").write_text(json.dumps({**place, **end}))


def write_rows(layout: Layout, table: str, columns: Mapping[str, Sequence[Any]], sequence: int) -> None:
    """One shard of the spool."""
    shard = encode_shard(table, columns, shard_prefix(SUBMISSION, 0, sequence))
    write(layout.spool / shard.name, shard.data)


def curves(key: str, attempt: int, first: int, count: int) -> dict[str, Any]:
    """`count` metrics of a trial, as training writes them: three names per step from step `first` on."""
    at = np.arange(count)
    return {
        "trial": [key] * count,
        "attempt": np.full(count, attempt, np.int32),
        "step": first + at // len(NAMES),
        "name": np.resize(NAMES, count).tolist(),
        "value": np.exp(-1e-4 * at) * np.sin(at + int(key[:6], 16)),
        "wall_s": 1e-3 * at,
    }


def judged(key: str, attempt: int, name: str = "mse") -> dict[str, Any]:
    """The evaluation of a trial at its end and halfway, at ten points."""
    steps = [step for step in (STEPS // 2, STEPS) for _ in range(10)]
    return {
        "trial": [key] * 20,
        "attempt": [attempt] * 20,
        "step": steps,
        "name": [name] * 20,
        "point": [{"sigma_f": float(i % 10 + 1)} for i in range(20)],
        "value": [0.1 + 0.01 * i + int(key[:4], 16) / 65536 for i in range(20)],
        "items": [100] * 20,
        "se_items": [0.01] * 20,
    }


def write_later(layout: Layout, key: str, attempt: int) -> None:
    """A later evaluation of a finished trial, with its shard."""
    rows = {name: values[10:] for name, values in judged(key, attempt, "later").items()}
    shard = encode_shard("evaluation", rows, shard_prefix(SUBMISSION, 0, 0))
    directory = layout.evaluations(key, attempt)
    write(directory / shard.name, shard.data)
    record = {
        "schema": 1, "trial": key, "attempt": attempt, "evaluation": key_of("later"), "kind": "later", "spec": {},
        "step": STEPS, "shards": [shard.name], "ended": 1.79e9 + 9, "wall_s": 1.0, "host": "here", "device": "cpu",
        "threads": 1, "versions": {}, "changed": [],
    }  # fmt: skip
    write(layout.evaluation(key, attempt, key_of("later")), json.dumps(record).encode())


def write_campaign(layout: Layout, trials: int, rows: int, *, odd: bool) -> int:
    """A campaign of finished trials with a shard of `rows` metrics each, and one of evaluations per hundred trials.

    In an odd one, every twentieth trial was resumed in the middle, every twentieth was trained again by an attempt that
    failed, and every tenth was evaluated later.

    Returns:
        Rows of metrics.
    """
    total, batch = 0, list[dict[str, Any]]()
    for number, key in enumerate(write_plan(layout, trials)):
        history = list(histories(number, rows)) if odd else [(1, 0, rows, "ok")]
        for attempt, first, count, status in history:
            resumed = {"attempt": attempt - 1, "step": first} if first else None
            write_attempt(layout, key, attempt, status, resumed_from=resumed)
            write_rows(layout, "metric", curves(key, attempt, first, count), 10 * number + attempt)
            total += count
        last = max(attempt for attempt, *_, status in history if status == "ok")
        batch.append(judged(key, last))
        if odd and number % 10 == 3:
            write_later(layout, key, last)
        if len(batch) == 100 or number == trials - 1:
            together = {name: [value for each in batch for value in each[name]] for name in batch[0]}
            write_rows(layout, "evaluation", together, 10 * number + 9)
            batch = []
    return total


def histories(number: int, rows: int) -> Iterator[tuple[int, int, int, str]]:
    """Attempts of a trial: its number, first step, rows, status."""
    if number % 20 == 1:
        yield 1, 0, rows // 2 + 100, "stopped"
        yield 2, rows // 6, rows - rows // 2, "ok"
    else:
        yield 1, 0, rows, "ok"
    if number % 20 == 2:
        yield 2, 0, rows // 3, "failed"
