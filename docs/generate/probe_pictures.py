"""Pictures of probes: the values that each probe records for four example heads."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import example_heads
import numpy as np
import torch
from figures import Cell, Chart, Lines, Maps, Panel, Strip, draw_picture, number_words, values_strip
from torch import Tensor

from ablate.training.probes import (
    GateSparsity,
    GradientNorms,
    GroundMass,
    LearnedNumbers,
    MassiveActivation,
    PredictedNumbers,
    Probe,
    Probed,
    QKLogits,
    SinkShare,
    TokenClasses,
    WeightSums,
)
from ablate.variants import Tokens, Transformer, affine_scaled, gated_heads, gpt2, principled_ground, ssa
from ablate.variants.model.transformer import LayerTrace

_AXES: Final = "query down, key across"
_THRESHOLD: Final = 0.5
_OPENING_NAMES: Final = ("0.5", "0.95 at the first", "0.95", "in turns")


def _find(probe: Probe, layer: LayerTrace | None = None) -> list[Probed]:
    with torch.inference_mode():
        records = probe.of_layer(layer or example_heads.make_layer(), example_heads.make_probe_input())
        return [each for each in records if isinstance(each, Probed)]


def _heads_panels(
    probe: Probe,
    layer: LayerTrace | None = None,
    maps: Mapping[str, np.ndarray] | None = None,
    heading: str = f"weights: {_AXES}",
) -> list[Panel]:
    """Draw four maps, and below them the values that the probe records."""
    layer = layer or example_heads.make_layer()
    attended, records = layer.worked.attended, _find(probe, layer)
    maps = maps or example_heads.as_maps(attended.weights, attended.ground)
    return [Maps(heading, maps), *_value_panels(records)]


def _value_panels(records: Sequence[Probed]) -> list[Panel]:
    """Draw a strip of the values by head, and lines of the others except for histograms."""
    by_head: dict[str, dict[int, float]] = {}
    for each in records:
        if each.head is not None:
            by_head.setdefault(_record_name(each), {})[each.head] = each.value
    heads = range(len(example_heads.NAMES))
    panels: list[Panel] = [
        values_strip(name, [_value_cell(values.get(head)) for head in heads]) for name, values in by_head.items()
    ]
    others = [each for each in records if each.head is None]
    counts = Counter(each.name for each in others)
    lines = [f"{_record_name(each)} = {number_words(each.value)}" for each in others if counts[each.name] <= 3]
    return [*panels, Lines(lines)] if lines else panels


def _record_name(record: Probed) -> str:
    point = ", ".join(f"{name} {number_words(value)}" for name, value in record.point.items())
    return f"{record.name} at {point}" if point else record.name


def _value_cell(value: float | None) -> Cell:
    if value is None:
        return Cell("no row", "dim")
    return Cell(number_words(value), "odd" if value < 0 else "mark")


def _weight_sums() -> list[Panel]:
    bins = [each for each in _find(WeightSums()) if each.name == "weight_sum_count"]
    points = [each.point["sum"] for each in bins], [each.value for each in bins]
    chart = Chart("sum of a query's weights, mean over heads", "queries", bars={"mark": points}, bar_width=0.05)
    return [*_heads_panels(WeightSums()), chart]


def _sinks() -> list[Panel]:
    note = "eps is 0.5 and not 0.3: with 8 tokens even uniform attention has importance 0.34."
    return [*_heads_panels(SinkShare(eps=(0.5,), positions=(1, 4))), Lines([note])]


def _logits() -> list[Panel]:
    maps = example_heads.as_maps(example_heads.make_logits()[None] / 6)
    return _heads_panels(QKLogits(), maps=maps, heading=f"logits z, full colour at 6: {_AXES}")


def _make_openings() -> Tensor:
    """Make the values [1, H, T, 1] of a gate at every token: half open, open at the first, open, open in turns."""
    half, full = torch.full((example_heads.T,), 0.5), torch.full((example_heads.T,), 0.95)
    first = torch.where(torch.arange(example_heads.T) == 0, 0.95, 0.02)
    turns = torch.where(torch.arange(example_heads.T) % 2 == 0, 0.95, 0.05)
    return torch.stack((half, first, full, turns)).double()[None, ..., None]


def _token_panels(probe: Probe, what: str, layer: LayerTrace) -> list[Panel]:
    values = _make_openings()[0, :, None, :, 0].numpy()
    maps = dict(zip(_OPENING_NAMES, values, strict=True))
    return _heads_panels(probe, layer, maps, f"{what} at each of 8 tokens, full colour at 1")


def _gates() -> list[Panel]:
    layer = example_heads.make_layer(gated_heads(), {"output_gate.opening": _make_openings()})
    return _token_panels(GateSparsity(), "opening of the gate", layer)


def _predicted_numbers() -> list[Panel]:
    layer = example_heads.make_layer(affine_scaled(), {"rescale.scale": _make_openings()})
    return _token_panels(PredictedNumbers(), "alpha of Affine-Scaled Attention", layer)


def _ground() -> list[Panel]:
    numbers = {
        "normaliser.threshold": torch.full((1, 1, 1, 1), _THRESHOLD, dtype=torch.float64),
        "readout.ground_value": torch.zeros(1, 1, 1, example_heads.T, dtype=torch.float64),
    }
    heading = f"weights of principled_ground at threshold {_THRESHOLD:g}, from the heads' logits; left: ground state"
    return _heads_panels(GroundMass(), example_heads.compute_layer(principled_ground(), numbers), heading=heading)


def _learned_numbers() -> list[Panel]:
    layers, heads = 2, len(example_heads.NAMES)
    model = Transformer(gpt2(layers=layers, heads=heads, width=16), [ssa()] * layers, inputs=Tokens(8), seed=0)
    with torch.no_grad():
        for at, table in enumerate(model.number_parameters(), 1):
            table.copy_(table + torch.linspace(-0.5, 1.0, table.numel()).view_as(table) * at / 2)
    records = list(LearnedNumbers().of_model(example_heads.make_probe_input()._replace(model=model)))
    panels: list[Panel] = []
    for name in dict.fromkeys(each.name for each in records):
        rows: dict[str, list[Cell]] = {"": [Cell(f"head {head}", "dim") for head in range(heads)]}
        for each in records:
            if isinstance(each, Probed) and each.name == name:
                rows.setdefault(f"layer {each.layer}", []).append(Cell(number_words(each.value), "mark"))
        panels.append(Strip(name, rows, size=0.8))
    return panels


def _massive_activation() -> list[Panel]:
    """Draw a residual stream whose first token grows from layer to layer."""
    sizes = torch.ones(3, example_heads.T, dtype=torch.float64)
    sizes[1] = torch.linspace(1.2, 1.6, example_heads.T)
    sizes[2] = torch.linspace(1.5, 2.1, example_heads.T)
    sizes[1, 0], sizes[2, 0] = 8.0, 60.0
    streams = sizes[:, None, :, None] * torch.ones(4, dtype=torch.float64) / 2
    layer = example_heads.make_layer()
    traces = [layer._replace(layer=at, entering=streams[at], leaving=streams[at + 1]) for at in (0, 1)]
    records = [each for trace in traces for each in _find(MassiveActivation(), trace) if "ratio" in each.name]
    rows = {"": [Cell(f"token {at + 1}", "dim") for at in range(example_heads.T)]}
    for depth, norms in enumerate(sizes.tolist()):
        rows[f"depth {depth}"] = [Cell(number_words(norm), "" if at else "odd") for at, norm in enumerate(norms)]
    lines = [f"{_record_name(each)} = {number_words(each.value)}" for each in records]
    return [Strip("norm |h_t| of the residual stream", rows, size=0.6), Lines(lines)]


def _gradient_norms() -> list[Panel]:
    """Draw norms that fall during the warm-up and are steady afterwards, except for three steps."""
    steps = list(range(1, 201))
    norms = [1.0 + 4.0 * 0.9**step + 0.1 * (step * 7 % 11) / 11 for step in steps]
    norms[59], norms[79], norms[99] = 3.0, 1.2, 4.0
    probe = GradientNorms()
    records = probe.of_model(example_heads.make_probe_input()._replace(norms=norms))
    median = float(np.median(norms))
    bound = median + max(probe.k) * float(np.median(np.abs(np.array(norms) - median)))
    spikes = [(step, norm) for step, norm in zip(steps, norms, strict=True) if norm > bound]
    chart = Chart(
        "training step",
        "norm of the gradient",
        lines={"plain": ([1, 200], [bound, bound]), "mark": (steps, norms)},
        dots={"odd": tuple(zip(*spikes, strict=True))},
    )
    return [chart, *_value_panels([each for each in records if isinstance(each, Probed)])]


def _token_classes() -> list[Panel]:
    tokens = [Cell("␣" if token == " " else token) for token in example_heads.SENTENCE]
    return [Strip("", {"tokens": tokens}), *_heads_panels(TokenClasses(by="bytes"))]


_SIGNS: Final = {"mark": "positive", "odd": "negative"}
PICTURES: Final[Mapping[str, tuple[Callable[[], list[Panel]], Mapping[str, str]]]] = {
    "gate_sparsity": (_gates, {"mark": "open"}),
    "gradient_norms": (_gradient_norms, {"mark": "norm", "plain": "median + 9 MAD", "odd": "spikes at k = 9"}),
    "ground_mass": (_ground, _SIGNS),
    "learned_numbers": (_learned_numbers, {"mark": "numbers of ssa(), changed by hand"}),
    "massive_activation": (_massive_activation, {"odd": "the first token"}),
    "predicted_numbers": (_predicted_numbers, {"mark": "value"}),
    "qk_logits": (_logits, _SIGNS),
    "sink_share": (_sinks, _SIGNS),
    "token_classes": (_token_classes, _SIGNS),
    "weight_sums": (_weight_sums, _SIGNS),
}
"""Panels and legend of probes whose picture is not `_heads_panels` with their defaults."""


def draw_probe(kind: str) -> str:
    usual = partial(_heads_panels, Probe.members()[kind]()), _SIGNS
    panels, legend = PICTURES.get(kind, usual)
    return draw_picture(f"{kind}: recorded values", panels(), legend)


def draw_heads() -> str:
    weights = Maps(f"weights, full colour at 1: {_AXES}", example_heads.as_maps(example_heads.make_weights()))
    logits = Maps("logits, full colour at 6", example_heads.as_maps(example_heads.make_logits()[None] / 6))
    return draw_picture("The four example heads", [weights, logits], _SIGNS)
