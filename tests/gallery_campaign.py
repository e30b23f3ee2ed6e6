"""A synthetic campaign with a grid for every figure and table of the papers that grids measure, whose values are known.

Nobody trained anything: `known` makes every value from the label of a cell, the name of the measurement, where it was
measured and the seed. Names, points, layers and heads are those that tasks and probes record.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import SUBMISSION, publish_grid, write_end, write_start

from ablate.grid.key import canonical_json, content_key
from ablate.papers.figures.derived_metrics import list_needed_names
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.published.tables import PublishedCell, cells, operators

LAYERS, HEADS, TOKENS = range(3), range(2), 8
STEPS = tuple(range(0, 60, 6))
OVER_STEPS = {
    **dict.fromkeys(("loss", "grad_norm", "validation_loss"), STEPS),
    **dict.fromkeys(("qk_logit_mean", "sink_share"), STEPS[::3]),
}
"""Steps of measurements; all others are recorded at the last step."""
Row = tuple[str, str, Mapping[str, float], int | None, int | None]
"""Table (metric, evaluation or probe), name, point, layer, head."""


def known(label: str, name: str, point: Mapping[str, float], seed: int, where: tuple[float, ...] = ()) -> float:
    """The planted value: a level of the label and the name, risen smoothly by coordinates.

    Seeds are 2 % apart, a little more or less in each cell, so that paired differences vary.

    `where` has further coordinates, such as layer and head, or the step.
    """
    if name.startswith("weight_sum") and label.startswith("softmax"):  # softmax is normalised
        return 400.0 * (point["sum"] == 1.0) if "sum" in point else 1.0
    level = 0.2 + 0.4 * (zlib.crc32(f"{label}|{name}".encode()) % 1000) / 1000
    at = [*(value for _, value in sorted(point.items())), *where]
    apart = 0.02 * (seed - 1) + 0.002 * ((zlib.crc32(label.encode()) + 7 * seed * seed) % 5 - 2)
    if name.startswith("weight_sum_"):  # a bell of counts, its mean and its median
        middle = 0.65 + 0.2 * (zlib.crc32(label.encode()) % 1000) / 1000 + (0.01 if name.endswith("median") else 0)
        return (400 * math.exp(-(((point["sum"] - middle) / 0.12) ** 2)) if "sum" in point else middle) * (1 + apart)
    level *= 0.1 if name == "entropy_last_sd" else 1
    level *= 60 * math.tanh(point["a"] * point["x"] / 60) if name == "boundary_prediction" else 1
    return float(level * (1 + sum(abs(c) / (5 + abs(c)) for c in at) / (2 + 2 * len(at))) * (1 + apart))


@dataclass(frozen=True)
class Made:
    """A cell of a grid, and what its trials record."""

    label: str
    spec: Mapping[str, Any]
    axes: Mapping[str, str]
    rows: Sequence[Row]


def _nowhere(cell: int, seed: int) -> bool:
    return False


@dataclass(frozen=True)
class Harm:
    """Faults of a campaign: predicates of the place of a cell in its grid and the seed."""

    seeds: Sequence[int] = (0, 1, 2)
    pending: Callable[[int, int], bool] = _nowhere
    failed: Callable[[int, int], bool] = _nowhere
    nan: Callable[[int, int], bool] = _nowhere


def spec_of(operator: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a spec that make it an operator of the papers."""
    made = next(each for each in operators() if each.operator == operator and each.arguments == arguments)
    spec: dict[str, Any] = {}
    for path, text in {**made.kinds, **made.numbers}.items():
        *parents, last = path.removeprefix("$.").split(".")
        inner = spec
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = json.loads(text)
    value = spec.get("extra", {}).get("learned_value", {})
    if "norm" in value:  # the length of `init` in the four channels of a head of `MODEL`
        value["init"] = value.pop("norm") / 2
    return spec


MODEL = {"width": 8, "heads": 2}


