"""Own results give one word for each published claim, by the table of the claim."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from published_campaign import Value, mse, planted

from ablate.papers.matching.published_comparison import WORDS, compare_published
from ablate.store.published.tables import operators
from ablate.variants import fixed_value_bias, principled, softcap, softmax, ssa, temperature
from ablate.variants.papers.catalogue import catalogue

AT = (2, 3, 5, 10)
EFFECTS = {2: -1.0, 3: 1.0, 5: -1.0, 10: 0.0}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Softmax, SSA under another name, temperature 5 with a failed run, and one that no paper has."""
    cells = {"plain": softmax(), "mine": ssa(name="mine"), "warm": temperature(5.0), "capped": softcap()}
    flat = dict.fromkeys(AT, 0.0)
    values = {
        "plain": [mse(seed, flat) for seed in range(5)],
        "mine": [mse(3 * seed + 1, EFFECTS) for seed in range(5)],
        "warm": [mse(seed + 2, flat) for seed in range(4)] + [None],
        "capped": [mse(seed, flat) for seed in range(5)],
    }
    with planted(tmp_path_factory.mktemp("planted"), cells, values) as store:
        return compare_published(store, "planted")


def of(found: pl.DataFrame, row: str, column: str, table: str = "T1", paper: str = "003") -> dict[str, Any]:
    here = (pl.col("paper") == paper) & (pl.col("paper_table") == table)
    rows = found.filter(here & (pl.col("row_label") == row) & (pl.col("column_label") == column)).rows(named=True)
    assert len(rows) == 1
    return rows[0]


def test_the_four_words(found: pl.DataFrame) -> None:
    assert of(found, "SSA", "5")["word"] == "same direction"
    assert of(found, "SSA", "3")["word"] == "differs"
    assert of(found, "SSA", "10")["word"] == "within noise"
    assert of(found, "SSA", "4")["word"] == "not comparable"
    assert set(found["word"]) == set(WORDS)


def test_differences_are_those_that_were_printed_and_planted(found: pl.DataFrame) -> None:
    row = of(found, "SSA", "5")
    assert row["published"] == pytest.approx((0.02 / 1.62 - 1) * 100)
    assert row["own"] == pytest.approx((np.exp(-1.0) - 1) * 100, abs=1.5)
    assert row["low"] < row["own"] < row["high"] < 0
    assert (row["label"], row["base"], row["pairs"], row["unit"]) == ("mine", "plain", 5, "%")
    assert row["claim"] == "SSA against Softmax · 5"


@pytest.mark.parametrize(
    ("row", "column", "table", "paper", "why"),
    [
        ("SSA", "4", "T1", "003", "no finished run of mine measured mse at sigma_x=1, sigma_f=4"),
        ("τ = 5", "5", "T1", "003", "failures differ between the groups"),
        ("τ = 20", "5", "T1", "003", "no cell of the grid is temperature with tau=20"),
        ("Sparsemax", "5", "T1", "003", "no cell of the grid is sparsemax"),
        ("SuperGLUE · CB", "Zero-shot · SSA", "T4", "003", "the paper contradicts itself; table 4: the errors"),
        ("1B · Sink", "Loss", "T1", "000", "another task: the grid learns linear_functions, the"),
        ("1B · Sink", "Avg.", "T1", "000", "nothing here measures it: mean accuracy of six tasks"),
        ("q·k/√d · Z = max(|sum|, 1)", "Valid loss", "T13", "004", "the paper prints a dash: training failed"),
    ],
)
def test_what_cannot_be_compared_says_why(
    found: pl.DataFrame, row: str, column: str, table: str, paper: str, why: str
) -> None:
    told = of(found, row, column, table, paper)
    assert told["word"] == "not comparable"
    assert told["reason"].startswith(why)
    assert told["own"] is None


