"""The gallery draws every figure and table of the papers with a campaign's own values, whatever is amiss."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
import pytest
from gallery_campaign import (
    CLASSES,
    HEADS,
    LAYERS,
    OVER_STEPS,
    STEPS,
    Harm,
    axes_of,
    figure_grids,
    grid_of,
    known,
    many_levels,
    rows_of,
    setups_of,
    table_grids,
    weights,
    write_gallery,
)

from dashboards.data.grid_context import campaign_styles, grid_context
from dashboards.data.user_errors import Unknown
from dashboards.figures.canvas import least_width
from dashboards.papers import formulas
from dashboards.papers.attention_maps import place_of
from dashboards.papers.item import Drawn, Item
from dashboards.papers.items import ITEMS, item
from dashboards.papers.page import Gallery, gallery, gallery_html, gallery_markdown
from dashboards.papers.paper_tables import overlaid, printed_table
from store import Store
from store.published.tables import PublishedCell, cells

DOCS = Path(__file__).parent.parent.parent / "docs"
PICTURES = DOCS.parent / "artefacts" / "dashboard"
REMEDY = "run `python -m benchmarks.gallery` and commit docs/gallery.md and docs/gallery"
GRIDS = {each.key: grid_of(each.key) for each in ITEMS}
TABLES = [each for each in ITEMS if each.kind == "table" and each.number is not None]
SEEDS = (0, 1, 2)
HARMS: Mapping[str, Harm] = {
    "one seed, cells missing": Harm(seeds=(0,), pending=lambda cell, _: cell == 1 or cell % 5 == 3),
    "nan": Harm(seeds=(0, 1), nan=lambda cell, seed: cell == 1 or seed == 1),
    "failed": Harm(seeds=(0, 1), failed=lambda cell, seed: cell == 1 or seed == 1),
}


def opened(root: Path, harm: Harm) -> Store:
    return Store.open(write_gallery(root, figure_grids() | table_grids(), harm))


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with opened(tmp_path_factory.mktemp("gallery") / "full", Harm()) as store:
        yield store


@pytest.fixture(scope="session")
def whole(full: Store) -> Gallery:
    return gallery(full, GRIDS)


@pytest.fixture(scope="session")
def drawn(whole: Gallery) -> Mapping[str, Drawn]:
    return {each.key: shown for each, shown in whole.drawn}


@pytest.fixture(scope="session", params=HARMS)
def harmed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store]]:
    with opened(tmp_path_factory.mktemp("harmed") / "runs", HARMS[request.param]) as store:
        yield request.param, store


def test_there_are_35_figures_and_38_tables_and_each_published_table_is_one() -> None:
    assert Counter(each.kind for each in ITEMS) == {"figure": 35, "table": 38}
    assert len({each.key for each in ITEMS}) == 73
    of_values = {(cell.paper, int(cell.paper_table.partition("-")[0][1:])) for cell in cells()}
    assert {(each.paper, each.number) for each in TABLES} == of_values
    assert len(of_values) == 37  # and the design table of 001, which has no number
    figures = {paper: sorted(e.number for e in ITEMS if e.paper == paper and e.kind == "figure") for paper in ALL}
    assert figures == {paper: list(range(1, last + 1)) for paper, last in ALL.items()}


ALL = {"000": 11, "001": 0, "002": 5, "003": 11, "004": 8}
"""The last figure of every paper."""


def test_an_item_that_is_not_there_is_a_sentence_that_says_what_is() -> None:
    assert item("004", "figure", 8).title
    with pytest.raises(Unknown, match="no such item; it has design table"):
        item("001", "figure", 1)


@pytest.mark.parametrize("key", GRIDS)
def test_every_item_is_drawn(drawn: Mapping[str, Drawn], key: str) -> None:
    shown = drawn[key]
    assert not shown.message
    assert (shown.figure is None) != (shown.sheet is None)
    assert shown.data.height
    assert shown.caption.endswith(".")
    if shown.figure is not None:
        groups = {trace.legendgroup for trace in shown.figure.data}
        assert {each.group or name for name, each in shown.legend.items()} <= groups


def expected(cell: PublishedCell, label: str, seeds: Sequence[int]) -> float | None:
    """The mean over seeds of what was planted for a printed cell, in the printed unit; None for what is derived.

    Where the table is read on the log scale it is the geometric mean.
    """
    rows = list(rows_of(cell))
    derived = cell.measurement is None and ("rank" in cell.metric or "gain" in cell.metric)
    if not rows or derived:
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


@pytest.mark.parametrize("each", TABLES, ids=lambda each: each.key)
def test_a_table_has_the_planted_values_in_its_places(drawn: Mapping[str, Drawn], each: Item) -> None:
    found = check_table(each, drawn[each.key].data, SEEDS, lambda _: False)
    assert found or each.key == "002-table-5"


def test_cells_of_one_size_beside_several_printed_sizes_say_so_in_every_place(tmp_path: Path) -> None:
    printed = printed_table("000", 1)
    made = [each for each in table_grids()["000-table-1"] if each.axes["model"] == "1B"]
    axes = [{name: level for name, level in each.axes.items() if name != "model"} for each in made]
    one = [replace(each, axes=given) for each, given in zip(made, axes, strict=True)]
    with Store.open(write_gallery(tmp_path / "one", {"one": one}, Harm(seeds=(0,)))) as store:
        shown = item("000", "table", 1).make(grid_context(store, "one", campaign_styles(store)))
    filled = shown.data.filter(pl.col("cell").is_not_null())
    assert filled["row"].n_unique() == len({each.row_label for each in printed})
    assert filled["size"].null_count() == 0
    assert shown.sheet is not None
    notes = {each.note for entries in shown.sheet.entries for each in entries if each.words != "–"}
    assert {note.split(":")[0] for note in notes} == {"not 0.5B", "not 1B", "not 3B"}
    assert "stands beside every printed size" in shown.latex
    assert "every number is of the grid one, none is printed in the paper" in shown.latex


def test_cells_that_an_axis_tells_apart_by_size_need_no_note(drawn: Mapping[str, Drawn]) -> None:
    assert drawn["000-table-1"].data["size"].null_count() == drawn["000-table-1"].data.height


def test_the_design_table_says_where_runs_are_lost(tmp_path: Path) -> None:
    made = figure_grids()["001-design"]
    harm = Harm(failed=lambda cell, seed: (cell, seed) == (0, 1) or cell == 1)
    with Store.open(write_gallery(tmp_path / "design", {"001-design": made}, harm)) as store:
        shown = item("001", "table", None).make(grid_context(store, "001-design", campaign_styles(store)))
    at = {(row["row"], row["column"]): row for row in shown.data.iter_rows(named=True)}
    assert set(shown.data["column"]) == {"Constant", "Per-Layer", "Per-Head", "Per-Query"}
    names = dict(zip("βγα", ("strength_per", "threshold_per", "amplification_per"), strict=True))
    for name, axis in names.items():
        kept = [cell for cell in made if cell.axes[axis] == "constant"]
        by_seed = {}
        for seed in SEEDS:
            usable = [c for i, c in enumerate(made) if c in kept and i != 1 and (i, seed) != (0, 1)]
            values = [known(c.label, "mse", {"sigma_f": 3.0, "sigma_x": 1.0}, seed) for c in usable]
            by_seed[seed] = fmean(map(math.log, values))
        row = at[name, "Constant"]
        assert row["mean"] == pytest.approx(math.exp(fmean(by_seed.values())))
        lost = 1 + 3 * (made[1] in kept)
        assert row["note"] == f"{3 * len(kept) - lost} of {3 * len(kept)} runs"
    gone, whole = at["β", "Per-Layer"], at["β", "Per-Head"]
    assert (gone["missing"], gone["why"]) == ("failed", "3 of 3 runs failed; no other has a usable value")
    assert (whole["note"], whole["n"]) == (None, 3)
    assert shown.sheet is not None
    assert shown.sheet.entries[0][0].note == at["β", "Constant"]["note"]


def test_printed_values_mark_the_sizes_that_they_are_of(full: Store) -> None:
    about = grid_context(full, "003-sizes", campaign_styles(full))
    marks = overlaid(about, item("003", "figure", 11))
    labels = {"1 layer, 1 head": "1L1AH", "3 layers, 4 heads": "3L4AH"}
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


def probe(label: str, name: str, point: Mapping[str, float], layers: Sequence[int], last: float | None = None) -> float:
    """The planted mean over layers, heads and seeds."""
    end = () if last is None else (last,)
    places = [(layer, head, seed) for layer in layers for head in HEADS for seed in SEEDS]
    return fmean(known(label, name, point, seed, (float(la), float(he), *end)) for la, he, seed in places)


def points(shown: Drawn, series: str, panel: str | None = None) -> dict[Any, float]:
    rows = shown.data.filter(pl.col("series") == series)
    rows = rows if panel is None else rows.filter(pl.col("panel").str.ends_with(panel))
    return dict(rows.select("x", "value").iter_rows())


def test_lines_over_layers_and_steps_are_means_over_heads_and_seeds(drawn: Mapping[str, Drawn]) -> None:
    label = "learned_sink · 1B"
    for key, name in (("000-figure-4", "first_token_weight"), ("000-figure-6", "entropy")):
        wanted = {float(layer): probe(label, name, {}, [layer]) for layer in LAYERS}
        assert points(drawn[key], "learned_sink", ", 1B") == pytest.approx(wanted)
    steps = {float(step): probe(label, "qk_logit_mean", {}, LAYERS, float(STEPS[-1] - step)) for step in STEPS}
    assert points(drawn["000-figure-2"], "learned_sink", ", 1B") == pytest.approx(steps)


def test_losses_are_geometric_means_and_the_late_figure_is_their_end(drawn: Mapping[str, Drawn]) -> None:
    wanted = {
        step: math.exp(fmean(math.log(known("softmax · 3B", "loss", {}, seed, (STEPS[-1] - step,))) for seed in SEEDS))
        for step in STEPS
    }
    assert points(drawn["000-figure-7"], "softmax", ", 3B") == pytest.approx(wanted)
    late = points(drawn["000-figure-10"], "softmax", ", 3B")
    assert late == pytest.approx({step: value for step, value in wanted.items() if step >= STEPS[-1] * 7 / 9})
    assert 0 < len(late) < len(wanted)


def test_maps_of_heads_and_of_attention_are_the_planted_ones(drawn: Mapping[str, Drawn]) -> None:
    data = drawn["000-figure-5"].data.filter(pl.col("panel") == "softmax · 1B")
    for row in data.iter_rows(named=True):
        wanted = fmean(known("softmax · 1B", "weight_sum", {}, s, (float(row["y"]), float(row["x"]))) for s in SEEDS)
        assert row["value"] == pytest.approx(wanted)
    assert data.height == len(LAYERS) * len(HEADS)
    for key, label, layer in (("000-figure-9", "softmax · 1B", 1), ("003-figure-2", "ssa", LAYERS[-1])):
        maps = drawn[key].data.filter(pl.col("panel") == label)
        planted = weights(label, 0, layer)[0].mean(0)
        found = {(int(row["y"]), row["x"]): row["value"] for row in maps.iter_rows(named=True)}
        assert found[5, 1] == pytest.approx(planted[4, 0], rel=1e-3)
        assert found[5, 3] == pytest.approx(planted[4, 2], rel=1e-3)
        assert (3, 5) not in found  # a key that the query cannot see
    assert "in layer 2 of 3, mean" in drawn["000-figure-9"].caption
    assert "in layer 3 of 3, mean" in drawn["003-figure-2"].caption
    assert place_of("middle", 16) == 7  # "the 8th layer of the 1B model", which has 16


def test_what_lies_beside_the_tokens_of_a_sink_is_key_0(drawn: Mapping[str, Drawn]) -> None:
    maps = drawn["000-figure-9"].data.filter((pl.col("x") == 0) & (pl.col("y") == "5"))
    ground = weights("learned_sink · 1B", 0, 1)[0, :, 4, 0].mean() / 2
    assert set(maps["panel"]) == {"learned_sink · 0.5B", "learned_sink · 1B", "learned_sink · 3B"}
    at = maps.filter(pl.col("panel") == "learned_sink · 1B")
    assert at["value"].to_list() == pytest.approx([ground], rel=1e-3)
    assert (drawn["003-figure-2"].data["x"] > 0).all()


def test_bands_over_heads_are_one_standard_deviation(drawn: Mapping[str, Drawn]) -> None:
    rows = drawn["002-figure-5"].data.filter(pl.col("series") == "cog").sort("x")
    for row, layer in zip(rows.iter_rows(named=True), LAYERS, strict=True):
        heads = [
            fmean(known("cog", "first_token_negative", {}, seed, (float(layer), float(head))) for seed in SEEDS)
            for head in HEADS
        ]
        centre = fmean(heads)
        half = math.sqrt(sum((each - centre) ** 2 for each in heads) / (len(heads) - 1))
        assert (row["value"], row["low"]) == pytest.approx((100 * centre, 100 * (centre - half)))
    first = points(drawn["002-figure-1"], "integral")
    assert first == pytest.approx(
        {float(q): probe("integral", "first_token_weight", {"query": float(q)}, LAYERS[-1:]) for q in range(2, 10)}
    )
    for name in CLASSES:
        shares = points(drawn["002-figure-3"], "softmax", name)
        assert shares == pytest.approx(
            {la: probe("softmax", f"token_class.closed_class.{name}", {}, [la]) for la in LAYERS}
        )


def test_entropy_of_the_last_token_has_the_recorded_spread(drawn: Mapping[str, Drawn]) -> None:
    row = drawn["002-figure-4"].data.filter((pl.col("series") == "softmax") & (pl.col("x") == 1)).row(0, named=True)
    spread = fmean(known("softmax", "entropy_last_sd", {}, seed, (1.0,)) for seed in SEEDS)
    assert row["high"] - row["value"] == pytest.approx(spread)


def test_errors_over_shifts_are_geometric_means(drawn: Mapping[str, Drawn]) -> None:
    data = drawn["003-figure-3"].data
    for at in (1.0, 10.0):
        point = {"sigma_f": at, "sigma_x": 1.0}
        wanted = math.exp(fmean(math.log(known("ssa", "mse", point, seed)) for seed in SEEDS))
        line = data.filter((pl.col("part") == "At sigma_x = 1") & (pl.col("series") == "ssa") & (pl.col("x") == at))
        heat = data.filter((pl.col("panel") == "ssa") & (pl.col("x") == at) & (pl.col("y") == 1))
        assert line["value"].to_list() == pytest.approx([wanted])
        assert heat["value"].to_list() == pytest.approx([wanted])


@pytest.mark.parametrize(
    ("number", "quantifier", "widest", "label"),
    [(4, "every", 30, "ssa"), (5, "some", 30, "ssa"), (6, "some", 10, "Llama 8B"), (7, "every", 10, "Llama 8B")],
)
def test_maps_of_errors_are_of_the_cells_that_were_asked_about_their_quantifier(
    drawn: Mapping[str, Drawn], number: int, quantifier: str, widest: int, label: str
) -> None:
    shown = drawn[f"003-figure-{number}"]
    assert all(quantifier in panel for panel in shown.data["panel"])
    assert shown.data["panel"].n_unique() == 2
    at = (pl.col("x") == 40) & (pl.col("y") == 10) & pl.col("panel").str.contains(label, literal=True)
    full = f"ssa · {quantifier}" if label == "ssa" else f"softmax · {label} · {quantifier}"
    wanted = fmean(known(full, "error_rate", {"length": 40.0, "sigma": 10.0}, seed) for seed in SEEDS)
    assert shown.data.filter(at)["value"].to_list() == pytest.approx([wanted])
    assert f'"{quantifier}"' in shown.caption
    assert f"1 to {widest}" in shown.caption


def test_a_grid_that_asks_about_no_quantifier_has_no_map_of_errors(full: Store) -> None:
    about = grid_context(full, "003-figures", campaign_styles(full))
    for number, quantifier in ((4, "every"), (5, "some")):
        assert f'"{quantifier}"' in item("003", "figure", number).make(about).message


def test_boundary_values_of_a_model_stand_beside_their_target(drawn: Mapping[str, Drawn]) -> None:
    shown = drawn["003-figure-1"]
    assert list(dict.fromkeys(shown.data["panel"])) == ["prediction, softmax", "prediction, ssa"]
    assert "Asked for: 10 x." in shown.caption
    for name in ("softmax", "ssa"):
        assert points(shown, "target", name)[-50.0] == -500
        wanted = fmean(known(name, "boundary_prediction", {"a": 10.0, "x": -50.0}, seed) for seed in SEEDS)
        assert points(shown, name, name)[-50.0] == pytest.approx(wanted)


def test_more_boundary_values_are_of_high_usual_and_low_x(drawn: Mapping[str, Drawn]) -> None:
    shown = drawn["003-figure-9"]
    panels = {"prediction of 1 x, high x": (0, 100), "of 10 x, usual x": (-10, 10), "of 10 x, low x": (-100, 0)}
    for panel, ends in panels.items():
        found = points(shown, "ssa", panel)
        assert (min(found), max(found)) == ends
        slope = 1.0 if "of 1 x" in panel else 10.0
        assert points(shown, "target", panel) == {x: slope * x for x in found}
        wanted = {x: fmean(known("ssa", "boundary_prediction", {"a": slope, "x": x}, s) for s in SEEDS) for x in found}
        assert found == pytest.approx(wanted)
    assert shown.figure is not None
    assert all(axis.matches is None for axis in shown.figure.select_xaxes())


def test_sinks_by_length_by_domain_and_by_position_are_shares_of_heads(drawn: Mapping[str, Drawn]) -> None:
    def share(label: str, eps: float = 0.3, position: int = 1) -> float:
        return probe(label, "sink_share", {"eps": eps, "position": float(position)}, LAYERS, 0.0)

    lengths = points(drawn["004-figure-1"], "eps = 0.2", "GPT2-XL")
    assert lengths == pytest.approx({float(t): share(f"softmax · GPT2-XL · {t}", 0.2) for t in (16, 64, 256)})
    models = drawn["004-figure-1"].data.filter(pl.col("part") == "By model")
    assert dict(models.select("group", "value").iter_rows()) == pytest.approx(
        {name: share(f"softmax · {name} · 64") for name in ("GPT2-XL", "LLaMA2-7B")}
    )
    bars = drawn["004-figure-7"].data.filter((pl.col("group") == "github") & pl.col("series").str.contains("LLaMA"))
    assert bars["value"].to_list() == pytest.approx([share("softmax · LLaMA2-7B · github")])
    positions = points(drawn["004-figure-3"], "sigmoid")
    assert positions == pytest.approx({float(k): share("sigmoid", 0.3, k) for k in (1, 2, 3, 4)})


def test_two_axes_have_loss_and_sinks_over_what_varies(drawn: Mapping[str, Drawn]) -> None:
    data = drawn["004-figure-2"].data
    label = "softmax · 0.0004 · 5000 · 8"
    at = data.filter((pl.col("part") == "Window") & (pl.col("x") == 8))
    loss = fmean(known(label, "loss", {}, seed, (0.0,)) for seed in SEEDS)
    sink = probe(label, "sink_share", {"eps": 0.3, "position": 1.0}, LAYERS, 0.0)
    validation = fmean(known(label, "validation_loss", {}, seed, (0.0,)) for seed in SEEDS)
    assert dict(at.select("of", "value").iter_rows()) == pytest.approx(
        {"loss": loss, "validation loss": validation, "sink share": sink}
    )
    assert set(data["part"]) == {"Over training", "Learning rate", "Data", "Window"}
    over = data.filter((pl.col("part") == "Over training") & (pl.col("of") == "validation loss"))
    base = "softmax · 0.0004 · 5000 · 64"
    assert dict(over.select("x", "value").iter_rows()) == pytest.approx(
        {s: fmean(known(base, "validation_loss", {}, seed, (STEPS[-1] - s,)) for seed in SEEDS) for s in STEPS}
    )
    two, four = (drawn[f"004-figure-{number}"].figure for number in (2, 8))
    assert two is not None
    assert four is not None
    assert least_width(two) > least_width(four) > 0  # room for a second axis at each panel
    assert "validation loss" not in set(data.filter(pl.col("part") == "Learning rate")["of"])
    assert set(data.filter(pl.col("part") == "Learning rate")["series"]) == {
        f"learning rate {level}" for level in ("0.0004", "0.0001", "0.001")
    }


def test_the_last_layer_is_that_of_each_model(tmp_path: Path) -> None:
    deep, flat, *_ = figure_grids()["002-figures"]
    two = [deep, replace(flat, rows=[row for row in flat.rows if row[3] in (None, 0)])]
    with Store.open(write_gallery(tmp_path / "depths", {"two": two}, Harm(seeds=(0,)))) as store:
        shown = item("002", "figure", 1).make(grid_context(store, "two", campaign_styles(store)))
    for made, layer in zip(two, (LAYERS[-1], 0), strict=True):
        found = points(shown, made.label)
        wanted = [known(made.label, "first_token_weight", {"query": 4.0}, 0, (float(layer), head)) for head in HEADS]
        assert found[4.0] == pytest.approx(fmean(wanted))
    assert "n = 2 heads." in shown.caption


def test_norms_are_those_of_the_first_token_and_of_the_others(drawn: Mapping[str, Drawn]) -> None:
    shown = drawn["004-figure-6"]
    for name, series in (("first_key_norm", "token 1"), ("other_key_norm", "others")):
        wanted = {float(layer) + 1: probe("softmax", name, {}, [layer]) for layer in LAYERS}  # block 1 has layer 0
        assert points(shown, series, "norm of keys") == pytest.approx(wanted)
    ratios = points(drawn["004-figure-4"], "sigmoid", "token 1 over the others")
    planted = {
        depth: fmean(known("sigmoid", "activation_ratio", {"depth": depth}, seed, (depth,)) for seed in SEEDS)
        for depth in (0.0, 1.0, 2.0, 3.0)
    }
    assert ratios == pytest.approx(planted)


def test_histograms_have_the_counted_bins_and_the_recorded_rules(drawn: Mapping[str, Drawn]) -> None:
    data = drawn["000-figure-3"].data.filter(pl.col("series") == "softmax · 1B")
    row = data.filter(((pl.col("low") + pl.col("high")) / 2 - 0.75).abs() < 1e-9).row(0, named=True)
    places = [(seed, float(layer)) for seed in SEEDS for layer in LAYERS]
    count = fmean(known("softmax · 1B", "weight_sum_count", {"sum": 0.75}, seed, (layer,)) for seed, layer in places)
    median = fmean(known("softmax · 1B", "weight_sum_median", {}, seed, (layer,)) for seed, layer in places)
    assert (row["count"], row["median"]) == pytest.approx((count, median))


def test_formulas_are_what_the_papers_write() -> None:
    clipped = {x: value for name, x, value in formulas.activations().iter_rows() if name == "linear clipping"}
    assert (clipped[-10.0], clipped[0.0], clipped[2.0], clipped[10.0]) == (0.0, 0.5, 0.7, 1.0)
    sums = formulas.profile().group_by("series").agg(pl.col("value").sum())
    totals = {name.partition(",")[0]: total for name, total in sums.iter_rows()}
    assert totals["softmax"] == pytest.approx(1)
    assert totals["affine-scaled"] == pytest.approx(formulas.MEAN)
    assert 0 < totals["attention sink"] < 1
    heads = dict(formulas.heads().group_by("series").agg(pl.col("value").sum()).iter_rows())
    assert heads["softmax of their mean"] == pytest.approx(1)
    assert heads["difference of two"] == pytest.approx(1 - formulas.LAMBDA)
    powers = {(name, x): value for name, x, value in formulas.base_functions().iter_rows()}
    assert powers["SSA, n = 2", 3.0] == pytest.approx(16)
    assert powers["SSA, n = 2", -3.0] == pytest.approx(1 / 16)
    sees = {(panel, int(q), k): value for panel, k, q, value in formulas.masks().iter_rows()}
    assert [sees["prefix", 1, k] for k in (4, 5)] == [1, 0]
    assert [sees["shifted window", 5, k] for k in (2, 3, 5, 6)] == [0, 1, 1, 0]
    packed = formulas.packing()
    assert packed["value"].value_counts().sort("value")["count"].to_list() == list(formulas.DOCUMENTS)


@pytest.mark.slow
def test_every_item_survives_what_is_amiss(harmed: tuple[str, Store]) -> None:
    name, store = harmed
    shown = {each.key: drawing for each, drawing in gallery(store, GRIDS).drawn}
    assert set(shown) == set(GRIDS)
    empty = {key for key, drawing in shown.items() if drawing.figure is None and drawing.sheet is None}
    assert all(shown[key].message for key in empty)
    for drawing in shown.values():
        if drawing.figure is not None:
            assert drawing.figure.to_json()
    checked = 0
    for each in TABLES:
        if each.key not in empty:
            grid = store.sql(
                "SELECT label FROM grid_trial WHERE grid = $g GROUP BY 1 ORDER BY min(position)", {"g": each.key}
            )
            lost = {label for i, label in enumerate(grid["label"]) if i == 1 or (i % 5 == 3 and "missing" in name)}
            checked += check_table(each, shown[each.key].data, (0,), lambda label, lost=lost: label in lost)
    assert checked > 500


def test_every_item_survives_200_levels(tmp_path: Path) -> None:
    root = write_gallery(tmp_path / "many", {"many": many_levels()}, Harm(seeds=(0,)))
    with Store.open(root) as store:
        about = grid_context(store, "many", campaign_styles(store))
        shown = {each.key: each.make(about) for each in ITEMS}
    assert all(each.figure is not None or each.sheet is not None or each.message for each in shown.values())
    lines = shown["000-figure-4"]
    assert lines.figure is not None
    assert len(lines.figure.data) < 100  # single cells are drawn only if they can be told apart
    assert len(shown["004-figure-7"].data) > 100
    assert "the first 9 of 200 models" in shown["004-figure-1"].caption


def test_a_campaign_without_any_of_it_says_so(tmp_path: Path) -> None:
    root = write_gallery(tmp_path / "none", {"none": many_levels(2)}, Harm(pending=lambda *_: True))
    with Store.open(root) as store:
        about = grid_context(store, "none", campaign_styles(store))
        for each in ITEMS:
            found = each.make(about)
            assert found.message or not each.needs or each.key == "004-figure-3", each.key


def test_the_page_of_the_documentation_is_current(whole: Gallery) -> None:
    text = gallery_markdown(whole)
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == text, REMEDY
    pictures = {path.stem: path.stat().st_size for path in (DOCS / "gallery").glob("*.png")}
    assert set(pictures) == set(GRIDS), REMEDY
    assert sum(pictures.values()) <= 3_000_000
    assert text.count("Synthetic") >= 1
    assert text.count("synthetic data](") == len(pictures)


@pytest.mark.browser
def test_the_gallery_is_drawn_in_a_browser(whole: Gallery, look: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "gallery.html"
    page.write_text(gallery_html(whole), encoding="utf-8")
    seen = look(page)
    assert seen.complaints == []
    assert seen.page.locator("figure").count() == len(ITEMS)
    assert seen.page.locator(".js-plotly-plot .main-svg").count() >= 35
    PICTURES.mkdir(parents=True, exist_ok=True)
    seen.page.screenshot(path=PICTURES / "gallery.png", full_page=True)
