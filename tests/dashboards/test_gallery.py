"""Figures and tables of the papers are drawn with a campaign's own values, whatever is amiss."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import polars as pl
import pytest
from gallery_campaign import (
    HEADS,
    LAYERS,
    OVER_STEPS,
    STEPS,
    Harm,
    Made,
    Row,
    axes_of,
    figure_grids,
    grid_of,
    is_of_others,
    known,
    many_levels,
    rows_of,
    setups_of,
    table_grids,
    weights,
    write_gallery,
)

from ablate.dashboards.data.grid_context import campaign_styles, grid_context
from ablate.papers.figures.item import Drawn, Item
from ablate.papers.figures.items import ITEMS
from ablate.papers.figures.paper_tables import overlaid, printed_table
from ablate.papers.figures.reading import read_probe
from ablate.store import Store
from ablate.store.published.tables import PublishedCell, cells

OTHERS = "004-table-5"
"""It has public models alone, so nothing is drawn."""
GRIDS = {each.key: grid_of(each.key) for each in ITEMS if each.key != OTHERS}
TABLES = [each for each in ITEMS if each.kind == "table" and each.number is not None]
SEEDS = (0, 1, 2)
HARM = Harm(
    seeds=(0, 1),
    failed=lambda cell, seed: cell % 5 == 1 or seed == 1,
    nan=lambda cell, _: cell % 5 == 2,
    pending=lambda cell, _: cell % 5 == 3,
)
"""Every cell has one good seed, or is failed, not finite or missing."""
SOME = ("000-table-1", "002-table-1", "002-table-5", "003-table-2", "004-table-4")
"""Tables of every kind of derived value."""
KINDS = {str(getattr(each.make, "func", each.make)): each for each in reversed(ITEMS)}
FEW = [*KINDS.values(), *(each for each in ITEMS if each.key in SOME)]
"""An item of every way to draw one, and the tables."""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    root = write_gallery(tmp_path_factory.mktemp("gallery") / "full", figure_grids() | table_grids())
    with Store.open(root) as store:
        yield store


@pytest.fixture(scope="module")
def drawn(full: Store) -> Mapping[str, Drawn]:
    operators = campaign_styles(full)
    contexts = {grid: grid_context(full, grid, operators) for grid in set(GRIDS.values())}
    return {each.key: each.make(contexts[GRIDS[each.key]]) for each in ITEMS if each.key in GRIDS}


def make(store: Store, grid: str, key: str) -> Drawn:
    (found,) = (each for each in ITEMS if each.key == key)
    return found.make(grid_context(store, grid, campaign_styles(store)))


def test_there_are_24_figures_and_38_tables_and_each_published_table_is_one() -> None:
    assert Counter(each.kind for each in ITEMS) == {"figure": 24, "table": 38}
    assert len({each.key for each in ITEMS}) == 62
    of_values = {(cell.paper, int(cell.paper_table.partition("-")[0][1:])) for cell in cells()}
    assert {(each.paper, each.number) for each in TABLES} == of_values


def test_every_item_is_drawn(drawn: Mapping[str, Drawn]) -> None:
    for key, shown in drawn.items():
        assert not shown.message, key
        assert (shown.figure is None) != (shown.sheet is None)
        assert shown.data.height
        if shown.figure is not None:
            groups = {trace.legendgroup for trace in shown.figure.data}
            assert {each.group or name for name, each in shown.legend.items()} <= groups


def expected(cell: PublishedCell, label: str, seeds: Sequence[int]) -> float | None:
    """The mean over seeds of what was planted for a printed cell, in the printed unit; None for what is derived.

    Where the table is read on the log scale it is the geometric mean.
    """
    rows = list(rows_of(cell))
    derived = cell.measurement is None and ("rank" in cell.metric or "gain" in cell.metric)
    if not rows or derived or is_of_others(cell):
        return None
    factor = cell.factor if cell.measurement else 0.01
    by_seed = [fmean(_planted(label, row, seed) for row in rows) / factor for seed in seeds]
    return math.exp(fmean(map(math.log, by_seed))) if cell.scale == "log" else fmean(by_seed)


def _planted(label: str, row: Any, seed: int) -> float:
    _, name, point, layer, head = row
    where = tuple(float(at) for at in (layer, head) if at is not None)
    return known(label, name, point, seed, (*where, 0.0) if name in OVER_STEPS else where)


def check_table(each: Item, data: pl.DataFrame, seeds: Sequence[int], lost: Callable[[str], bool]) -> int:
    """Every value of a table is that which was planted; how many there are."""
    assert each.number is not None
    printed = printed_table(each.paper, each.number)
    names, found = setups_of(printed), 0
    for cell, row in zip(printed, data.iter_rows(named=True), strict=True):
        label = " · ".join(axes_of(cell, names).values())
        wanted = expected(cell, label, seeds)
        if row["cell"] is not None and cell.operator is not None:
            assert row["cell"] == label
        if wanted is None or lost(label):
            continue
        assert row["mean"] == pytest.approx(wanted), (cell.row_label, cell.column_label)
        assert (row["n"], row["printed"]) == (len(seeds), cell.printed)
        found += 1
    return found


def test_tables_have_the_planted_values_in_their_places(drawn: Mapping[str, Drawn]) -> None:
    for each in (table for table in TABLES if table.key in drawn):
        found = check_table(each, drawn[each.key].data, SEEDS, lambda _: False)
        assert found or each.key == "002-table-5"


def test_the_design_table_says_where_runs_are_lost(tmp_path: Path) -> None:
    made = figure_grids()["001-design"]
    harm = Harm(failed=lambda cell, seed: (cell, seed) == (0, 1) or cell == 1)
    with Store.open(write_gallery(tmp_path / "design", {"001-design": made}, harm)) as store:
        shown = make(store, "001-design", "001-design-table")
    at = {(row["row"], row["column"]): row for row in shown.data.iter_rows(named=True)}
    assert set(shown.data["column"]) == {"Constant", "Per-Layer", "Per-Head", "Per-Query"}
    kept = [cell for cell in made if cell.axes["threshold_per"] == "constant"]  # the second, which failed, is one
    by_seed = []
    for seed in SEEDS:
        usable = [cell for cell in kept if cell != made[1] and (cell, seed) != (made[0], 1)]
        values = [known(cell.label, "mse", {"sigma_f": 3.0, "sigma_x": 1.0}, seed) for cell in usable]
        by_seed.append(fmean(map(math.log, values)))
    row = at["γ", "Constant"]
    assert row["mean"] == pytest.approx(math.exp(fmean(by_seed)))
    assert row["note"] == f"{3 * len(kept) - 4} of {3 * len(kept)} runs"
    gone, whole = at["β", "Per-Layer"], at["β", "Per-Head"]
    assert (gone["missing"], gone["why"]) == ("failed", "3 of 3 runs failed; no other has a usable value")
    assert (whole["note"], whole["n"]) == (None, 3)
    assert shown.sheet is not None
    assert shown.sheet.entries[0][0].note == at["β", "Constant"]["note"]


def test_printed_values_mark_the_sizes_that_they_are_of(full: Store) -> None:
    about = grid_context(full, "003-sizes", campaign_styles(full))
    marks = overlaid(about, next(each for each in ITEMS if each.key == "003-figure-11"))
    labels = {"softmax · 1 layer, 1 head": "1L1AH", "softmax · 3 layers, 4 heads": "3L4AH"}
    assert set(marks["series"]) == set(labels)
    for series, row in labels.items():
        printed = [c for c in printed_table("003", 6) if c.row_label == row]
        found = marks.filter(pl.col("series") == series)
        assert dict(found.select("x", "value").iter_rows()) == {c.point["sigma_f"]: c.value for c in printed}


def test_gains_are_relative_to_softmax_seed_by_seed(drawn: Mapping[str, Drawn]) -> None:
    data = drawn["003-table-2"].data
    at = {(row["row"], row["column"]): row for row in data.iter_rows(named=True)}
    labels = {name: at["LM-Eval · ARC-Easy", f"Zero-shot · {name}"]["cell"] for name in ("Softmax", "SSA")}
    name = "lm_eval.arc_easy.acc"
    values = [[known(labels[who], name, {"fewshot": 0.0}, seed) for seed in SEEDS] for who in ("SSA", "Softmax")]
    gain = fmean(100 * (one / other - 1) for one, other in zip(*values, strict=True))
    assert at["LM-Eval · ARC-Easy", "Zero-shot · SSA, gain"]["mean"] == pytest.approx(gain)


def test_ranks_are_shares_of_sequences_above_softmax_at_a_layer_from_the_end(drawn: Mapping[str, Drawn]) -> None:
    data = drawn["002-table-5"].data
    name, checked = "effective_rank_median", 0
    for cell, row in zip(printed_table("002", 5), data.iter_rows(named=True), strict=True):
        layer = float(LAYERS[-1] + 1 - int(cell.setup["layer from the end"]))
        plain = " · ".join(["softmax", cell.model, "all layers"])
        higher = [
            known(row["cell"], name, {"sequence": s}, seed, (layer,))
            > known(plain, name, {"sequence": s}, seed, (layer,))
            for seed in SEEDS
            for s in (1.0, 2.0, 3.0, 4.0)
        ]
        if row["mean"] is not None:
            checked += 1
            assert row["mean"] == pytest.approx(100 * fmean(higher))
    assert checked >= 12


def planted(
    label: str, name: str, point: Mapping[str, float] = {}, *places: Sequence[float], geometric: bool = False
) -> float:
    """The planted mean over seeds and over `places`, such as layers and heads."""
    values = [known(label, name, point, seed, tuple(map(float, at))) for seed in SEEDS for at in product(*places)]
    return math.exp(fmean(map(math.log, values))) if geometric else fmean(values)


def share(label: str, position: int = 1) -> float:
    return planted(label, "sink_share", {"eps": 0.3, "position": float(position)}, LAYERS, HEADS, [0])


def by_layer(label: str, name: str) -> dict[float, float]:
    return {layer: planted(label, name, {}, [layer], HEADS) for layer in LAYERS}


def errors(label: str) -> dict[float, float]:
    return {x: planted(label, "error_rate", {"length": float(x), "sigma": 10.0}) for x in (10, 40, 100)}


def predictions(label: str, a: float, places: Sequence[float]) -> dict[float, float]:
    return {x: planted(label, "boundary_prediction", {"a": a, "x": float(x)}) for x in places}


ENDS = [STEPS[-1] - step for step in STEPS]
LOSS = {step: planted("softmax · 3B", "loss", {}, [end], geometric=True) for step, end in zip(STEPS, ENDS, strict=True)}
BASE = "softmax · 0.0004 · 5000"
BELOW, ABOVE = (-100, -50, -10, 0), (0, 10, 50, 100)
SHIFTS = {x: planted("ssa", "mse", {"sigma_f": float(x), "sigma_x": 1.0}, geometric=True) for x in (1, 3, 5, 10)}
DEPTHS = {d: planted("sigmoid", "activation_ratio", {"depth": float(d)}, [d]) for d in (0, 1, 2, 3)}
PLANTED: Sequence[tuple[str, dict[str, str], dict[Any, float]]] = [
    ("000-figure-2", {"series": "learned_sink", "panel": "1B"}, {
        step: planted("learned_sink · 1B", "qk_logit_mean", {}, LAYERS, HEADS, [end])
        for step, end in zip(STEPS[::3], ENDS[::3], strict=True)
    }),
    ("000-figure-4", {"series": "learned_sink", "panel": "1B"}, by_layer("learned_sink · 1B", "first_token_weight")),
    ("000-figure-7", {"series": "softmax", "panel": "3B"}, LOSS),
    ("000-figure-10", {"series": "softmax", "panel": "3B"}, {step: LOSS[step] for step in (42, 48, 54)}),
    ("002-figure-1", {"series": "integral"}, {
        q: planted("integral", "first_token_weight", {"query": float(q)}, LAYERS[-1:], HEADS) for q in range(2, 10)
    }),
    ("002-figure-3", {"series": "softmax", "panel": "other"}, by_layer("softmax", "token_class.closed_class.other")),
    ("003-figure-1", {"series": "softmax · none", "panel": "softmax · none"},
     predictions("softmax · none", 10.0, (-10, 0, 10))),
    ("003-figure-3", {"series": "ssa", "part": "At sigma_x = 1"}, SHIFTS),
    ("003-figure-3", {"panel": "ssa", "y": "1.0"}, SHIFTS),
    ("003-figure-4", {"panel": "ssa · every", "y": "10.0"}, errors("ssa · every")),
    ("003-figure-9", {"series": "ssa", "panel": "of 1 x, high x"}, predictions("ssa", 1.0, ABOVE)),
    ("004-figure-2", {"part": "Over training", "of": "validation loss"}, {
        step: planted(BASE, "validation_loss", {}, [end]) for step, end in zip(STEPS, ENDS, strict=True)
    }),
    ("004-figure-2", {"part": "Data", "of": "sink share"}, {
        tokens: share(f"softmax · 0.0004 · {tokens}") for tokens in (500, 1000, 5000)
    }),
    ("004-figure-3", {"series": "sigmoid"}, {k: share("sigmoid", k) for k in (1, 2, 3, 4)}),
    ("004-figure-4", {"series": "sigmoid", "panel": "token 1 over the others"}, DEPTHS),
]  # fmt: skip


def test_figures_have_the_planted_values(drawn: Mapping[str, Drawn]) -> None:
    for key, where, wanted in PLANTED:
        assert points(drawn[key], **where) == pytest.approx(wanted), (key, where)


def points(shown: Drawn, **where: str) -> dict[Any, float]:
    end = where.pop("panel", None)
    rows = shown.data.filter(pl.col(name).cast(pl.String) == level for name, level in where.items())
    rows = rows if end is None else rows.filter(pl.col("panel").str.ends_with(end))
    return dict(rows.select("x", "value").iter_rows())


def test_maps_of_attention_are_of_one_layer_and_key_0_is_no_token(drawn: Mapping[str, Drawn]) -> None:
    for key, label, layer in (("000-figure-9", "softmax · 1B", 1), ("003-figure-2", "ssa", LAYERS[-1])):
        maps = drawn[key].data.filter(pl.col("panel") == label)
        mean = weights(label, 0, layer)[0].mean(0)
        found = {(int(row["y"]), row["x"]): row["value"] for row in maps.iter_rows(named=True)}
        assert (found[5, 1], found[5, 3]) == pytest.approx((mean[4, 0], mean[4, 2]), rel=1e-3)
        assert (3, 5) not in found  # a key that the query cannot see
    maps = drawn["000-figure-9"].data.filter((pl.col("x") == 0) & (pl.col("y") == "5"))
    assert set(maps["panel"]) == {"learned_sink · 0.5B", "learned_sink · 1B", "learned_sink · 3B"}
    ground = weights("learned_sink · 1B", 0, 1)[0, :, 4, 0].mean() / 2
    assert maps.filter(panel="learned_sink · 1B")["value"].to_list() == pytest.approx([ground], rel=1e-3)
    assert (drawn["003-figure-2"].data["x"] > 0).all()


def test_bands_over_heads_are_one_standard_deviation_and_others_are_recorded(drawn: Mapping[str, Drawn]) -> None:
    rows = drawn["002-figure-5"].data.filter(series="cog").sort("x")
    for row, layer in zip(rows.iter_rows(named=True), LAYERS, strict=True):
        heads = [planted("cog", "first_token_negative", {}, [layer], [head]) for head in HEADS]
        ends = 100 * fmean(heads), 100 * (fmean(heads) - stdev(heads))
        assert (row["value"], row["low"]) == pytest.approx(ends)
    row = drawn["002-figure-4"].data.filter(series="softmax", x=1.0).row(0, named=True)
    assert row["high"] - row["value"] == pytest.approx(planted("softmax", "entropy_last_sd", {}, [1]))


def test_maps_of_errors_are_of_the_cells_whose_task_has_their_quantifier(
    drawn: Mapping[str, Drawn], full: Store
) -> None:
    for number, quantifier in ((4, "every"), (5, "some")):
        assert all(quantifier in panel for panel in drawn[f"003-figure-{number}"].data["panel"])
    assert '"every"' in make(full, "003-figures", "003-figure-4").message  # a grid without any such task


def test_histograms_have_the_counted_bins_and_the_recorded_rules(drawn: Mapping[str, Drawn]) -> None:
    shown = drawn["000-figure-3"]
    assert set(shown.data["series"]) == {"learned_sink · 3B", "affine_scaled · 3B"}
    data = shown.data.filter(series="affine_scaled · 3B")
    row = data.filter(((pl.col("low") + pl.col("high")) / 2 - 0.75).abs() < 1e-9).row(0, named=True)
    count = planted("affine_scaled · 3B", "weight_sum_count", {"sum": 0.75}, LAYERS)
    median = planted("affine_scaled · 3B", "weight_sum_median", {}, LAYERS)
    assert (row["count"], row["median"]) == pytest.approx((count, median))


def test_sums_of_weights_are_of_the_variants_that_the_paper_draws(tmp_path: Path) -> None:
    sums: list[Row] = [
        ("probe", "weight_sum_count", {"sum": 0.8}, 0, None),
        *(("probe", f"weight_sum_{name}", {}, 0, None) for name in ("mean", "median")),
        ("probe", "weight_sum", {}, 0, 0),
    ]
    specs = {
        "Sink": {"normaliser": {"kind": "sink", "logit": {"per": ["layer", "head"]}}},
        "Off by one": {"normaliser": {"kind": "sink", "logit": {"per": []}}},
        "Affine": {"normaliser": {"kind": "total"}, "rescale": {"kind": "affine", "n": "visible"}},
        "N of context": {"normaliser": {"kind": "total"}, "rescale": {"kind": "affine", "n": "context"}},
    }
    made = [Made(name, {"operator": spec}, {"operator": name}, sums) for name, spec in specs.items()]
    with Store.open(write_gallery(tmp_path / "runs", {"whole": made, "fixed": made[1:3]})) as store:
        for key, column in (("000-figure-3", "series"), ("000-figure-5", "panel")):
            whole, fixed = make(store, "whole", key), make(store, "fixed", key)
            assert set(whole.data[column]) == {"Sink", "N of context"}
            assert set(fixed.data[column]) == {"Off by one", "Affine"}


def test_every_kind_of_item_survives_faults(tmp_path: Path) -> None:
    tables = {key: made for key, made in table_grids().items() if key in SOME}
    checked = 0
    with Store.open(write_gallery(tmp_path / "runs", figure_grids() | tables, HARM)) as store:
        operators = campaign_styles(store)
        contexts = {grid: grid_context(store, grid, operators) for grid in store.grids()}
        for each in FEW:
            shown = each.make(contexts[GRIDS[each.key]])
            assert shown.figure is not None or shown.sheet is not None or shown.message
            assert shown.figure is None or shown.figure.to_json()
            if each.key in SOME and shown.sheet is not None:
                lost = {made.label for i, made in enumerate(tables[each.key]) if i % 5 in (1, 2, 3)}
                checked += check_table(each, shown.data, (0,), lambda label, lost=lost: label in lost)
    assert checked > 50


def test_every_item_survives_many_levels(tmp_path: Path) -> None:
    root = write_gallery(tmp_path / "many", {"many": many_levels(60)}, Harm(seeds=(0,)))
    with Store.open(root) as store:
        about = grid_context(store, "many", campaign_styles(store))
        shown = {each.key: each.make(about) for each in FEW}
    assert all(each.figure is not None or each.sheet is not None or each.message for each in shown.values())
    figures = [each.figure for each in shown.values() if each.figure is not None]
    assert all(len(figure.data) < 100 for figure in figures)  # single cells are drawn only if they can be told apart


def test_models_of_others_have_no_number(drawn: Mapping[str, Drawn]) -> None:
    public = re.compile("llama|mistral|gpt-?2", re.IGNORECASE)
    left_out = 0
    for key, shown in drawn.items():
        if "figure" in key:
            assert not public.search(str(shown.data.rows())), key
    for each in (table for table in TABLES if table.key in drawn):
        printed = printed_table(each.paper, each.number or 0)
        for cell, mean in zip(printed, drawn[each.key].data["mean"], strict=True):
            if is_of_others(cell):
                left_out += 1
                assert mean is None, (each.key, cell.row_label)
    assert left_out >= 28  # Llama 3.3 in 003 table 1, TinyLlama and cosmo in 002 table 7
    assert all(is_of_others(cell) for cell in printed_table("004", 5))


def test_a_bin_without_a_row_counts_nothing(tmp_path: Path) -> None:
    """Each of two layers has its queries in one bin, so the mean over layers is half of them in each."""
    rows: list[Row] = [("probe", "weight_sum_count", {"sum": at}, layer, None) for layer, at in enumerate((0.5, 0.7))]
    made = [replace(each, rows=rows) for each in figure_grids()["000-figures"]]
    with Store.open(write_gallery(tmp_path / "runs", {"000-figures": made})) as store:
        found = read_probe(grid_context(store, "000-figures", campaign_styles(store)), "weight_sum_count", "sum")
        label = store.sql("SELECT DISTINCT cell, label FROM grid_trial")
    names = dict(label.iter_rows())
    assert set(found["n"]) == {3}
    for cell, x, value in found.select("series", "x", "value").iter_rows():
        layer = (0.5, 0.7).index(x)
        planted_mean = fmean(known(names[cell], "weight_sum_count", {"sum": x}, seed, (layer,)) for seed in range(3))
        assert value == pytest.approx(planted_mean / 2)