def test_what_is_not_the_same_is_said_with_every_comparison(found: pl.DataFrame) -> None:
    judged = found.filter(pl.col("word") != "not comparable")
    assert set(judged["differs"]) == {"22.5M parameters, here 25k; 500k steps, here 20"}
    assert all("tables 1 and 6" in trust and "equation 2" in trust for trust in judged["trust"])


def test_a_difference_within_the_noise_of_test_items_claims_nothing(tmp_path: Path) -> None:
    def scores(seed: int, gain: float) -> list[Value]:
        point = {"fewshot": 0.0, "context": 64.0}
        return [("evaluation", f"lm_eval.{t}.acc", point, 0.3 + gain + 0.001 * (seed % 3)) for t in ("arc_easy", "cb")]

    values = {"plain": [scores(s, 0.0) for s in range(4)], "SSA": [scores(2 * s, 0.1) for s in range(4)]}
    with planted(tmp_path, {"plain": softmax(), "SSA": ssa()}, values, task="text") as store:
        found = compare_published(store, "planted", table="T2", metric="score")
    small, large = (of(found, f"{s}", "Zero-shot · SSA", "T2") for s in ("LM-Eval · ARC-Easy", "SuperGLUE · CB"))
    assert (small["word"], large["word"]) == ("within noise", "same direction")
    assert small["published"] == pytest.approx(2.4)
    assert small["published_noise"] == pytest.approx(1.96 * np.hypot(1.0218, 1.0251), rel=1e-3)
    assert small["own"] == pytest.approx(10, abs=0.3)  # in points, as printed
    assert "FineWebText, here text" in small["differs"]


def test_sinks_of_probes_are_means_over_heads_in_the_printed_unit(tmp_path: Path) -> None:
    def sinks(seed: int, share: float) -> list[Value]:
        return [("probe", "sink_share", {"eps": 0.3, "position": 1.0}, share + 0.002 * (seed % 3))]

    named = catalogue()
    cells = {"plain": softmax(), "sigmoid": named["sigmoid"].make(), "unlike": named["sigmoid"].make()}
    values = {"plain": [sinks(s, 0.3) for s in range(4)], "sigmoid": [sinks(2 * s, 0.1) for s in range(4)]}
    values["plain"] = [[*v, ("evaluation", "validation_loss", {}, 3.0)] for v in values["plain"]]
    with planted(tmp_path, cells, values, task="text", unlike={"training": {"steps": 9}}) as store:
        found = compare_published(store, "planted", paper="4", table="T4", metric="sink_share")
    sigmoid = found.filter(pl.col("operator") == "sigmoid").rows(named=True)
    assert [row["label"] for row in sigmoid] == ["sigmoid", "unlike"]
    assert sigmoid[0]["word"] == "same direction"
    assert sigmoid[0]["published"] == pytest.approx(0.44 - 18.18)
    assert sigmoid[0]["own"] == pytest.approx(-20, abs=0.5)
    assert sigmoid[1]["reason"] == "no cell of softmax differs from unlike in the operator only"


def test_an_operator_in_other_layers_makes_another_claim(tmp_path: Path) -> None:
    def scores(seed: int, gain: float) -> list[Value]:
        return [("evaluation", "lm_eval.boolq.acc_full", {}, 0.5 + gain + 0.001 * (seed % 3))]

    integral = catalogue()["integral"].make()
    cells = {"plain": softmax(), "all": integral, "top": integral}
    values = {"plain": [scores(s, 0.0) for s in range(4)]}
    values |= {name: [scores(2 * s, 0.1) for s in range(4)] for name in ("all", "top")}
    top = {"placement": {"share": 0.5, "side": "top"}}
    with planted(tmp_path, cells, values, task="text", top=top) as store:
        found = compare_published(store, "planted", paper="002", table="T1", metric="boolq")
    judged = found.filter(pl.col("word") != "not comparable").select("row_label", "label").rows()
    assert {label for row, label in judged if "all layers" in row} == {"all"}
    assert {label for row, label in judged if row.endswith("INTG")} == {"top"}


