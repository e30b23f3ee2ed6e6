"""Attention maps: the weights themselves, of one run and one sequence; a click on a head shows its map with tokens."""

import json
from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ablate.dashboards.app import measures
from ablate.dashboards.app.page import Control, PageView, SlotContent, grid_of, memoise, options
from ablate.dashboards.data.formatting import count, join_words, number
from ablate.dashboards.data.grid_context import averages
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, require
from ablate.dashboards.figures import attention
from ablate.dashboards.figures.attention import MOST_TOKENS, Maps
from ablate.store.analysis.artefacts import StoredArray, artefacts, with_artefacts
from ablate.store.state import State

_KIND: Final = "attention_maps"


class AttentionSelection(NamedTuple):
    """The chosen maps."""

    trial: str
    cell: str
    seed: int
    files: Sequence[StoredArray]
    steps: Sequence[int]
    step: int

    def words(self, view: PageView) -> str:
        """Name cell, seed, sequence and step."""
        return f"{self.cell}, seed {self.seed}, sequence {view.address.sequence}, step {self.step:,}."


@memoise
def _runs(view: PageView) -> pl.DataFrame:
    """List trials with the probe and the names of their cells; chosen, finished, and of these the best cells first."""
    context = grid_of(view)
    cell, names, base = pl.col("cell"), dict(context.appearance.names), dict(context.baselines)
    places = {cell.cell: i for i, cell in enumerate(context.cells)}
    trials = with_artefacts(view.store, context.grid, _KIND).with_columns(
        cell.replace_strict(names, default=None, return_dtype=pl.String).alias("name"),
        cell.replace_strict(base, default=None, return_dtype=pl.String).alias("baseline"),
        cell.replace_strict(places, default=None, return_dtype=pl.Int64).alias("place"),
        cell.replace_strict(_places_by_measure(view), default=None, return_dtype=pl.Int64).alias("rank"),
    )
    is_baseline = cell.is_in([*base.values()])
    left_out = ~pl.col("name").is_in(view.address.cells)
    return trials.sort(left_out, pl.col("state") != State.DONE, is_baseline, "rank", "place", "seed", nulls_last=True)


def _places_by_measure(view: PageView) -> dict[str, int]:
    """The place of each cell with a value of the measure, the best first."""
    measure, _ = catch_user_error(lambda: measures.judged_by(view))
    if measure is None:
        return {}
    known = averages(view.store, grid_of(view).grid, measure).drop_nulls("value")
    ordered = known.sort("value", descending=measure.better == "higher", maintain_order=True)["cell"]
    return {cell: place for place, cell in enumerate(ordered)}


def _select_run(view: PageView) -> AttentionSelection:
    """Choose the run and its files. Raises Unknown if there is no such run, or it has none."""
    context, address, runs = grid_of(view), view.address, _runs(view)
    if runs.is_empty():
        raise Unknown(
            f"no trial of {context.grid!r} keeps attention maps; list the probe in its spec: "
            "Trial(probing=Probing(probes=(AttentionMaps(sequences=2), ...)))"
        )
    for field, column in (("cell", "name"), ("seed", "seed")):
        wanted = getattr(address, field)
        if wanted is not None:
            known = runs.sort("place")[column].unique(maintain_order=True).to_list()
            require(f"{context.grid!r} with attention maps", field, wanted, known)
            runs = runs.filter(pl.col(column) == wanted)
    for trial, name, seed in runs.select("trial", "name", "seed").head(8).iter_rows():
        files = artefacts(view.store, trial)
        steps = sorted({each.step for each in files if attention.layers_of(files, each.step)})
        if steps:
            step = steps[-1] if address.step is None else nearest_step(steps, address.step)
            return AttentionSelection(trial, name, seed, files, steps, step)
    raise Unknown(
        f"no chosen run of {context.grid!r} has attention maps yet; each evaluation writes some: wait for the next"
    )


