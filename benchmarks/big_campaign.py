"""Large campaigns on disk that no training made: every file that the store reads, written without fsync."""

import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
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


def write_attempt(layout: Layout, key: str, status: str = "ok") -> None:
    """Start, heartbeat and end of the only attempt of a trial, on this host."""
    directory = layout.attempt(key, 1)
    directory.mkdir(parents=True)
    place = {"schema": 1, "trial": key, "attempt": 1}
    process = {"host": socket.gethostname(), "pid": os.getpid(), "pid_started": None}
    begun = {"submission": SUBMISSION, "worker": 0, **process, "started": 1.79e9, "device": "cpu"}
    (directory / "start.json").write_text(json.dumps({**place, **begun}))
    (directory / "heartbeat").write_bytes(b"")
    took = {"wall_s": 2.5, "train_s": 2.0, "evaluate_s": 0.5, "ended": 1.79e9 + 3}
    cost = {"steps": STEPS, "tokens": 64 * STEPS, "flops": 1e12, "train_s": 2.0, "evaluate_s": 0.4, "probe_s": 0.1}
    end = {"status": status, "step": STEPS, **took, "cost": cost}
    (directory / "end.json").write_text(json.dumps({**place, **end}))


def write_rows(layout: Layout, table: str, columns: Mapping[str, Sequence[Any]], sequence: int) -> None:
    """One shard of the spool."""
    shard = encode_shard(table, columns, shard_prefix(SUBMISSION, 0, sequence))
    write(layout.spool / shard.name, shard.data)


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
