"""What is drawn of each probe: what it finds in four heads made by hand (`hand_set`), or in what it looks at instead.

A new kind needs an entry in `PROBES`: a spec of it to copy, and what its picture shows.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grid.errors import SpecError
from runners.catalogue import hand_set
from runners.catalogue.choice_words import ProbeRow
from runners.catalogue.panels import (
    Bars,
    Cell,
    Chart,
    Columns,
    Map,
    Panel,
    Row,
    Series,
    Strip,
    Words,
    number,
    picture,
)
from runners.catalogue.probed_words import PROBED
from runners.probes import (
    AttentionEntropy,
    AttentionMaps,
    EffectiveRank,
    FirstKey,
    FirstToken,
    GateSparsity,
    GradientNorms,
    GroundMass,
    LearnedNumbers,
    MassiveActivation,
    PredictedNumbers,
    Probe,
    ProbeArray,
    Probed,
    QKLogits,
    SinkShare,
    TokenClasses,
    WeightSums,
)
from variants import Tokens, Transformer, affine_scaled, gated_heads, gpt2, principled_ground, ssa
from variants.model.transformer import LayerTrace

Finds = Sequence[Probed | ProbeArray]


class Shown(NamedTuple):
    """A picture and what the probe found for it."""

    panels: list[Panel]
    found: Finds


class Drawing(NamedTuple):
    """How a kind is shown."""

    probe: Probe
    """A spec to copy."""
    show: Callable[[], Shown]
    legend: Mapping[str, str]
    cost: str = ""
    """What it computes beside what all probes share."""
    further: Callable[[], Finds] = tuple
    """Rows that are not in the picture: of other fields, several sequences or other models."""


def _at(probe: Probe, layer: LayerTrace) -> list[Probed | ProbeArray]:
    with torch.inference_mode():
        return list(probe.of_layer(layer, hand_set.seen()))


def _heads(
    probe: Probe, layer: LayerTrace | None = None, maps: Sequence[Map] | None = None, heading: str = "weights: "
) -> Callable[[], Shown]:
    """The four heads above, and below them what the probe finds in each."""

    def show() -> Shown:
        watched = layer or hand_set.layer()
        found = _at(probe, watched)
        shown = maps or hand_set.maps(watched.worked.attended.weights, watched.worked.attended.ground)
        words = f"{heading}query down, key across" if heading.endswith(": ") else heading
        panels: list[Panel] = [Columns(words, shown, _bars(found))]
        lines = _lines(found)
        return Shown([*panels, Words(lines)] if lines else panels, found)

    return show


def _bars(found: Finds) -> list[Bars]:
    """A line for each row by head."""
    values: dict[tuple[str, str], dict[int, float]] = {}
    for each in found:
        if isinstance(each, Probed) and each.head is not None:
            values.setdefault((each.name, _point(each)), {})[each.head] = each.value
    heads = range(len(hand_set.NAMES))
    return [
        Bars(name, point, [by_head.get(head) for head in heads], _told(name)[1])
        for (name, point), by_head in values.items()
    ]


def _lines(found: Finds) -> list[str]:
    """Rows of a layer or of the model, but for histograms."""
    rows = [each for each in found if isinstance(each, Probed) and each.head is None]
    often = {name for name, count in Counter(row.name for row in rows).items() if count > 3}
    told = [f"{row.name} {_point(row)}".strip() + f" = {number(row.value)}" for row in rows if row.name not in often]
    return ["; ".join(told[at : at + 2]) for at in range(0, len(told), 2)]


def _point(row: Probed) -> str:
    return f"at {', '.join(f'{name} {number(value)}' for name, value in row.point.items())}" if row.point else ""


def _attention_maps() -> Shown:
    found = _at(AttentionMaps(), hand_set.layer())
    with torch.inference_mode():
        found += AttentionMaps().of_model(hand_set.seen())
    (weights,) = (each.arrays["weights"] for each in found if isinstance(each, ProbeArray) and "weights" in each.arrays)
    heading = "attention-00, array weights [1, 4, 8, 8], float16: query down, key across"
    return Shown([Columns(heading, hand_set.maps(torch.from_numpy(weights.astype(np.float64))), left=24)], found)


def _weight_sums() -> Shown:
    panels, found = _heads(WeightSums())()
    bins = [each for each in found if isinstance(each, Probed) and each.name == "weight_sum_count"]
    counts = Series("mark", [(each.point["sum"], each.value) for each in bins])
    chart = Chart("weight_sum_count", "sum of a query's weights, mean over heads", "queries", [counts], as_bars=0.05)
    return Shown([*panels, chart], found)


def _sinks() -> Shown:
    """At a bound that uniform attention over so few tokens does not reach."""
    panels, found = _heads(SinkShare(eps=(0.5,), positions=(1, 4)))()
    told = "eps is 0.5 here and not 0.3, since of 8 tokens even uniform attention has importance 0.34."
    return Shown([*panels, Words([told])], found)


def _two_sequences() -> Finds:
    layer = hand_set.layer()
    heads, weights = layer.worked.heads, layer.worked.attended.weights
    twice = {name: getattr(heads, name).repeat(2, 1, 1, 1) for name in ("q", "k", "v")}
    attended = layer.worked.attended._replace(weights=weights.repeat(2, 1, 1, 1))
    worked = layer.worked._replace(heads=heads._replace(**twice), attended=attended)
    return _at(AttentionEntropy(), layer._replace(worked=worked))


def _post_norm() -> Finds:
    layer = hand_set.layer()
    return _at(MassiveActivation(), layer._replace(unnormed=layer.leaving))


def _not_finite() -> Finds:
    return list(GradientNorms().of_model(hand_set.seen()._replace(norms=[1.0, float("inf")])))


def _first_key() -> Shown:
    return _heads(FirstKey())()


def _qk_logits() -> Shown:
    largest = 6
    heading = f"logits z, full at {largest}: query down, key across"
    return _heads(QKLogits(), maps=hand_set.maps(hand_set.logits()[None] / largest), heading=heading)()


def _openings() -> Tensor:
    """Of an output gate at every token [1, H, T, 1]: half open, closed but at the first, open, by turns."""
    half, open_ = torch.full((hand_set.T,), 0.5), torch.full((hand_set.T,), 0.95)
    first = torch.where(torch.arange(hand_set.T) == 0, 0.95, 0.02)
    turns = torch.where(torch.arange(hand_set.T) % 2 == 0, 0.95, 0.05)
    return torch.stack((half, first, open_, turns)).double()[None, ..., None]


_OPENINGS = ("0.5", "0.95 at the first", "0.95", "by turns")


def _along_tokens(probe: Probe, what: str, layer: LayerTrace) -> Callable[[], Shown]:
    strips = [Map(name, [row]) for name, row in zip(_OPENINGS, _openings()[0, ..., 0].tolist(), strict=True)]
    return _heads(probe, layer, strips, f"{what} at each of 8 tokens, full at 1")


def _gates() -> Shown:
    layer = hand_set.layer(gated_heads(), {"output_gate.opening": _openings()})
    return _along_tokens(GateSparsity(), "opening of the gate", layer)()


def _predicted() -> Shown:
    layer = hand_set.layer(affine_scaled(), {"rescale.scale": _openings()})
    return _along_tokens(PredictedNumbers(), "alpha of Affine-Scaled Attention", layer)()


THRESHOLD = 0.5


def _ground() -> Shown:
    operator = principled_ground()
    numbers = {
        "normaliser.threshold": torch.full((1, 1, 1, 1), THRESHOLD, dtype=torch.float64),
        "readout.ground_value": torch.zeros(1, 1, 1, hand_set.T, dtype=torch.float64),
    }
    heading = (
        f"weights of principled_ground at threshold {THRESHOLD:g}, computed from the heads' logits; left: ground state"
    )
    return _heads(GroundMass(), hand_set.computed(operator, numbers), heading=heading)()


def _learned() -> Shown:
    layers, heads = 2, len(hand_set.NAMES)
    model = Transformer(gpt2(layers=layers, heads=heads, width=16), [ssa()] * layers, inputs=Tokens(8), seed=0)
    with torch.no_grad():
        for at, table in enumerate(model.number_parameters()):
            table.copy_(table + torch.linspace(-0.5, 1.0, table.numel()).view_as(table) * (at + 1) / 2)
    found = [
        each for each in LearnedNumbers().of_model(hand_set.seen()._replace(model=model)) if isinstance(each, Probed)
    ]
    names = list(dict.fromkeys(each.name for each in found))
    panels: list[Panel] = []
    for name in names:
        rows = [Row("", [Cell(f"head {head}", "dim") for head in range(heads)])]
        for layer in range(layers):
            values = [each.value for each in found if each.name == name and each.layer == layer]
            rows.append(Row(f"layer {layer}", [Cell(number(value), "mark") for value in values]))
        panels.append(Strip(name, rows, size=80))
    return Shown(panels, found)


def _massive() -> Shown:
    """A stream whose first token grows from layer to layer."""
    sizes = torch.ones(3, hand_set.T, dtype=torch.float64)
    sizes[1], sizes[2] = torch.linspace(1.2, 1.6, hand_set.T), torch.linspace(1.5, 2.1, hand_set.T)
    sizes[1, 0], sizes[2, 0] = 8.0, 60.0
    streams = sizes[:, None, :, None] * torch.ones(4, dtype=torch.float64) / 2
    found: list[Probed | ProbeArray] = []
    for at in (0, 1):
        found += _at(
            MassiveActivation(), hand_set.layer()._replace(layer=at, entering=streams[at], leaving=streams[at + 1])
        )
    names = Row("", [Cell(f"token {at + 1}", "dim") for at in range(hand_set.T)])
    rows = [
        Row(f"depth {depth}", [Cell(number(size), "" if at else "odd") for at, size in enumerate(of_depth.tolist())])
        for depth, of_depth in enumerate(sizes)
    ]
    ratios = {each.point["depth"]: each.value for each in found if isinstance(each, Probed) and "ratio" in each.name}
    told = [f"activation_ratio at depth {depth:g} = {number(value)}" for depth, value in ratios.items()]
    return Shown([Strip("norm |h_t| of the residual stream", [names, *rows], size=60), Words(["; ".join(told)])], found)


def _norms() -> Shown:
    """Norms that fall during the warm-up and are steady afterwards, but for three steps."""
    steps = range(1, 201)
    norms = [1.0 + 4.0 * 0.9**step + 0.1 * (step * 7 % 11) / 11 for step in steps]
    norms[59], norms[79], norms[99] = 3.0, 1.2, 4.0
    probe = GradientNorms()
    found = [each for each in probe.of_model(hand_set.seen()._replace(norms=norms)) if isinstance(each, Probed)]
    median = float(np.median(norms))
    mad = float(np.median(np.abs(np.array(norms) - median)))
    bound = median + max(probe.k) * mad
    spikes = [(float(step), norm) for step, norm in zip(steps, norms, strict=True) if norm > bound]
    series = [
        Series("plain", [(1.0, bound), (float(steps[-1]), bound)]),
        Series("mark", list(zip(map(float, steps), norms, strict=True))),
        Series("odd", spikes, as_dots=True),
    ]
    return Shown([Chart("", "training step", "norm of the gradient", series), Words(_lines(found))], found)


def _classes() -> Shown:
    probe = TokenClasses(by="bytes")
    panels, found = _heads(probe)()
    tokens = [Cell("␣" if token == " " else token) for token in hand_set.SENTENCE]
    return Shown([Strip("", [Row("tokens", tokens)]), *panels], found)


_WEIGHTS = {"mark": "positive", "odd": "negative"}
_KEY_AND_GROUND = {"mark": "positive"}

PROBES: Mapping[str, Drawing] = {
    "attention_entropy": Drawing(AttentionEntropy(), _heads(AttentionEntropy()), _WEIGHTS, further=_two_sequences),
    "attention_maps": Drawing(AttentionMaps(), _attention_maps, _WEIGHTS, "a file per layer and evaluation"),
    "effective_rank": Drawing(
        EffectiveRank(), _heads(EffectiveRank()), _WEIGHTS, "the singular values of every map in float64, O(T^3) each"
    ),
    "first_key": Drawing(FirstKey(), _first_key, _WEIGHTS, "three products of queries and keys in float64"),
    "first_token": Drawing(
        FirstToken(),
        _heads(FirstToken()),
        _WEIGHTS,
        further=lambda: _at(FirstToken(by_query=True), hand_set.layer()),
    ),
    "gate_sparsity": Drawing(GateSparsity(), _gates, {"mark": "open"}),
    "gradient_norms": Drawing(
        GradientNorms(),
        _norms,
        {"mark": "norm", "plain": "median + 9 MAD", "odd": "spikes at k = 9"},
        "numbers that training has anyway",
        _not_finite,
    ),
    "ground_mass": Drawing(GroundMass(), _ground, _KEY_AND_GROUND),
    "learned_numbers": Drawing(
        LearnedNumbers(), _learned, {"mark": "numbers of ssa(), moved by hand"}, "reads the parameters"
    ),
    "massive_activation": Drawing(MassiveActivation(), _massive, {"odd": "the first token"}, further=_post_norm),
    "predicted_numbers": Drawing(PredictedNumbers(), _predicted, {"mark": "value"}),
    "qk_logits": Drawing(QKLogits(), _qk_logits, _WEIGHTS, "the products of queries and keys once more"),
    "sink_share": Drawing(
        SinkShare(), _sinks, _WEIGHTS, further=lambda: _at(SinkShare(of="weights"), hand_set.layer())
    ),
    "token_classes": Drawing(
        TokenClasses(by="bytes"),
        _classes,
        _WEIGHTS,
        further=lambda: _at(TokenClasses(by="bytes", normalise="softmax"), hand_set.layer()),
    ),
    "weight_sums": Drawing(WeightSums(), _weight_sums, _WEIGHTS),
}


def drawing_of(kind: str) -> Drawing:
    """How a kind of probe is shown.

    Raises:
        SpecError: nobody has said.
    """
    if kind not in PROBES:
        raise SpecError(f"every probe has a picture; describe that of {kind!r} in runners/catalogue/probe_drawings.py")
    return PROBES[kind]


def probe_picture(kind: str) -> str:
    """The SVG of a kind of probe."""
    drawing = drawing_of(kind)
    return picture(f"{kind}: what it finds", drawing.show().panels, drawing.legend)


def heads_picture() -> str:
    """The SVG of the four heads."""
    maps = hand_set.maps(hand_set.weights())
    logits = hand_set.maps(hand_set.logits()[None] / 6)
    panels = [
        Columns("weights, full at 1: query down, key across", maps, left=24),
        Columns("logits, full at 6", logits, left=24),
    ]
    return picture("The four heads of every picture", panels, _WEIGHTS)


def row_rows(kind: str) -> list[ProbeRow]:
    """What rows a probe gives, by what they are of: read off what it finds for its picture, and beside it.

    Raises:
        SpecError: `probed_words` does not say what a row is.
    """
    rows: dict[str, ProbeRow] = {}
    for each in (*drawing_of(kind).show().found, *drawing_of(kind).further()):
        if isinstance(each, ProbeArray):
            arrays = ", ".join(f"{name} {list(array.shape)}" for name, array in each.arrays.items())
            rows[each.name] = ProbeRow(f"{each.name}.npz", "file", "", f"arrays {arrays}")
            continue
        shown, unit = _told(each.name)
        of = "layer and head" if each.head is not None else "model" if each.layer is None else "layer"
        point = f"{{{', '.join(each.point)}}}" if each.point else ""
        rows.setdefault(f"{shown} {point}", ProbeRow(shown, of, point, unit))
    return list(rows.values())


def _told(name: str) -> tuple[str, str]:
    """A row's name without what is the operator's or the task's, and its unit."""
    family = name.partition(".")[0]
    if family not in PROBED:
        raise SpecError(f"what is found has a unit; say that of {name!r} in runners/catalogue/probed_words.py")
    rest, unit = PROBED[family]
    return f"{family}{rest}", unit