@memoise
def _maps(view: PageView) -> tuple[AttentionSelection, Maps]:
    selection = _select_run(view)
    spec = view.store.sql(
        "SELECT (spec->'$.task')::VARCHAR FROM trial WHERE trial = $trial", {"trial": selection.trial}
    )
    task = dict(json.loads(spec.item() or "{}"))
    return selection, attention.read_maps(view.store, selection.files, selection.step, view.address.sequence, task)


def _other_view(view: PageView) -> PageView | None:
    """The view of the same seed and step of another cell; None if no other cell has maps."""
    runs, selection, address = _runs(view), _select_run(view), view.address
    others = runs.filter(pl.col("name") != selection.cell)
    names = others["name"].unique(maintain_order=True).to_list()
    if address.beside is None and not names:
        return None
    base = runs.filter(pl.col("name") == selection.cell)["baseline"][0]
    name = next(iter(others.filter(pl.col("cell") == base)["name"]), names[0] if names else selection.cell)
    name = name if address.beside is None else address.beside
    require(f"{grid_of(view).grid!r} with attention maps", "cell", name, [*names, selection.cell])
    rows = runs.filter(pl.col("name") == name)
    seed = selection.seed if selection.seed in rows["seed"] else rows["seed"][0]
    other = view._replace(address=address.model_copy(update={"cell": name, "seed": seed, "step": None}))
    step = nearest_step(_select_run(other).steps, selection.step)
    return other._replace(address=other.address.model_copy(update={"step": step}))


def nearest_step(steps: Sequence[int], wanted: int) -> int:
    """Return the recorded step that is nearest to the wanted one."""
    return min(steps, key=lambda each: abs(each - wanted))


def map_steps(view: PageView) -> Sequence[int]:
    """Steps at which the chosen run has maps; empty if there is no such run."""
    selection, _ = catch_user_error(lambda: _select_run(view))
    return [] if selection is None else selection.steps


def has_maps(view: PageView) -> bool:
    """True if some trial of the grid keeps attention maps."""
    return not _runs(view).is_empty()


def check_maps(view: PageView) -> None:
    """Raise Unknown if the address names a run, a sequence or a head that is not there."""
    fields = type(view.address).model_fields
    if any(
        getattr(view.address, name) != fields[name].default for name in ("cell", "seed", "sequence", "head", "beside")
    ):
        _head(view, _maps(view)[1])
        _other_view(view)


def draw_other_map(view: PageView) -> SlotContent:
    """Draw the same head of the cell beside it."""
    other = _other_view(view)
    if other is None:
        return SlotContent(message="No other cell has attention maps.")
    head = ".".join(map(str, _head(view, _maps(view)[1])))
    return draw_one_map(other._replace(address=other.address.model_copy(update={"head": head})))


def _head(view: PageView, maps: Maps) -> tuple[int, int]:
    """Return the layer and head of the address, else those that differ most. Raises Unknown for a missing one."""
    if view.address.head is None:
        farthest = _farthest(view, maps)
        return (maps.layers[0], 0) if farthest is None else farthest[1:3]
    said = view.address.head
    layer, _, head = said.partition(".")
    if not (layer.isdigit() and head.isdigit() and int(layer) in maps.layers and int(head) < maps.weights.shape[1]):
        raise Unknown(
            f"{said!r} is no head; write LAYER.HEAD with layers {maps.layers[0]} to {maps.layers[-1]} and heads 0 to "
            f"{maps.weights.shape[1] - 1}"
        )
    return int(layer), int(head)


def _farthest(view: PageView, maps: Maps) -> tuple[str, int, int, float] | None:
    """Find the head that differs most from the other cell: its name, and as `attention.farthest`; None without one."""
    other, _ = catch_user_error(lambda: _other_view(view))
    shown, _ = catch_user_error(lambda: other and _maps(other))
    farthest = shown and attention.farthest(maps, shown[1])
    return (shown[0].cell, *farthest) if shown and farthest else None


