"""A campaign whose trials ended with chosen values, of real operators, for comparisons with published numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import SUBMISSION, publish_grid, write_end, write_start

from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.store import Store
from ablate.variants.operator import Operator

Value = tuple[str, str, Mapping[str, float], float]
"""Table (evaluation or probe), name, point, value."""


def planted(
    root: Path, cells: Mapping[str, Operator], values: Mapping[str, Sequence[Sequence[Value]]], **more: Any
) -> Store:
    """A campaign whose cell of each label ended with `values` by seed; None is a failed run. Specs are real ones."""
    layout, task = Layout(root), {"kind": more.pop("task", "linear_functions")}
    seeds = range(max((len(of) for of in values.values()), default=1))
    lines = []
    for at, (label, operator) in enumerate(cells.items()):
        for seed in seeds:
            spec = {"operator": operator.model_dump(mode="json"), "task": task, "seed": seed, **more.get(label, {})}
            names = {"label": label, "operator": operator.label, "axes": {"operator": label}}
            keys = {"trial": f"{16 * at + seed:032x}", "cell": f"{at:032x}"}
            lines.append({**keys, "seed": seed, "grid": "planted", **names, "spec": spec})
    axis = {"path": "operator", "name": "operator", "labels": list(cells)}
    header = {"schema": 1, "grid": "planted", "cells": len(cells), "trials": len(lines), "seeds": list(seeds)}
    rest = {"axes": [axis], "rules": [], "baseline": lines[0]["cell"], "measure": None, "base": lines[0]["spec"]}
    publish_grid(layout, {**header, **rest}, lines)
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    for line in lines:
        told = values.get(line["label"], ())
        if line["seed"] < len(told):
            _finish(layout, buffer, line["trial"], told[line["seed"]], more.get("end", {}))
    buffer.flush()
    return Store.open(root)


def _finish(layout: Layout, buffer: ShardBuffer, trial: str, values: Sequence[Value] | None, end: Any) -> None:
    write_start(layout, trial, 1)
    if values is None:
        write_end(layout, trial, 1, status="failed", reason="diverged", message="inf", step=3)
        return
    for kind, name, point, value in values:
        if kind == "evaluation":
            buffer.add("evaluation", (trial, 1, 20, name, dict(point), value, 400, value / 20))
        else:  # by head, so that a mean over heads and layers is what counts
            for layer, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
                shift = 0.05 * (layer + head - 1)
                buffer.add("probe", (trial, 1, 10, name, layer, head, dict(point), 3 * value))  # not the last
                buffer.add("probe", (trial, 1, 20, name, layer, head, dict(point), value + shift))
    write_end(layout, trial, 1, **{"step": 20, **end})


def mse(seed: int, effects: Mapping[int, float]) -> list[Value]:
    """Errors at sigma_f whose logarithms differ by `effects`, and a little by seed."""
    return [
        ("evaluation", "mse", {"sigma_f": f, "sigma_x": 1}, float(f * np.exp(effect + 0.02 * ((seed * 7 + f) % 5 - 2))))
        for f, effect in effects.items()
    ]
