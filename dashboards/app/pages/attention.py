"""Attention: the weights themselves, of one run and one sequence; a click on a head shows its map with tokens."""

import json
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ablate.dashboards.app.address import Address
from ablate.dashboards.app.page import AppPage, Control, PageView, Slot, SlotContent, grid_of, memoise, options
from ablate.dashboards.data.formatting import count, join_words, number
from ablate.dashboards.data.grid_context import GridContext, averages
from ablate.dashboards.data.user_errors import Unknown, catch_user_error, require
from ablate.dashboards.figures import attention
from ablate.dashboards.figures.attention import MOST_TOKENS, Maps
from ablate.store.analysis.artefacts import StoredArray, artefacts, with_artefacts

_KIND: Final = "attention_maps"


class AttentionAddress(Address):
    """A run, a sequence, a step, and a head."""

    cell: str | None = None  # its name; None is the best that has maps, a baseline only if no other has any
    seed: int | None = None  # None is the cell's first that has maps
    sequence: int = 1  # counted from 1
    step: int | None = None  # None is the last
    head: str | None = None  # LAYER.HEAD; None is the one that differs most from the cell beside it
    beside: str | None = None  # the cell beside it; None is its baseline, or the best other one that has maps


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
    """List trials with the probe and the names of their cells; finished ones, and of these the best cells first."""
    about = grid_of(view)
    cell, names, base = pl.col("cell"), dict(about.look.names), dict(about.baselines)
    places = {cell.cell: i for i, cell in enumerate(about.cells)}
    found = with_artefacts(view.store, about.grid, _KIND).with_columns(
        cell.replace_strict(names, default=None, return_dtype=pl.String).alias("name"),
        cell.replace_strict(base, default=None, return_dtype=pl.String).alias("baseline"),
        cell.replace_strict(places, default=None, return_dtype=pl.Int64).alias("place"),
        cell.replace_strict(_places_by_measure(about), default=None, return_dtype=pl.Int64).alias("rank"),
    )
    is_baseline = cell.is_in([*base.values()])
    return found.sort(pl.col("status") != "ok", is_baseline, "rank", "place", "seed", nulls_last=True)


def _places_by_measure(about: GridContext) -> dict[str, int]:
    """The place of each cell with a value of the grid's measure, the best first."""
    if about.measure is None:
        return {}
    known = averages(about.store, about.grid, about.measure).drop_nulls("value")
    ordered = known.sort("value", descending=about.measure.better == "higher", maintain_order=True)["cell"]
    return {cell: place for place, cell in enumerate(ordered)}


def _select_run(view: PageView) -> AttentionSelection:
    """Choose the run and its files. Raises Unknown if there is no such run, or it has none."""
    about, address, runs = grid_of(view), view.address, _runs(view)
    if runs.is_empty():
        raise Unknown(
            f"no trial of {about.grid!r} keeps attention maps; list the probe in its spec: "
            "Trial(probing=Probing(probes=(AttentionMaps(sequences=2), ...)))"
        )
    for field, column in (("cell", "name"), ("seed", "seed")):
        wanted = getattr(address, field)
        if wanted is not None:
            known = runs.sort("place")[column].unique(maintain_order=True).to_list()
            require(f"{about.grid!r} with attention maps", field, wanted, known)
            runs = runs.filter(pl.col(column) == wanted)
    for trial, name, seed in runs.select("trial", "name", "seed").head(8).iter_rows():
        files = artefacts(view.store, trial)
        steps = sorted({each.step for each in files if attention.layers_of(files, each.step)})
        if steps:
            step = require("this run", "step", steps[-1] if address.step is None else address.step, steps)
            return AttentionSelection(trial, name, seed, files, steps, step)
    raise Unknown("no run that is meant has left maps yet; they are written at every evaluation")


@memoise
def _maps(view: PageView) -> tuple[AttentionSelection, Maps]:
    selection = _select_run(view)
    found = view.store.sql(
        "SELECT (spec->'$.task')::VARCHAR FROM trial WHERE trial = $trial", {"trial": selection.trial}
    )
    task = dict(json.loads(found.item() or "{}"))
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
    steps = _select_run(other).steps
    step = min(steps, key=lambda each: abs(each - selection.step))
    return other._replace(address=other.address.model_copy(update={"step": step}))