def _answer(view: PageView, maps: Maps, heads: pl.DataFrame) -> str:
    """Name the head that differs most from the other cell, and the one that looks most at the first token."""
    lines = []
    if farthest := _farthest(view, maps):
        name, layer, head, apart = farthest
        lines.append(
            f"Layer {layer}, head {head} differs most from {name}: on average, the weights of a query differ by "
            f"{number(apart)} in total."
        )
    most = heads.filter(pl.col("first").is_finite()).sort("first", descending=True).head(1)
    for layer, head, first in most.select("layer", "head", "first").iter_rows():
        lines.append(f"Layer {layer}, head {head} looks most at the first token: mean weight {number(first)}.")
    return "\n".join(lines)


def draw_heads(view: PageView) -> SlotContent:
    """Draw all heads of a run as one picture."""
    selection, maps = _maps(view)
    caption = (
        f"{selection.words(view)} Each picture is a head: keys to the right, queries down. Opacity is the square root "
        "of a weight over the largest."
    )
    if (maps.weights < 0).any():
        caption += " Blue is above zero, orange below."
    if maps.beside:
        caption += f" Without the weight of {join_words(maps.keys[: maps.beside])}."
    if lost := int((~np.isfinite(maps.weights)).sum()):
        caption += f" {count(lost, 'weight')} not finite: left empty."
    figure = attention.draw_mosaic(maps, _head(view, maps))
    heads, hint = attention.summary(maps), "A click on a head shows its map."
    return SlotContent(figure, caption, heads, hint=hint, answer=_answer(view, maps, heads))


def draw_one_map(view: PageView) -> SlotContent:
    """Draw the map of one head, with its tokens."""
    selection, maps = _maps(view)
    layer, head = _head(view, maps)
    row = attention.summary(maps).row(by_predicate=(pl.col("layer") == layer) & (pl.col("head") == head), named=True)
    caption = (
        f"Layer {layer}, head {head}. {selection.words(view)} Colours follow the square root of a weight's size. "
        f"{attention.sum_words(row['sum_low'], row['sum_high'])}"
    )
    if maps.beside:
        caption += f" Sums are with {join_words(maps.keys[: maps.beside])}."
    if len(maps.queries) > MOST_TOKENS:
        caption += f" Means of blocks of tokens, since there are more than {MOST_TOKENS}."
    return SlotContent(attention.draw_map(maps, layer, head), caption, attention.one_map(maps, layer, head))


def map_controls(view: PageView) -> Sequence[Control]:
    """Pickers of the run, the sequence, the head and the cell beside it; none if no trial keeps maps."""
    runs = _runs(view)
    if runs.is_empty():
        return ()
    selection, _ = catch_user_error(lambda: _select_run(view))
    maps, _ = catch_user_error(lambda: _maps(view)[1])
    head, _ = catch_user_error(lambda: maps and ".".join(map(str, _head(view, maps))))
    beside, _ = catch_user_error(lambda: _other_view(view))
    names = list(dict.fromkeys(runs.sort("place")["name"]))
    cell, seed = (None, None) if selection is None else (selection.cell, str(selection.seed))
    seeds = [str(seed) for name, seed in runs.sort("seed").select("name", "seed").iter_rows() if name == cell]
    of_heads = product(maps.layers, range(maps.weights.shape[1])) if maps else ()
    heads = {f"{layer}.{head}": f"layer {layer}, head {head}" for layer, head in of_heads}
    many = [str(i + 1) for i in range(maps.sequences if maps else 0)]
    return (
        Control("cell", "Maps of", "choice", options(names), usual=cell, resets=("seed", "step")),
        Control("seed", "Seed", "choice", options(seeds), usual=seed),
        Control("sequence", "Sequence", "choice", options(many), usual="1"),
        Control("head", "Head", "choice", heads, "Or click on one", usual=head),
        *([Control("beside", "Beside", "choice", options(names), usual=beside.address.cell)] if beside else []),
    )