def write_gallery(root: Path, grids: Mapping[str, Sequence[Made]], harm: Harm = Harm()) -> Path:
    """Write a campaign with these grids."""
    layout = Layout(root)
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    done: set[str] = set()
    for name, made in grids.items():
        lines = []
        for place, cell in enumerate(made):
            for seed in harm.seeds:
                line = _line(name, cell, seed)
                lines.append(line)
                if line["trial"] not in done and not harm.pending(place, seed):
                    done.add(line["trial"])
                    _run(layout, buffer, line, cell, harm, place)
        publish_grid(layout, _header(name, made, lines, harm), lines, None)
    buffer.flush()
    return root


_OF_OPERATOR = ("operator", "layers")
"""Axes that the operator and its placement are said by already."""


def _line(grid: str, cell: Made, seed: int) -> dict[str, Any]:
    spec = {**cell.spec, "axes": {name: level for name, level in cell.axes.items() if name not in _OF_OPERATOR}}
    return {
        "trial": content_key(canonical_json({**spec, "grid": grid, "seed": seed})),
        "cell": content_key(canonical_json({**spec, "grid": grid})),
        "seed": seed,
        "grid": grid,
        "label": cell.label,
        "operator": cell.axes["operator"],
        "axes": dict(cell.axes),
        "spec": {**spec, "seed": seed},
    }


def _header(name: str, made: Sequence[Made], lines: Sequence[Mapping[str, Any]], harm: Harm) -> dict[str, Any]:
    axes = {axis: list(dict.fromkeys(cell.axes[axis] for cell in made if axis in cell.axes)) for axis in made[0].axes}
    return {
        "schema": 1,
        "grid": name,
        "cells": len(made),
        "trials": len(lines),
        "seeds": list(harm.seeds),
        "axes": [{"path": axis, "name": axis, "labels": labels} for axis, labels in axes.items()],
        "rules": [],
        "baseline": lines[0]["cell"],
        "measure": {"name": "mse", "point": {"sigma_f": 3.0, "sigma_x": 1.0}, "scale": "log", "rope": 0.1},
        "base": lines[0]["spec"],
    }


def _run(layout: Layout, buffer: ShardBuffer, line: Mapping[str, Any], cell: Made, harm: Harm, place: int) -> None:
    key, seed = line["trial"], line["seed"]
    write_start(layout, key, 1)
    if harm.failed(place, seed):
        write_end(layout, key, 1, status="failed", reason="diverged", message="the loss was nan at step 3", step=3)
        return
    for row in cell.rows:
        table, name, point, layer, head = row
        if table == "artefact":
            _maps(layout, key, cell.label, seed)
            continue
        where = tuple(float(at) for at in (layer, head) if at is not None)
        for step in OVER_STEPS.get(name, STEPS[-1:]):
            at = (*where, float(STEPS[-1] - step)) if name in OVER_STEPS else where
            value = float("nan") if harm.nan(place, seed) else known(cell.label, name, point, seed, at)
            buffer.add(table, _row(row, key, step, value))
    write_end(layout, key, 1, step=STEPS[-1], operator_parameters=1000 * (place + 1))


def _row(row: Row, key: str, step: int, value: float) -> tuple[Any, ...]:
    table, name, point, layer, head = row
    if table == "metric":
        return key, 1, step, name, value, 0.01 * step
    if table == "evaluation":
        return key, 1, step, name, dict(point), value, 400, None
    return key, 1, step, name, layer, head, dict(point), value


def _maps(layout: Layout, key: str, label: str, seed: int) -> None:
    for layer in LAYERS:
        path = layout.artefact(key, 1, STEPS[-1], f"attention-{layer:02d}")
        path.parent.mkdir(parents=True, exist_ok=True)
        maps = {"weights": weights(label, seed, layer)}
        if label.startswith("learned_sink"):
            maps["ground"] = maps["weights"][..., 0] / 2
        np.savez(path, **{name: each.astype(np.float16) for name, each in maps.items()})
    inputs = np.arange(TOKENS, dtype=np.int64)[None]
    np.savez(layout.artefact(key, 1, STEPS[-1], "attention-inputs"), inputs=inputs)


