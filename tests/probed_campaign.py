"""A campaign whose probes recorded numbers that are known, and whose runs left attention maps."""

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from synthetic import MEASURE, SUBMISSION, plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.store.files.atomic import write_atomic
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer

NAMES: Final = ("softmax", "SSA", "<script>%{x}</script>")
SEEDS: Final = (0, 1, 2)
STEPS: Final = (10, 20)
LAYERS, HEADS, TOKENS = 2, 3, 6
TEXT: Final = "a <b>\n"


def first(place: int, seed: int, step: int, layer: int, head: int) -> float:
    """The weight of the first token that cell number `place` has."""
    return (1 + place) * (layer + 0.1 * head + 0.01 * seed**2) - (0.0 if step == STEPS[-1] else 5.0)


def weights(place: int, seed: int) -> npt.NDArray[np.float16]:
    """[2 sequences, heads, tokens, tokens], of one layer: causal, uniform for the first cell and signed for others."""
    found = np.tril(np.ones((2, HEADS, TOKENS, TOKENS))) / np.arange(1, TOKENS + 1)[:, None]
    if place:
        found = found * np.where(np.arange(TOKENS) % 2, -1.0, 1.0) * (1 + 0.1 * seed)
    return found.astype(np.float16)


def write_probed(root: Path, *, maps: bool = True) -> Layout:
    """Three cells of three seeds; the last cell's seed 2 has failed, and that of seed 1 has not begun."""
    lines = plan_lines(NAMES, SEEDS, "probed", {})
    probing = {"probes": [{"kind": "attention_maps", "sequences": 2}] if maps else []}
    for line in lines:
        task = {"kind": "text", "tokenizer": {"kind": "bytes"}}
        line["spec"] = {**line["spec"], "probing": probing, "task": task}
    layout = Layout(root)
    publish_grid(layout, plan_header(lines, "probed", {}, NAMES) | {"measure": MEASURE}, lines)
    buffer = ShardBuffer(layout, submission=SUBMISSION, worker=0)
    for line in lines:
        place, seed = NAMES.index(line["operator"]), line["seed"]
        if (place, seed) == (2, 1):
            continue
        _write(layout, buffer, line, place)
        if maps:
            write_maps(layout, line["trial"], weights(place, seed))
    buffer.flush()
    return layout


def _write(layout: Layout, buffer: ShardBuffer, line: Mapping[str, Any], place: int) -> None:
    key, seed = line["trial"], line["seed"]
    write_start(layout, key, 1)
    for step in STEPS:
        for layer in range(LAYERS):
            for head in range(HEADS):
                value = first(place, seed, step, layer, head)
                buffer.add("probe", (key, 1, step, "first_token_weight", layer, head, {}, value))
                for query in (2.0, 3.0, 4.0):
                    at = {"query": query}
                    buffer.add("probe", (key, 1, step, "first_token_weight", layer, head, at, value / query))
                for eps in (0.2, 0.3):
                    at = {"eps": eps, "position": 1.0}
                    buffer.add("probe", (key, 1, step, "sink_share", layer, head, at, eps * (layer + 1)))
            for middle, count in ((0.9, 1.0), (1.0, 6.0), (1.1, 3.0)):
                buffer.add("probe", (key, 1, step, "weight_sum_count", layer, None, {"sum": middle}, count))
        buffer.add("probe", (key, 1, step, "gradient_norm_cv", None, None, {}, 1.0 + place))
        buffer.add("probe", (key, 1, step, "holes", 0, 0, {}, math.nan if seed == 0 else 2.0))
    point = MEASURE["point"]
    buffer.add("evaluation", (key, 1, STEPS[-1], "mse", point, math.exp(-place), 10, None))
    if (place, seed) == (2, 2):
        write_end(layout, key, 1, status="failed", reason="diverged", message="the loss was nan", step=STEPS[-1])
    else:
        write_end(layout, key, 1, step=STEPS[-1])


def write_maps(layout: Layout, key: str, found: npt.NDArray[Any], **more: npt.NDArray[Any]) -> None:
    """The maps of every layer, and what the model was given, at the last step."""
    for layer in range(LAYERS):
        write_arrays(layout, key, f"attention-{layer:02d}", weights=found, **more)
    given = np.frombuffer(TEXT.encode(), np.uint8).astype(np.int64)
    write_arrays(layout, key, "attention-inputs", inputs=np.stack([given, given[::-1]]))


def write_arrays(layout: Layout, key: str, name: str, **found: npt.NDArray[Any]) -> None:
    """A file of arrays, as probes leave it."""
    sink = io.BytesIO()
    np.savez_compressed(sink, allow_pickle=False, **found)
    path = layout.artefact(key, 1, STEPS[-1], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, sink.getvalue())