def test_a_failed_claim_counts_in_the_family_of_the_others(tmp_path: Path) -> None:
    values = {"plain": [mse(s, {5: 0.0}) for s in range(4)], "mine": [mse(2 * s, {5: -0.05}) for s in range(4)]}
    cells = {"plain": softmax(), "mine": ssa()}
    frames = []
    for name, more in (("alone", {}), ("beside", {"warm": temperature(5.0)})):
        told = {**values, **({"warm": [*values["plain"][:3], None]} if more else {})}
        with planted(tmp_path / name, {**cells, **more}, told) as store:
            frames.append(compare_published(store, "planted"))
    alone, beside = frames
    failed = beside.filter(pl.col("reason").str.starts_with("failures differ")).height
    judged = alone["p_holm"].drop_nulls().len()
    assert (failed, judged) == (1, 1)
    assert 0 < alone["p_holm"].drop_nulls().item() < 0.5
    assert beside["p_holm"].drop_nulls().item() == pytest.approx(2 * alone["p_holm"].drop_nulls().item())


def test_cells_are_known_by_what_they_are_made_of(tmp_path: Path) -> None:
    named = catalogue()
    cells = {name: each.make().changed(name=f"my own {at}") for at, (name, each) in enumerate(named.items())}
    cells["principled"] = principled(gate_width=4)
    with planted(tmp_path, cells, {}) as store:
        told = store.sql(
            "SELECT DISTINCT g.label, o.operator FROM v_published_operator o JOIN grid_trial g USING (cell)"
        )
    known = {made.operator for made in operators()}
    others = {(label, operator) for label, operator in told.iter_rows() if label != operator}
    assert others == {("ssa_released", "ssa")}  # the same score from another start
    assert set(told["operator"]) == known - {"integral_weights"}  # published with two signals, not the default eight


def test_the_view_puts_published_values_beside_own_means(tmp_path: Path) -> None:
    cells = {"plain": softmax(), "mine": ssa(name="mine"), "text": softmax()}
    values = {label: [mse(seed, {5: 0.0}) for seed in range(3)] for label in cells}
    with planted(tmp_path, cells, values, text={"task": {"kind": "text"}}) as store:
        rows = store.sql(
            "SELECT row_label, label, value, own_mean, n, own_low, own_high FROM v_published "
            "WHERE paper_table = 'T1' AND paper = '003' AND point['sigma_f'] = 5 ORDER BY id"
        ).rows()
    logs = np.log([v[0][3] for v in values["plain"]])
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)  # t with two degrees of freedom
    assert [row[:3] for row in rows] == [("SSA", "mine", 0.02), ("Softmax", "plain", 1.62)]
    wanted = (np.exp(logs.mean()), 3, np.exp(logs.mean() - half), np.exp(logs.mean() + half))
    assert [row[3:] for row in rows] == [pytest.approx(wanted)] * 2


def test_the_length_of_a_fixed_value_is_that_in_the_head_of_its_own_model(tmp_path: Path) -> None:
    """A vector of 5 / sqrt(d) in each of d channels has length 5; in a head of another width it has another one."""
    of = {width: fixed_value_bias(5 / width**0.5, along="all") for width in (8, 96)}
    cells = {"fits 8": of[8], "fits 96": of[96], "for 96 in 8": of[96], "for 8 in 96": of[8], "unknown": of[96]}
    widths = {"fits 8": 8, "fits 96": 96, "for 96 in 8": 8, "for 8 in 96": 96}
    models = {label: {"model": {"width": 4 * width, "heads": 4}} for label, width in widths.items()}
    query = "SELECT DISTINCT label, arguments['m'] AS m FROM v_published_operator JOIN grid_trial USING (cell)"
    with planted(tmp_path, cells, {}, **models) as store:
        assert sorted(store.sql(query).rows()) == [("fits 8", "5"), ("fits 96", "5")]