def weights(label: str, seed: int, layer: int) -> np.ndarray[Any, Any]:
    """Causal attention weights [1, H, T, T] whose first column is `known`."""
    found = np.zeros((1, len(HEADS), TOKENS, TOKENS))
    for head in HEADS:
        first = known(label, "attention", {}, seed, (float(layer), float(head)))
        for query in range(TOKENS):
            found[0, head, query, : query + 1] = (1 - first) / max(query, 1)
            found[0, head, query, 0] = first if query else 1.0
    return found


def is_of_others(cell: PublishedCell) -> bool:
    """Whether a printed cell is of a public model, which no paper trained: it gets no number."""
    return cell.operator is None and cell.data is None


def table_grids() -> dict[str, list[Made]]:
    """A grid for every table of values: a cell for each operator, model and setup that it prints."""
    found: dict[str, list[Made]] = {}
    ours = [cell for cell in cells() if not is_of_others(cell)]
    for paper, table in dict.fromkeys((cell.paper, cell.paper_table.partition("-")[0]) for cell in ours):
        printed = [c for c in ours if c.paper == paper and c.paper_table.partition("-")[0] == table]
        found[f"{paper}-table-{table[1:]}"] = list(_cells_of(printed))
    return found


def setups_of(printed: Sequence[PublishedCell]) -> list[str]:
    """The facts of a table that its grid has axes for."""
    return sorted({name for cell in printed for name in cell.setup} - {"shots", "layer from the end", "biases"})


def axes_of(cell: PublishedCell, names: Sequence[str]) -> dict[str, str]:
    """The axes of the cell that stands for a printed one; joined they are its label."""
    given = cell.arguments if cell.operator else {}
    arguments = "".join(f" {name}={value}" for name, value in given.items())
    axes = {"operator": f"{cell.operator or 'softmax'}{arguments}", "model": cell.model}
    return axes | {name: cell.setup.get(name, "usual") for name in names} | {"layers": cell.placement or "all layers"}


def _cells_of(printed: Sequence[PublishedCell]) -> Iterator[Made]:
    """Softmax comes first: the ranks of 002, table 5, are against it."""
    names = setups_of(printed)
    made: dict[str, dict[str, str]] = {}
    specs: dict[str, dict[str, Any]] = {}
    rows = [row for cell in printed for row in rows_of(cell)]
    plain = any(cell.operator != "softmax" for cell in printed)
    for cell in sorted(printed, key=lambda cell: cell.operator != "softmax" if plain else False):
        operator, given = cell.operator or "softmax", cell.arguments if cell.operator else {}
        axes = axes_of(cell, names)
        label = " · ".join(axes.values())
        side, _, share = (cell.placement or "all layers").partition(" ")
        placed = {} if side == "all" else {"placement": {"side": side, "share": float(share.removesuffix(" %")) / 100}}
        made[label] = axes
        specs[label] = {
            "operator": spec_of(operator, given),
            "task": {"kind": cell.task or "text"},
            **({"model": MODEL} if operator == "fixed_value_bias" else {}),
            **placed,
        }
    if any("rank" in cell.metric for cell in printed):
        for model in dict.fromkeys(cell.model for cell in printed):
            axes = {**next(iter(made.values())), "operator": "softmax", "model": model}
            label = " · ".join(axes.values())
            made = {label: axes, **made}
            specs[label] = {"operator": spec_of("softmax", {}), "task": {"kind": "text"}}
    unique = list({json.dumps([row[0], row[1], dict(row[2]), *row[3:]]): row for row in rows}.values())
    yield from (Made(label, specs[label], axes, unique) for label, axes in made.items())


