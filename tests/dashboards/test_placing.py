"""An own value stands beside a printed one only where the two are the same thing, and a choice is said."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import polars as pl
import pytest
from gallery_campaign import Harm, Made, Row, known, rows_of, spec_of, write_gallery

from ablate import FixedToken, Probing, RandomTokens, Text, Training, Trial
from ablate.papers.figures.cell_matching import is_about
from ablate.papers.figures.paper_tables import NOT_COMPARED, printed_table, read_beside
from ablate.papers.matching.our_results import facts
from ablate.papers.matching.published_matching import agrees
from ablate.store import Store
from ablate.variants import softmax
from ablate.variants.model.named_backbones import sink_60m

SEEDS = (0, 1, 2)
SINK: Row = ("probe", "sink_share", {"eps": 0.3, "position": 1.0}, 0, 0)
LOSS: Row = ("evaluation", "validation_loss", {}, None, None)
MSE: Row = ("evaluation", "mse", {"sigma_f": 5.0, "sigma_x": 1.0}, None, None)
Spec = Mapping[str, Any]
TEXT: Spec = {"task": {"kind": "text", "context": 64}, "probing": {"length": 64}}


def cell(rows: Sequence[Row], spec: Spec, operator: str = "softmax", **axes: str) -> Made:
    """A cell of an operator without arguments, whose label is its levels."""
    given = {"operator": operator, **axes}
    made = {"operator": spec_of(operator, {"signals": "2"} if operator == "integral" else {}), **spec}
    return Made(" · ".join(given.values()), made, given, rows)


def make_row(name: str, **point: float) -> Row:
    return "evaluation", name, point, None, None


def scores(fewshot: float, context: float = 64.0, *, last: float | None = None) -> list[Row]:
    """Return rows of the six tasks of 000; `last` is another context for the last of them."""
    tasks = ("arc_challenge", "arc_easy", "boolq", "hellaswag", "piqa", "winogrande")
    at = [context] * 5 + [context if last is None else last]
    return [make_row(f"lm_eval.{task}.acc", fewshot=fewshot, context=c) for task, c in zip(tasks, at, strict=True)]


def all_rows(paper: str, number: int) -> list[Row]:
    """Return all rows that a table needs."""
    return list({str(row): row for each in printed_table(paper, number) for row in rows_of(each)}.values())


DISTILLED: Spec = {"task": {"kind": "distillation"}}
LINEAR: Spec = {"task": {"kind": "linear_functions"}}
LONG = tuple(
    make_row(f"lm_eval.longbench_{name}.score", factor=f) for name in ("qasper", "qasper_e") for f in (1.0, 4.0)
)
TOP: Spec = {"placement": {"share": 0.5, "side": "top"}}
TASKS = all_rows("002", 9)
SET = [make_row("lm_eval.cb.acc", fewshot=0.0, context=64.0)]
CLIPPED = {"link": "clipped"}
GRIDS: Mapping[str, list[Made]] = {
    "tokens": [cell([SINK], TEXT, intervention=each) for each in ("none", "random 1", "12", "fixed 1")],
    "kinds": [
        cell([SINK, LOSS], {"task": {"kind": "grammar"}, "probing": {"length": 64}}, task="grammar"),
        cell([SINK, LOSS], {**TEXT, "probing": {"length": 32}}, task="short"),
        cell([SINK, LOSS], TEXT, task="text"),
    ],
    "order": [
        cell([MSE], LINEAR, "ssa", window="8", depth="1"),
        cell([MSE], LINEAR, window="16", depth="2"),
        cell([MSE], LINEAR, window="8", depth="2"),
    ],
    "heads": [
        cell(TASKS, {**TEXT, **TOP, "model": {"layers": 2, "heads": 4}}, "integral", width="narrow"),
        cell(TASKS, {**TEXT, **TOP, "model": {"layers": 2, "heads": 8}}, "integral", width="wide"),
    ],
    "few-heads": [cell(TASKS, {**TEXT, **TOP, "model": {"layers": 2, "heads": 4}}, "integral", width="narrow")],
    "shots": [
        Made(name, {"operator": spec_of("affine_scaled", given), **DISTILLED}, {"operator": name}, rows)
        for name, given, rows in (
            ("clipped", CLIPPED, [*scores(3.0), *scores(0.0)]),
            ("unit", {"link": "unit"}, [*scores(3.0, 128.0), *scores(0.0, last=128.0)]),
        )
    ],
    "long": [cell(LONG, TEXT), cell(LONG[:1], TEXT, "differential")],
    "gains": [cell(SET, {**TEXT, "training": {"steps": 9}}), cell(SET, {**TEXT, "training": {"steps": 7}}, "ssa")],
    "doubted": [cell(all_rows("003", 4), TEXT), cell(all_rows("003", 4), TEXT, "ssa")],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    root = write_gallery(tmp_path_factory.mktemp("placing") / "runs", GRIDS, Harm(seeds=SEEDS))
    with Store.open(root) as store:
        yield store


def at(found: pl.DataFrame, row: str, column: str) -> dict[str, Any]:
    return found.filter((pl.col("row") == row) & (pl.col("column") == column)).row(0, named=True)


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ("0.10", "0.1", True),
        ("1e-4", "0.0001", True),
        ("GPT2 xl", "GPT2-XL", True),
        ("ReGLU", "reglu", True),
        ("random 1", "1", False),
        ("12B", "1.2B", False),
        ("1e4", "1e-4", False),
        ("-50 %", "50 %", False),
        ("0.25M", "025M", False),
    ],
)
def test_a_level_is_what_a_paper_writes_or_another(here: str, there: str, *, same: bool) -> None:
    assert agrees(here, there) is same


def test_a_spec_says_its_facts_in_the_words_of_the_papers() -> None:
    model = sink_60m().changed(feedforward="swish", head_outputs="added")
    trial = Trial(
        task=Text(context=96, intervention=FixedToken(position=2)),
        model=model,
        operator=softmax(),
        training=Training(steps=1),
        probing=Probing(length=64),
    )
    said = facts(trial.model_dump(mode="json"))
    assert (said["fixed token"], said["heads"], said["feedforward"]) == ("2", "addition", "swish")
    assert said["model"] == f"{model.layers} layers, {model.heads} heads"
    assert (said["positions"], float(said["weight decay"]), float(said["learning rate"])) == ("rotary", 0, 1e-3)
    other = trial.changed(task=Text(context=96, intervention=RandomTokens(positions=(1,))))
    assert "fixed token" not in facts(other.model_dump(mode="json"))
    assert facts({"model": {"positions": {"kind": "none"}}}) == {"positions": "nope"}


def test_a_fixed_token_is_not_a_random_one_nor_a_number_that_ends_alike(store: Store) -> None:
    found = read_beside(store, "tokens", "004", 7)
    cells = dict(found.filter(pl.col("row").str.contains("1")).select("column", "cell").iter_rows())
    assert [name for name in cells.values() if name] == ["softmax · fixed 1"]
    why = found.filter(pl.col("cell").is_null())["why"].unique().to_list()
    assert sorted(why) == ["no cell of the grid has fixed token 2", "no cell of the grid has fixed token 3"]


def test_another_task_stands_nowhere_and_of_several_cells_the_first_in_the_grid_s_order_stands_there(
    store: Store,
) -> None:
    found, label = read_beside(store, "kinds", "004", 4), "softmax · text"
    sink, loss = (at(found, "exp(q·k/√d) · Z = sum", name) for name in ("Sinkϵ1(%)", "loss"))
    assert (sink["cell"], sink["note"]) == (label, None)
    assert sink["mean"] == pytest.approx(100 * fmean(known(label, *SINK[1:3], s, (0.0, 0.0, 0.0)) for s in SEEDS))
    assert (loss["cell"], loss["note"]) == (label, f"1 of 2 cells: {label}")  # a row is of one cell
    row = at(read_beside(store, "order", "003", 1), "Softmax", "5")
    assert row["note"] == "1 of 2 cells: softmax · 8 · 2"  # in the order of execution it is the second


def test_what_a_table_keeps_fixed_is_matched_where_the_grid_varies_it_and_told_where_it_is_another(
    store: Store,
) -> None:
    row = at(read_beside(store, "heads", "002", 9), "INTG · top 50%", "BoolQ")
    assert (row["cell"], row["note"]) == ("integral · wide", None)
    assert "heads" not in row["differs"]
    few = read_beside(store, "few-heads", "002", 9)
    assert "heads 8, here 4" in at(few, "INTG · top 50%", "BoolQ")["differs"]
    assert at(few, "INTG · bottom 50%", "BoolQ")["why"] == "no cell of the grid has it in bottom 50 %"


def test_derived_values_are_of_one_point_and_of_the_printed_setting(store: Store) -> None:
    found = read_beside(store, "shots", "000", 3)
    row = at(found, "CSR Avg.", "Linear clipping")
    point = {"context": 64.0, "fewshot": 0.0}
    wanted = 100 * fmean(known("clipped", each[1], point, seed) for each in scores(0.0) for seed in SEEDS)
    assert (row["mean"], row["point"]) == (pytest.approx(wanted), "context=64, fewshot=0")
    assert at(found, "CSR Avg.", "Sigmoid")["why"] == "no point has all of 6 tasks"
    found = read_beside(store, "long", "002", 6)
    (mean,) = found["mean"].drop_nulls()  # positions are stretched as in the paper
    wanted = 100 * fmean(known("softmax", "lm_eval.longbench_qasper.score", {"factor": 4.0}, seed) for seed in SEEDS)
    assert mean == pytest.approx(wanted)
    assert "no finished run has lm_eval.longbench_qasper.score at factor=4" in found["why"].to_list()
    row = at(read_beside(store, "gains", "003", 2), "SuperGLUE · CB", "Zero-shot · SSA, gain")
    assert row["mean"] is None  # no gain is over a softmax of another training
    assert row["why"] == "no cell of softmax differs from this one in the operator only"


def test_values_that_the_paper_contradicts_are_shown_and_not_compared(store: Store) -> None:
    found = read_beside(store, "doubted", "003", 4).filter(pl.col("mean").is_not_null())
    assert found.height > 20
    assert found.select("difference", "band", "word").null_count().row(0) == (found.height,) * 3
    assert set(found["note"]) == {NOT_COMPARED}


def test_an_axis_is_about_the_fact_of_its_name() -> None:
    assert is_about({"name": "weight_decay", "path": "training.optimiser.weight_decay"}, "weight decay")
