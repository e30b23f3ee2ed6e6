"""`ablate effects`, `curves` and `pareto` on campaigns that no training made."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from synthetic import write_campaign, write_end

from ablate.store import Store
from ablate.store.analysis.headline import tell_doubts
from ablate.store.analysis.judge import judge
from ablate.store.statistics.verdict import CLAIMS

FACTORS = {"gate": ("head", "constant", "layer")}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    write_campaign(root, operators=("softmax", "SSA"), factors=FACTORS, failed={("SSA · head", 1): "diverged"})
    return root


def test_every_axis_has_a_row_and_what_is_left_out_is_said(campaign: Path, ablate: Callable) -> None:
    said = ablate("effects", "--campaign", campaign)
    lines = said.out.splitlines()
    shown = [line.split()[:2] for line in lines[5:9]]
    assert shown[3] == ["all", "variants"]
    assert [name for name, _ in shown[:3]] in (["gate", "gate", "operator"], ["operator", "gate", "gate"])
    assert [line.split()[0] for line in lines[13:15]] == ["operator", "gate"]
    assert "operator × gate" not in said.out
    with_pairs = ablate("effects", "--interactions", "--campaign", campaign).out
    pairs = [line for line in with_pairs.splitlines() if line.startswith("operator × gate")]
    assert len(pairs) == 1 + 2 * 3, "its test, and the mean of each pair of levels"


def test_a_claim_of_a_level_has_the_checks_of_its_cells(campaign: Path, ablate: Callable) -> None:
    """They are those of all cells with this level, or of the cells that a query means."""
    with Store.open(campaign) as store:
        rows = judge(store, "quickstart").rows
    rows = rows.filter(pl.col("label").str.starts_with("SSA"))
    for query, own in (((), rows), (("gate=head",), rows.filter(label="SSA · head"))):
        told = json.loads(ablate("effects", *query, "--json", "--campaign", campaign).out)
        claims = [(row["factor"], row["level"]) for row in told["data"]["effects"] if row["verdict"] in CLAIMS]
        assert claims == [("operator", "SSA")]
        assert f"operator SSA, {tell_doubts(own)}" in told["warnings"]


def test_programs_get_json_with_all_digits_and_csv(campaign: Path, ablate: Callable) -> None:
    found = json.loads(ablate("effects", "--json", "--interactions", "--campaign", campaign).out)
    assert found["schema"] == "ablate/effects/1"
    assert [row["term"] for row in found["data"]["terms"]] == ["operator", "gate", "operator × gate"]
    levels = {row["level"]: row for row in found["data"]["effects"]}
    assert set(levels) == {"5 cells", "SSA", "constant", "layer"}
    by_axis = [row["factor"] for row in found["data"]["effects"]]
    assert [*dict.fromkeys(by_axis)] == [name for at, name in enumerate(by_axis) if name not in by_axis[at - 1 : at]]
    for sort, key in (("plan", None), ("p", "p_holm"), ("effect", "effect")):
        rows = json.loads(ablate("effects", "--json", "--sort", sort, "--campaign", campaign).out)["data"]["effects"]
        gate = [row for row in rows if row["factor"] == "gate"]
        expected = [levels["constant"], levels["layer"]]
        assert gate == (expected if key is None else sorted(expected, key=lambda row: row[key]))
    other = json.loads(ablate("effects", "--json", "--measure", "loss", "--campaign", campaign).out)["data"]
    assert other["effects"][0]["effect"] != found["data"]["effects"][0]["effect"]
    assert found["data"]["seeds"] == [0, 2, 3, 4]
    assert found["warnings"][-1] == "1 of 30 planned runs are left out: 1 failed"
    lines = ablate("effects", "--csv", "--campaign", campaign).out.splitlines()
    assert lines[0].startswith("factor,level,against,order,n,effect,low,high,corrected_low")
    assert len(lines) == 5


def test_the_first_seed_alone_is_tested_against_the_interactions(tmp_path: Path, ablate: Callable) -> None:
    """Seeds run in order, so this is the state of every campaign at first."""
    labels = [f"{operator} · {gate}" for operator in ("softmax", "SSA") for gate in FACTORS["gate"]]
    later = [(label, seed) for label in labels for seed in range(1, 5)]
    write_campaign(tmp_path, operators=("softmax", "SSA"), factors=FACTORS, pending=later, noise=0.001)
    said = ablate("effects", "--campaign", tmp_path)
    assert "p (Holm)" in said.out
    assert "there is one seed" in said.out
    assert "preliminary: 24 of 30 planned runs outstanding" in said.out


def test_a_grid_without_results_or_axes_says_so(tmp_path: Path, ablate: Callable) -> None:
    write_campaign(tmp_path, operators=("softmax",), seeds=range(2))
    assert "no axis" in ablate("effects", "--campaign", tmp_path).out
    write_campaign(tmp_path / "one", operators=("softmax", "SSA"), seeds=range(2))
    for words in ([], ["--interactions"]):
        said = ablate("effects", *words, "--campaign", tmp_path / "one").out
        assert ("no interactions" in said) == bool(words)
    assert "did you mean 'quickstart'" in ablate("effects", "--campaign", tmp_path, "--grid", "quikstart", code=3).err


def test_curves_and_pareto_sets_answer_on_a_terminal(campaign: Path, ablate: Callable) -> None:
    lines = ablate("curves", "--by", "steps", "--level", "0.3", "--csv", "--campaign", campaign).out.splitlines()
    assert lines[0].startswith("cell,label,question,at,pairs")
    assert len(lines) == 1 + 3 * 5
    for budget in ("-5", "nan", "1e30"):
        assert "0 to 59" in ablate("curves", "--by", "steps", "--budget", budget, "--campaign", campaign, code=2).err
    assert "did you mean 'loss'" in ablate("pareto", "--against", "los", "--campaign", campaign, code=3).err


def test_a_cost_of_the_machine_that_differs_between_runs_of_a_cell_is_said(tmp_path: Path, ablate: Callable) -> None:
    made = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(3))
    cost = {"steps": 60, "tokens": 600, "train_s": 2.0, "evaluate_s": 0.5, "probe_s": 0.0, "flops": 1e9}
    for line in made.lines:
        write_end(made.layout, line["trial"], 1, cost=cost)
    for factor, noted in ((1.9, False), (2.1, True)):
        write_end(made.layout, made.line("SSA", 1)["trial"], 1, cost={**cost, "train_s": 2.0 * factor})
        said = ablate("pareto", "--campaign", tmp_path).out
        assert "train_s (geometric mean" in said
        assert ("runs of SSA differ in train_s from 2.000 to 4.200" in said) == noted
    assert "SSA" in json.loads(ablate("pareto", "--json", "--campaign", tmp_path).out)["warnings"][-1]
    assert "differ in" not in ablate("pareto", "--cost", "flops", "--campaign", tmp_path).out


def test_a_cell_without_values_counts_once_and_is_named(tmp_path: Path, ablate: Callable) -> None:
    lost = {("SSA", seed): "diverged" for seed in range(3)}
    pending = [("Integral", seed) for seed in range(3)]
    write_campaign(
        tmp_path, operators=("softmax", "SSA", "Integral", "linear"), seeds=range(3), failed=lost, pending=pending
    )
    lines = ablate("curves", "--by", "steps", "--campaign", tmp_path).out.splitlines()
    assert sum(line.startswith("1 cell: ") for line in lines) >= 1
    assert not any(line.startswith("2 cells: ") for line in lines)
    said = ablate("pareto", "--against", "loss", "--campaign", tmp_path).out
    assert "2 cells of these not listed, as no run has all values: SSA, Integral" in said