def rows_of(cell: PublishedCell) -> Iterator[Row]:
    """Yield the rows that a run records for a printed cell."""
    name, point = cell.measurement, dict(cell.point)
    if name == "loss":
        yield "metric", name, {}, None, None
    elif name == "sink_share":
        yield from (("probe", name, point, layer, head) for layer in LAYERS for head in HEADS)
    elif name is not None and name.startswith(("gradient_",)):
        yield "probe", name, point, None, None
    elif name is not None:
        yield "evaluation", name, point, None, None
    elif cell.metric.startswith("mean accuracy"):
        at = {"fewshot": 0} if cell.paper == "000" else {}
        yield from (("evaluation", task, at, None, None) for task in list_needed_names(cell))
    elif "lambada" in cell.metric:
        yield "evaluation", "lm_eval.lambada_openai.acc", {"fewshot": float(cell.setup["shots"])}, None, None
    elif "LongBench" in cell.metric:
        yield "evaluation", f"lm_eval.longbench_{cell.metric.split()[1].lower()}.score", {"factor": 4.0}, None, None
    elif "rank" in cell.metric:
        yield from (
            ("probe", "effective_rank_median", {"sequence": float(sequence)}, layer, None)
            for layer in LAYERS
            for sequence in (1, 2, 3, 4)
        )


def figure_grids() -> dict[str, list[Made]]:
    """Grids for the figures, and `GRID_OF` says which of them shows what."""
    return {
        "000-figures": _variants(("softmax", "learned_sink", "affine_scaled"), _rows_000(), model=("0.5B", "1B", "3B")),
        "001-design": _design(),
        "002-figures": _variants(("softmax", "cog", "differential", "integral"), _rows_002()),
        "003-figures": _variants(("softmax", "ssa"), _rows_003(), task="linear_functions"),
        "003-boundaries": _variants(("softmax",), _rows_003(), task="linear_functions", feedforward=("gelu", "none")),
        "003-quantifiers": _variants(("softmax", "ssa"), _rows_003(), quantifier=("every", "some")),
        "003-sizes": _variants(
            ("softmax",), _rows_003(), task="linear_functions", model=("1 layer, 1 head", "3 layers, 4 heads")
        ),
        "004-dynamics": _one_at_a_time(_rows_004()),
        "004-variants": _variants(("softmax", "sigmoid", "key_bias", "value_bias"), _rows_004()),
    }


def grid_of(key: str) -> str:
    """The grid that shows the item `key`."""
    return _GRID_OF.get(key, f"{key[:3]}-figures" if "figure" in key else key)


_GRID_OF = {
    "001-design-table": "001-design",
    "003-figure-1": "003-boundaries",
    **{f"003-figure-{number}": "003-quantifiers" for number in (4, 5)},
    "003-figure-11": "003-sizes",
    "004-figure-2": "004-dynamics",
    **{f"004-figure-{number}": "004-variants" for number in (3, 4, 8)},
}


def _variants(names: Sequence[str], rows: Sequence[Row], task: str = "text", **axes: Sequence[str]) -> list[Made]:
    made = []
    for levels in product(names, *axes.values()):
        given = dict(zip(("operator", *axes), levels, strict=True))
        some = next(each for each in operators() if each.operator == levels[0])
        asked = {"kind": "quantifiers", "quantifier": given["quantifier"]} if "quantifier" in given else {"kind": task}
        spec = {"operator": spec_of(levels[0], some.arguments), "task": asked}
        made.append(Made(" · ".join(levels), spec, given, rows))
    return made


def _one_at_a_time(rows: Sequence[Row]) -> list[Made]:
    """A base, and cells that differ from it in one axis."""
    base = {"operator": "softmax", "learning_rate": "0.0004", "training_tokens": "5000"}
    others = {"learning_rate": ("0.0001", "0.001"), "training_tokens": ("500", "1000")}
    all_axes = [base, *({**base, name: level} for name, levels in others.items() for level in levels)]
    spec = {"operator": spec_of("softmax", {}), "task": {"kind": "text"}}
    return [Made(" · ".join(axes.values()), spec, axes, rows) for axes in all_axes]


