"""Attention weights of one sequence: a mosaic of all layers and heads, and the map of one head with its tokens."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import polars as pl
from PIL import Image

from ablate.dashboards.data.formatting import number, plain
from ablate.dashboards.data.user_errors import Unknown
from ablate.dashboards.figures.canvas import TEXT_SIZE, canvas, cut
from ablate.dashboards.figures.heat import heat_ramp
from ablate.dashboards.theme.styles import INK, ON_ANY_PAGE
from ablate.store import Store
from ablate.store.analysis.artefacts import StoredArray, arrays

INPUTS: Final = "attention-inputs"
MOST_TOKENS: Final = 160  # most tokens of a map of one head; a longer one is shown in blocks
_LAYER: Final = "attention-"
_BESIDE: Final = {"extra": "learned key", "ground": "ground"}  # weights that no token has, by the name of their array
_WIDE: Final = 1500  # pixels of a mosaic, at most
_TOLERANCE: Final = 0.005  # sums of weights in half precision are no nearer to 1
_LEVELS: Final = 127
_Array = npt.NDArray[Any]


class Maps(NamedTuple):
    """The weights of one sequence."""

    layers: Sequence[int]
    weights: npt.NDArray[np.float32]  # [layers, heads, queries, keys]; keys that no token is come first
    queries: Sequence[str]  # names of the tokens
    keys: Sequence[str]  # names from `_BESIDE`, if there are any, then the tokens
    sequences: int  # number of sequences in the files

    @property
    def beside(self) -> int:
        """Number of keys that no token is."""
        return len(self.keys) - len(self.queries)


def layers_of(files: Sequence[StoredArray], step: int) -> dict[int, StoredArray]:
    """The files of maps at a step, by layer."""
    of = {each.name.removeprefix(_LAYER): each for each in files if each.step == step}
    return {int(name): each for name, each in sorted(of.items()) if name.isdigit()}


def read_maps(store: Store, files: Sequence[StoredArray], step: int, sequence: int, task: dict[str, Any]) -> Maps:
    """The maps of a sequence, counted from 1, at a step.

    Raises Unknown if there are none, or fewer sequences; else as `ablate.store.analysis.artefacts.arrays`.
    """
    by_layer = {layer: arrays(store, each) for layer, each in layers_of(files, step).items()}
    shapes = {tuple(held["weights"].shape) for held in by_layer.values() if "weights" in held}
    if len(shapes) != 1 or any("weights" not in held for held in by_layer.values()):
        raise Unknown(f"there are no attention maps of one shape at step {step}; got {sorted(shapes) or 'none'}")
    (shape,) = shapes
    if len(shape) != 4 or shape[2] != shape[3] or not 1 <= sequence <= shape[0]:
        raise Unknown(
            f"maps of shape {list(shape)} have no sequence {sequence}; they are [sequences, heads, queries, keys]"
        )
    beside = [name for name in _BESIDE if any(name in held for held in by_layer.values())]
    columns = np.zeros((len(by_layer), shape[1], shape[2], len(beside) + shape[3]), np.float32)
    for i, held in enumerate(by_layer.values()):
        for j, name in enumerate(beside):
            if name in held:
                columns[i, :, :, j] = held[name][sequence - 1]
        columns[i, :, :, len(beside) :] = held["weights"][sequence - 1]
    inputs = next((each for each in files if each.step == step and each.name == INPUTS), None)
    tokens = arrays(store, inputs)["inputs"][sequence - 1] if inputs else np.arange(shape[3])
    names = token_names(tokens, task, shape[3])
    return Maps(list(by_layer), columns, names, [*(_BESIDE[name] for name in beside), *names], shape[0])


def summary(maps: Maps) -> pl.DataFrame:
    """Every head: layer, head, first (mean weight of the first token), entropy (nats, of sizes as shares), sum_low and
    sum_high (of the weights of a query)."""
    weights = maps.weights.astype(np.float64)
    sizes = np.where(np.isfinite(weights), np.abs(weights), np.nan)
    whole = sizes.sum(-1, keepdims=True)
    shares = np.divide(sizes, whole, out=np.zeros_like(sizes), where=whole > 0)
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(-1).mean(-1)
    sums = weights.sum(-1)
    layer, head = np.meshgrid(np.array(maps.layers, dtype=np.int64), np.arange(weights.shape[1]), indexing="ij")
    columns = {"layer": layer, "head": head, "first": weights[..., maps.beside].mean(-1), "entropy": entropy}
    columns |= {"sum_low": sums.min(-1), "sum_high": sums.max(-1)}
    return pl.DataFrame({name: each.ravel() for name, each in columns.items()})


def farthest(one: Maps, other: Maps) -> tuple[int, int, float] | None:
    """Find the head whose weights differ most: layer, head, and the sum over keys, averaged over queries.

    None if the maps are of other tokens or heads, or of equal weights.
    """
    weights = [maps.weights[..., maps.beside :].astype(np.float64) for maps in (one, other)]
    if weights[0].shape != weights[1].shape or one.queries != other.queries:
        return None
    apart = np.nan_to_num(np.abs(weights[0] - weights[1]).sum(-1).mean(-1), nan=0.0, posinf=0.0)
    row, head = np.unravel_index(apart.argmax(), apart.shape)
    return (one.layers[int(row)], int(head), float(apart[row, head])) if apart[row, head] > 0 else None


def sum_words(low: float, high: float) -> str:
    """Say what the weights of a query sum to."""
    if abs(low - 1) <= _TOLERANCE and abs(high - 1) <= _TOLERANCE:
        return "The weights of each query sum to 1."
    same = high - low <= _TOLERANCE
    return f"Weights of a query do not sum to 1: {number(low)}{'' if same else f' to {number(high)}'}."


def draw_mosaic(maps: Maps, chosen: tuple[int, int]) -> go.Figure:
    """All maps as one picture, a row per layer, keys to the right and queries down; a click on a map sets LAYER.HEAD.

    Opacity is the square root of the size of a weight over the largest there is. Weights below zero are orange, others
    blue, as on every diverging scale here.
    """
    n_layers, heads = maps.weights.shape[:2]
    tiles = shrunk(maps.weights[..., maps.beside :], max(12, min(_WIDE // heads, 96)))
    side = tiles.shape[-1] + 2
    sheet = np.pad(np.where(np.isfinite(tiles), tiles, 0.0), ((0, 0), (0, 0), (1, 1), (1, 1)))
    flat = sheet.transpose(0, 2, 1, 3).reshape(n_layers * side, heads * side)
    largest = float(np.abs(flat).max()) or 1.0
    places = np.round(np.sign(flat) * np.sqrt(np.abs(flat) / largest) * _LEVELS) + _LEVELS
    above, below = (bytes.fromhex(color[1:]) for color in ON_ANY_PAGE)
    opacities = [bytes([round(abs(level) / _LEVELS * 255)]) for level in range(-_LEVELS, _LEVELS + 1)]
    palette = b"".join((below if i < _LEVELS else above) + opacity for i, opacity in enumerate(opacities))
    picture = Image.fromarray(places.astype(np.uint8))
    picture.putpalette(palette, "RGBA")
    png = BytesIO()
    picture.save(png, "PNG")  # as a heat map it would be megabytes
    source = f"data:image/png;base64,{b64encode(png.getvalue()).decode()}"
    figure = canvas(84 + round(n_layers * min(max(1150 / heads, 34), 130)), x="head", y="layer")
    corner = {"x0": 0.5 / side - 0.5, "dx": 1 / side, "y0": 0.5 / side - 0.5, "dy": 1 / side}
    figure.add_trace(go.Image(source=source, hoverinfo="skip", **corner))
    rows = list(summary(maps).iter_rows(named=True))
    words = [
        f"layer {row['layer']}, head {row['head']}<br>first token {number(row['first'])}<br>"
        f"entropy {number(row['entropy'])} nats<br>{sum_words(row['sum_low'], row['sum_high'])}"
        for row in rows
    ]
    keys = [f"{row['layer']}.{row['head']}" for row in rows]
    texts, customdata = (np.reshape(of, (n_layers, heads)).tolist() for of in (words, keys))
    invisible = {
        "colorscale": ["#00000000", "#00000000"],
        "showscale": False,
        "hovertemplate": "%{text}<extra></extra>",
    }
    # an invisible cell per map, for the pointer and for clicks
    figure.add_trace(go.Heatmap(z=np.zeros((n_layers, heads)).tolist(), text=texts, customdata=customdata, **invisible))
    row, column = list(maps.layers).index(chosen[0]), chosen[1]
    box = {"x0": column - 0.5, "x1": column + 0.5, "y0": row - 0.5, "y1": row + 0.5}
    figure.add_shape(type="rect", line={"color": INK, "width": 2}, **box)
    ticks = list(range(0, heads, max(1, heads // 32)))
    figure.update_xaxes(range=[-0.5, heads - 0.5], tickvals=ticks, showgrid=False, ticks="", constrain="domain")
    layers = {"tickvals": list(range(n_layers)), "ticktext": [str(layer) for layer in maps.layers]}
    return figure.update_yaxes(range=[n_layers - 0.5, -0.5], **layers, showgrid=False, scaleanchor=False)


def shrunk(values: _Array, size: int) -> _Array:
    """[..., n, n] as means of blocks, [..., m, m] with m <= size; blocks at the end may be smaller."""
    n = values.shape[-1]
    if n <= size:
        return values
    edges = np.arange(0, n, -(-n // size))
    counts = np.diff(np.append(edges, n))
    summed = np.add.reduceat(np.add.reduceat(values, edges, axis=-2), edges, axis=-1)
    means: _Array = summed / (counts[:, None] * counts[None, :])
    return means


def one_map(maps: Maps, layer: int, head: int) -> pl.DataFrame:
    """The map of a head, in blocks where there are many tokens: query, key (places from 1; of a block the first),
    query_token, key_token, weight."""
    weights, rows, columns = _blocks(maps, layer, head)
    n, m = weights.shape
    return pl.DataFrame(
        {
            "query": np.repeat(np.array(rows) + 1, m),
            "key": np.tile(np.array(columns) + 1 - maps.beside, n),
            "query_token": [maps.queries[i] for i in rows for _ in columns],
            "key_token": [maps.keys[j] for _ in rows for j in columns],
            "weight": weights.astype(np.float64).ravel(),
        }
    )


def _blocks(maps: Maps, layer: int, head: int) -> tuple[_Array, list[int], list[int]]:
    """The weights that are drawn, with the first query and key of each block."""
    weights = maps.weights[list(maps.layers).index(layer), head]
    own, n = maps.beside, len(maps.queries)
    if n <= MOST_TOKENS:
        return weights, list(range(n)), list(range(own + n))
    edges = list(range(0, n, -(-n // MOST_TOKENS)))
    rows = np.add.reduceat(weights[:, :own], edges, axis=0) / np.diff([*edges, n])[:, None]
    whole = np.concatenate([rows, shrunk(weights[:, own:], MOST_TOKENS)], axis=1)
    return whole, edges, [*range(own), *(own + edge for edge in edges)]


def draw_map(maps: Maps, layer: int, head: int) -> go.Figure:
    """The weights of one head: keys to the right, queries down, tokens at both axes."""
    weights, rows, columns = _blocks(maps, layer, head)
    values = pl.Series(weights.ravel()).cast(pl.Float64)
    ramp = heat_ramp(pl.concat([values, pl.Series([0.0])]), "weight", diverging=bool((values < 0).any()))
    figure = canvas(min(120 + 18 * len(rows), 620), x="key", y="query")
    own = maps.beside
    keys = {maps.keys[j] if j < own else f"{j - own + 1} {maps.keys[j]}": maps.keys[j] for j in columns}
    queries = {f"{i + 1} {maps.queries[i]}": maps.queries[i] for i in rows}
    # colours follow the square root of a weight's size: most weights are small
    places = np.linspace(-1.0 if ramp.diverging else 0.0, 1.0, len(ramp.colors))
    squares = np.sign(places) * places**2
    at = ((squares + 1) / 2 if ramp.diverging else squares).tolist()
    title = {"text": "weight", "side": "right", "font": {"size": TEXT_SIZE}}
    figure.add_trace(
        go.Heatmap(
            x=[plain(key) for key in keys],
            y=[plain(query) for query in queries],
            z=weights.astype(np.float32),
            zmin=ramp.low,
            zmax=ramp.high,
            colorscale=[*zip(at, ramp.colors, strict=True)],
            colorbar={"title": title, "thickness": 12, "outlinewidth": 0},
            hovertemplate="query %{y}<br>key %{x}<br>%{z:.4f}<extra></extra>",
        )
    )
    figure.update_xaxes(**_axis(keys, 24), side="top")
    return figure.update_yaxes(**_axis(queries, 40), autorange="reversed")


def _axis(names: Mapping[str, str], most: int) -> dict[str, Any]:
    """An axis of categories, with the names of `most` at most."""
    categories, every = [plain(each) for each in names], -(-len(names) // most)
    texts = [plain(cut(name, 12)) for name in list(names.values())[::every]]
    ticks = {"tickvals": categories[::every], "ticktext": texts, "tickfont": {"size": 11}, "ticks": ""}
    return {"type": "category", "categoryorder": "array", "categoryarray": categories, "showgrid": False, **ticks}


_VISIBLE: Final = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "\0": "␀", "\x1a": "␚"}


def token_names(inputs: _Array, task: Mapping[str, Any], length: int) -> list[str]:
    """The names of the `length` tokens of a map, of which the last are `inputs`; those before are the model's sinks.

    Inputs are ids [T], or vectors [T, width]. Ids are letters where the tokens of the `task` (its spec) are bytes.
    """
    own = length - len(inputs)
    names = [f"sink {i + 1}" if own > 1 else "sink" for i in range(own)]
    if not np.issubdtype(inputs.dtype, np.integer):
        return names + [", ".join(number(float(value), 2) for value in np.ravel(row)[:3]) for row in inputs]
    is_bytes = (task.get("tokenizer") or {}).get("kind") == "bytes" and inputs.max(initial=0) < 256
    return names + (byte_names(inputs.tolist()) if is_bytes else [str(each) for each in inputs.tolist()])


def byte_names(ids: Sequence[int]) -> list[str]:
    """Bytes as letters; a letter of several bytes stands at its first, and dots at the others."""
    names: list[str] = []
    for letter in bytes(ids).decode("utf-8", "surrogateescape"):
        if "\udc80" <= letter <= "\udcff":  # a byte that is part of no letter
            names.append(f"\\x{ord(letter) - 0xDC00:02x}")
        else:
            shown = _VISIBLE.get(letter) or (letter if letter.isprintable() else f"\\u{ord(letter):04x}")
            names += [shown, *["…"] * (len(letter.encode()) - 1)]
    return names