def _other_map(view: PageView) -> SlotContent:
    other = _other_view(view)
    if other is None:
        return SlotContent(message="No other cell has attention maps.")
    head = ".".join(map(str, _head(view, _maps(view)[1])))
    return _map(other._replace(address=other.address.model_copy(update={"head": head})))


def _step_control(selection: AttentionSelection) -> Control:
    """A slider if the steps are evenly spaced, else a choice."""
    steps = selection.steps
    apart = {later - earlier for earlier, later in pairwise(steps)}
    if len(steps) > 2 and len(apart) == 1:
        return Control("step", "Step", "slider", usual=selection.step, span=(steps[0], steps[-1], apart.pop()))
    return Control("step", "Step", "choice", options(map(str, steps)), usual=str(selection.step))


def _head(view: PageView, maps: Maps) -> tuple[int, int]:
    """Return the layer and head of the address, else those that differ most. Raises Unknown for a missing one."""
    if view.address.head is None:
        found = _farthest(view, maps)
        return (maps.layers[0], 0) if found is None else found[1:3]
    said = view.address.head
    layer, _, head = said.partition(".")
    if not (layer.isdigit() and head.isdigit() and int(layer) in maps.layers and int(head) < maps.weights.shape[1]):
        raise Unknown(
            f"a head is LAYER.HEAD with layers {maps.layers[0]} to {maps.layers[-1]} and heads 0 to "
            f"{maps.weights.shape[1] - 1}; got {said!r}"
        )
    return int(layer), int(head)


def _farthest(view: PageView, maps: Maps) -> tuple[str, int, int, float] | None:
    """Find the head that differs most from the other cell: its name, and as `attention.farthest`; None without one."""
    other, _ = catch_user_error(lambda: _other_view(view))
    shown, _ = catch_user_error(lambda: other and _maps(other))
    found = shown and attention.farthest(maps, shown[1])
    return (shown[0].cell, *found) if shown and found else None


def _answer(view: PageView, maps: Maps, heads: pl.DataFrame) -> str:
    """Name the head that differs most from the other cell, and the one that looks most at the first token."""
    lines = []
    if found := _farthest(view, maps):
        name, layer, head, apart = found
        lines.append(
            f"Layer {layer}, head {head} differs most from {name}: on average, the weights of a query differ by "
            f"{number(apart)} in total."
        )
    most = heads.filter(pl.col("first").is_finite()).sort("first", descending=True).head(1)
    for layer, head, first in most.select("layer", "head", "first").iter_rows():
        lines.append(f"Layer {layer}, head {head} looks most at the first token: mean weight {number(first)}.")
    return "\n".join(lines)


def _mosaic(view: PageView) -> SlotContent:
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


def _map(view: PageView) -> SlotContent:
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


def _controls(view: PageView) -> Sequence[Control]:
    runs = _runs(view)
    if runs.is_empty():
        return ()
    selection, maps = _maps(view)
    names = list(dict.fromkeys(runs.sort("place")["name"]))
    seeds = [str(seed) for seed in runs.filter(pl.col("name") == selection.cell)["seed"].sort()]
    heads = {
        f"{layer}.{head}": f"layer {layer}, head {head}"
        for layer, head in product(maps.layers, range(maps.weights.shape[1]))
    }
    beside = _other_view(view)
    other = None if beside is None else beside.address.cell
    many = [str(i + 1) for i in range(maps.sequences)]
    return (
        Control("cell", "Cell", "choice", options(names), usual=selection.cell, resets=("seed", "step")),
        Control("seed", "Seed", "choice", options(seeds), usual=str(selection.seed), resets=("step",)),
        Control("sequence", "Sequence", "choice", options(many), usual="1"),
        _step_control(selection),
        Control("head", "Head", "choice", heads, "Or click on one", usual=".".join(map(str, _head(view, maps)))),
        *([Control("beside", "Beside", "choice", options(names), usual=other)] if other else []),
    )


ATTENTION = AppPage(
    name="attention",
    title="Attention",
    letter="a",
    about="Where does each head of a run look?",
    address=AttentionAddress,
    controls=_controls,
    main=("cell", "step", "beside"),
    slots=(
        Slot("mosaic", "All heads", _mosaic, sets="head", half=True),
        Slot("map", "One head", _map, half=True),
        Slot("beside", "The same head of another cell", _other_map, half=True),
    ),
)