def _design() -> list[Made]:
    levels = ("constant", "layer", "head", "query")
    names = ("strength_per", "threshold_per", "amplification_per", "ground_value_per")
    base = {"operator": "principled", **dict.fromkeys(names, "constant")}
    all_axes = [base, *({**base, name: level} for name in names for level in levels[1:] if (name, level) != _NEVER)]
    rows: list[Row] = [("evaluation", "mse", {"sigma_f": 3.0, "sigma_x": 1.0}, None, None)]
    spec = {"operator": {"kind": "principled"}, "task": {"kind": "linear_functions"}}
    return [Made(" · ".join(axes.values()), spec, axes, rows) for axes in all_axes]


_NEVER = ("ground_value_per", "query")
"""The ground state's value does not vary by query."""


def _probe(name: str, *points: Mapping[str, float], heads: bool = True) -> list[Row]:
    places = product(points or ({},), LAYERS, HEADS if heads else (None,))
    return [("probe", name, point, layer, head) for point, layer, head in places]


def _rows_000() -> list[Row]:
    sums = [{"sum": round(0.05 * i, 2)} for i in range(10, 21)]
    return [
        ("metric", "loss", {}, None, None),
        ("metric", "grad_norm", {}, None, None),
        *(row for name in ("qk_logit_mean", "first_token_weight", "weight_sum", "entropy") for row in _probe(name)),
        *_probe("weight_sum_count", *sums, heads=False),
        *_probe("weight_sum_mean", heads=False),
        *_probe("weight_sum_median", heads=False),
        ("artefact", "attention_maps", {}, None, None),
    ]


def _rows_002() -> list[Row]:
    return [
        *_probe("first_token_weight", *({"query": float(query)} for query in range(2, 10))),
        *(row for name in CLASSES for row in _probe(f"token_class.closed_class.{name}")),
        *_probe("entropy_last"),
        *_probe("entropy_last_sd", heads=False),
        *_probe("first_token_negative"),
    ]


CLASSES = ("special_punctuation", "content", "function", "other")


def _rows_003() -> list[Row]:
    def grid(name: str, **axes: Sequence[float]) -> list[Row]:
        points = [dict(zip(axes, map(float, at), strict=True)) for at in product(*axes.values())]
        return [("evaluation", name, point, None, None) for point in points]

    return [
        *grid("mse", sigma_f=(1, 3, 5, 10), sigma_x=(1, 2)),
        *grid("error_rate", length=(10, 40, 100), sigma=(1, 10, 30)),
        *grid("boundary_prediction", a=(1, 10), x=(-100, -50, -10, 0, 10, 50, 100)),
        ("artefact", "attention_maps", {}, None, None),
    ]


def _rows_004() -> list[Row]:
    depths = [{"depth": float(depth)} for depth in (0, 1, 2, 3)]
    places = [{"eps": 0.3, "position": position} for position in (1.0, 2.0, 3.0, 4.0)]
    found: list[Row] = [("metric", "loss", {}, None, None), ("evaluation", "validation_loss", {}, None, None)]
    found += _probe("sink_share", *places)
    for name in ("activation_ratio", "unnormed_activation_ratio"):
        found += [("probe", name, point, int(point["depth"]), None) for point in depths]
    return found


def many_levels(count: int = 200) -> list[Made]:
    """A grid of so many cells that records a little of everything."""
    names = ("softmax", "ssa", "learned_sink", "cog")
    rows = [*_rows_000(), *_rows_002(), *_rows_003()[:8], *_rows_004()]
    few = [row for row in rows if row[0] != "artefact" and (row[3] or 0) == 0 and (row[4] or 0) == 0]
    made = []
    for place in range(count):
        operator = names[place % len(names)]
        arguments = next(each for each in operators() if each.operator == operator).arguments
        axes = {"operator": operator, "model": f"{place}B", "text": f"<b>{place}%{{x}}</b>"}
        spec = {"operator": spec_of(operator, arguments), "task": {"kind": "text"}}
        made.append(Made(" · ".join(axes.values()), spec, axes, few))
    return made
