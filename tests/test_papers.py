"""The grids of `papers/grids`: every table and figure of the papers, at every scale, with its controls."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from ablate.dashboards.data.grid_context import campaign_styles, grid_context
from ablate.grid import Grid, PaperItem, PaperScale
from ablate.grid.paper import SCALES
from ablate.papers.figures.paper_tables import Beside, pair_with_own, printed_table
from ablate.papers.paper_grids import load_paper, paper_names
from ablate.papers.results.result_files import PAPERS, VIEWS
from ablate.runners.attempts.manifest import trial_lines, write_grid
from ablate.store.files.layout import Layout
from ablate.store.published.tables import PublishedCell, cells
from ablate.store.store import Store
from ablate.training.trial import Trial
from ablate.variants import integral, integral_control, softmax, ssa
from ablate.variants.model.foreign import make_model
from ablate.variants.model.shapes import shapes_only

ROOT = Path(__file__).parent.parent


@cache
def grids(name: str) -> Mapping[str, Grid]:
    return load_paper(name).grids


def items() -> Iterator[tuple[str, PaperItem]]:
    """Every item with the number of its paper."""
    for name in paper_names():
        found = load_paper(name)
        yield from ((found.number, item) for item in found.items)


def trials(name: str, item: str, scale: PaperScale) -> list[Trial]:
    return [planned.trial for planned in grids(name)[f"{item}-{scale}"].cells()]  # type: ignore[misc]


BESIDE = {("003", "confirmation")}
"""Grids that ask what a table leaves open."""


def test_result_files_know_papers_and_views_as_their_specs_have_them() -> None:
    assert {load_paper(name).number: name for name in paper_names()} == PAPERS
    views: dict[str, dict[int, int]] = {}
    for number, item in items():
        if item.of and item.name.startswith("table"):
            view, of = (int(name.removeprefix("table")) for name in (item.name, item.of))
            views.setdefault(number, {})[view] = of
    assert views == VIEWS


def test_every_table_and_figure_is_an_item_and_every_item_a_table_or_figure() -> None:
    """`items.csv` lists the tables, and the figures that a grid measures."""
    with (ROOT / "papers" / "figures" / "items.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    listed = {(row["paper"], f"{row['kind']}{row['number']}" if row["number"] else "design") for row in rows}
    found = [(number, item.name) for number, item in items() if (number, item.name) not in BESIDE]
    left = {(number, item.name) for number, item in items() if item.reason and item.name.startswith("figure")}
    assert sorted(found) == sorted([*listed, *left])
    kinds = Counter("table" if name.startswith("table") else "figure" for _, name in found if name != "design")
    assert kinds == {"table": 37, "figure": 35}
    printed = {(cell.paper, cell.paper_table.partition("-")[0].replace("T", "table")) for cell in cells()}
    assert printed <= set(found)


def test_every_item_resolves_to_a_grid_or_a_reason() -> None:
    for name in paper_names():
        found = load_paper(name)
        for item in found.items:
            assert item.reason or found.grid_name(item.name, found.grid_item(item.name).scales[0]) in found.grids


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", sorted(paper_names()))
def test_every_grid_enumerates_with_a_key_per_trial_and_its_baseline(name: str, scale: PaperScale) -> None:
    for each, grid in grids(name).items():
        if each.endswith(f"-{scale}"):
            keys = [planned.key for planned in grid.enumerate()]
            assert len(set(keys)) == len(keys) > 0
            assert grid.baseline is None or grid.enumeration.baseline is not None or grid.enumeration.baselines


@pytest.mark.parametrize("name", sorted(paper_names()))
def test_scales_become_smaller(name: str) -> None:
    """A grid of a smaller scale trains fewer sequences times layers times squared width."""

    def size(trial: Trial) -> float:
        return trial.training.steps * trial.task.batch * trial.model.layers * trial.model.width**2

    for item in load_paper(name).items:
        if item.make is not None:
            sizes = [max(map(size, trials(name, item.name, scale))) for scale in item.scales]
            assert sizes == sorted(sizes, reverse=True)
            assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("item", ["table1", "table9", "table10", "table12"])
@pytest.mark.parametrize("scale", SCALES)
def test_every_integral_cell_stands_beside_its_control(item: str, scale: PaperScale) -> None:
    found = trials("integral", item, scale)
    controls = {each.changed(operator=softmax()).key + each.placement.key + each.operator.key for each in found}
    for trial in found:
        for signals in (2, 4, 8):
            if trial.operator.key == integral(signals).key:
                control = trial.changed(operator=integral_control(signals))
                assert (
                    control.changed(operator=softmax()).key + control.placement.key + control.operator.key in controls
                )


@pytest.mark.parametrize("scale", SCALES)
def test_softmax_and_ssa_have_the_same_seeds_and_differ_in_the_operator_only(scale: PaperScale) -> None:
    for item in ("table1", "table2", "figure4"):
        enumerated = [planned.trial for planned in grids("ssa")[f"{item}-{scale}"].enumerate()]
        plain = {each.key for each in enumerated if each.operator.key == softmax().key}
        other = [each for each in enumerated if each.operator.key == ssa().key]
        assert {each.changed(operator=softmax()).key for each in other} == plain


@pytest.mark.parametrize("scale", SCALES)
def test_predictors_without_a_model_are_recorded(scale: PaperScale) -> None:
    (functions, *_), (quantifiers, *_) = trials("ssa", "table1", scale), trials("ssa", "figure4", scale)
    assert {"zero.mse", "least_squares.mse"} <= set(functions.task.measures() or {})
    constants = {name.partition(".")[0] for name in quantifiers.task.measures() or {} if "." in name}
    assert len(constants) >= 2


@pytest.mark.parametrize("scale", SCALES)
def test_affine_is_read_in_both_ways(scale: PaperScale) -> None:
    for item in ("table1", "table2", "table3"):
        found = trials("affine_scaled", item, scale)
        readings = {
            n: {each.model.key for each in found if getattr(each.operator.rescale, "n", None) == n}
            for n in ("visible", "context")
        }
        assert readings["visible"] == readings["context"] == {each.model.key for each in found}


def place_cells(grid: Grid, table: Sequence[PublishedCell], root: Path) -> list[Beside]:
    """Plan the grid in a campaign, and put its cells in the places of a printed table."""
    (root / "grids").mkdir()
    write_grid(Layout(root), grid, trial_lines(grid))
    with Store.open(root) as store:
        return pair_with_own(grid_context(store, grid.name, campaign_styles(store)), table)


DESIGNS = {
    3: {
        "Softmax": "softmax",
        "sink token": "sink_tokens=1",
        **{f"{of} biases": f"{of} biases" for of in ("KV", "K", "V")},
    },
    10: {
        "0": "K biases",
        **{f"{m}v{mark}": f"{m or 1} v{own}" for m in ("", 5, 20) for mark, own in ("′'", ("″", "''"))},
    },
    11: {"KV": "KV biases", "K": "K biases", "KV, shared": "KV biases, shared", "K, shared": "K biases, shared"},
}
"""By table of paper 004: what it prints, and the one cell of the grid that it is."""


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("number", DESIGNS)
def test_every_printed_design_of_a_sink_has_one_cell_at_every_scale(
    number: int, scale: PaperScale, tmp_path: Path
) -> None:
    grid = grids("attention_sink")[f"table{number}-{scale}"]
    beside = place_cells(grid, printed_table("004", number), tmp_path)
    found = {(each.cell.row_label if number == 3 else each.cell.column_label): each for each in beside}
    assert {label: (each.own.label if each.own else None) for label, each in found.items()} == DESIGNS[number]
    assert {each.alike for each in beside} == {1}


_HERE = re.compile(r"[\d.]+[MB] \(([\d.]+)([kM]?) here\)")


@pytest.mark.parametrize("scale", ["gpu", "cpu"])
def test_a_model_that_has_the_name_of_a_larger_one_says_how_many_parameters_it_has(scale: PaperScale) -> None:
    """The weights of the softmax model of the same cell are counted one by one."""
    told = dict[str, set[str]]()
    for name in paper_names():
        for each, grid in grids(name).items():
            for planned in grid.cells() if each.endswith(f"-{scale}") else ():
                label = dict(planned.axes).get("model", "")
                assert not re.search(r"\b\d[\d.]*[MB]\b", _HERE.sub("", f"{label} {planned.label}")), planned.label
                if said := _HERE.fullmatch(label):
                    trial: Trial = planned.trial.changed(operator=softmax())  # type: ignore[assignment]
                    with shapes_only():
                        model = make_model(
                            trial.model, trial.operators(), inputs=trial.task.inputs, seed=0, path="auto"
                        )
                    size = float(said[1]) * {"k": 1e3, "M": 1e6}[said[2]]
                    assert sum(weights.numel() for weights in model.parameters()) == pytest.approx(size, rel=0.005)
                    told.setdefault(name, set()).add(label.partition(" ")[0])
    assert told["integral"] == {"125M", "1.2B"}
    assert told["attention_sink"] == {"60M", "1B"}
    assert told["affine_scaled"] >= {"0.5B", "1B"}


@pytest.mark.parametrize("name", sorted(paper_names()))
def test_results_name_their_cells_as_the_grids_do(name: str) -> None:
    known = 0
    for path in sorted((ROOT / "results" / name).glob("*.parquet")):
        if path.stem in grids(name):
            labels = {planned.cell: planned.label for planned in grids(name)[path.stem].cells()}
            shown = dict(pl.read_parquet(path, columns=["cell", "label"]).unique().iter_rows())
            assert {cell: shown[cell] for cell in shown.keys() & labels.keys()}.items() <= labels.items()
            known += len(shown.keys() & labels.keys())
    assert known


@pytest.mark.parametrize(("name", "number", "scale"), [("integral", "002", "cpu"), ("affine_scaled", "000", "paper")])
def test_a_printed_size_stands_beside_the_cells_of_that_name(
    name: str, number: str, scale: PaperScale, tmp_path: Path
) -> None:
    beside = place_cells(grids(name)[f"table1-{scale}"], printed_table(number, 1), tmp_path)
    assert len({each.cell.model for each in beside if each.own}) > 1
    assert all(each.own.label.partition(" ")[0] == each.cell.model for each in beside if each.own)


def test_the_costs_of_gpt2_in_print_contradict_each_other_by_the_count_here() -> None:
    """The tokens of the recipe within the hours of the paper are a small share of what its GPU can do."""
    (trial, *_) = trials("ssa", "table2", "paper")
    assert trial.training.schedule.warmup == 2000
    assert trial.tokens() == 50_000 * 192 * 1024
    flops, hours, peak = trial.flops(), 120, 312e12
    share = flops / (hours * 3600) / peak
    assert 1 < flops / (6 * trial.parameters() * trial.tokens()) < 1.5  # attention besides
    told = (ROOT / "docs" / "replication.md").read_text(encoding="utf-8")
    assert "2,000 steps" in next(line for line in told.splitlines() if line.startswith("| warm-up of GPT-2 |"))
    row = next(line for line in told.splitlines() if line.startswith("| 120 A100-hours"))
    said = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.e]*\d|\d", row.partition("contradict")[2])]
    tokens, speed = trial.tokens() / 1e9, trial.tokens() / (hours * 3600)
    there = [tokens, flops, speed, 100 * share, 100, 312, 40, hours, tokens * 0.4 / share, tokens, hours * share / 0.4]
    assert said == pytest.approx(there, rel=0.02)
