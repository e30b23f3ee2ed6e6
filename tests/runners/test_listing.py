"""Tables on a terminal: which cells, in which order, with which columns, and that they fit."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from submission_files import SMALL
from synthetic import publish_grid, write_campaign

from ablate.store.analysis.measurements import text_of
from ablate.store.analysis.verdicts import verdicts
from ablate.store.store import Store

OPERATORS = ("softmax", "SSA", "Integral", "Principled", "Affine", "linear")
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01)
GATES = ("layer", "layer and head and query position")
MODELS = tuple(f"gpt2 of {layers} layers and 4 heads, width 128" for layers in range(5))
FEW = {**SMALL, "steps": 12}
COMMANDS = (["table"], ["curves", "--by", "steps", "--level", "0.2"], ["pareto", "--against", "loss"], ["effects"])


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 cells of five seeds."""
    root = tmp_path_factory.mktemp("listing") / "campaign"
    write_campaign(root, operators=OPERATORS, factors={"lr": RATES}, **FEW)
    return root


@pytest.fixture(scope="module")
def long_campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 cells with labels of up to 88 characters, some of which failed."""
    root = tmp_path_factory.mktemp("long") / "campaign"
    factors = {"operator.gate.strength.per": GATES, "model": MODELS}
    failed = {
        (f"{operator} · {GATES[1]} · {model}", 0): reason
        for operator, reason in (("SSA", "out_of_memory"), ("Integral", "error"), ("softmax", "diverged"))
        for model in MODELS
    }
    write_campaign(root, operators=OPERATORS[:3], factors=factors, failed=failed, **FEW)
    return root


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")


def labels(text: str) -> list[str]:
    """The labels that lines begin with."""
    return [" ".join(line.split()[:3]) for line in text.splitlines() if line.split()[1:2] == ["·"]]


def test_another_measure_is_compared_as_the_store_does(campaign: Path, ablate: Callable) -> None:
    """The grid's own has its scale and band; others have neither."""
    words = ["table", "--campaign", campaign, "--sort", "plan", "--measure"]
    with Store.open(campaign) as store:
        own = store.grid("quickstart")["measure"]
        loss = {"name": "loss", "point": {}, "scale": "linear", "rope": 0.0}
        expected = verdicts(store, "quickstart", measure=loss)["value"].to_list()
    own_text = text_of(own["name"], own["point"])
    first = next(iter(own["point"].items()))
    usual = json.loads(ablate(*words[:-1], "--json").out)["data"]
    for text in (own_text, own["name"], text_of(own["name"], dict([first]))):
        assert json.loads(ablate(*words, text, "--json").out)["data"] == usual
    rows = json.loads(ablate(*words, "loss", "--json").out)["data"]
    assert [row["value"] for row in rows] == pytest.approx(expected)
    assert {row["measure"] for row in rows} == {"loss"}
    assert {row["measure"] for row in usual} == {own_text}
    said = ablate(*words, "los", code=3).err
    assert "did you mean 'loss'?" in said
    ablate(*words[:-1], "--better", "higher", code=2)
    ablate(*words, "loss", "--best-over", "lr", code=2)


def test_status_shows_the_cells_and_the_failures_of_a_query(
    campaign: Path, long_campaign: Path, ablate: Callable
) -> None:
    said = ablate("status", "operator=SSA", "lr=0.001", "lr=0.01", "--campaign", campaign).out
    assert labels(said) == ["SSA · 0.001", "SSA · 0.01"]
    said = ablate("status", "operator=SSA", f"model={MODELS[0]}", "--campaign", long_campaign).out
    assert [line.split()[:4] for line in said.splitlines() if "failed: " in line] == [
        ["failed:", "1", "x", "out_of_memory:"]
    ]


@pytest.mark.parametrize(("what", "lines"), [("verdicts", 2), ("trials", 10), ("cells", 8)])
def test_an_export_takes_a_query(what: str, lines: int, campaign: Path, ablate: Callable) -> None:
    words = ("operator=SSA", "lr=0.001", "lr=0.01", "--format")
    rows = ablate("export", what, "-", *words, "csv", "--campaign", campaign).out.splitlines()[1:]
    assert len(rows) == lines
    assert all("SSA · 0.001," in row or "SSA · 0.01," in row for row in rows)
    page = ablate("export", what, "-", *words, "md", "--campaign", campaign).out
    assert page.count("SSA · 0") == (2 if what == "cells" else lines)
    ablate("export", "wandb", "runs", *words, "csv", "--campaign", campaign, code=2)


@pytest.mark.parametrize("what", ["metrics", "evaluations"])
def test_an_export_of_measurements_takes_a_query_of_trials(what: str, campaign: Path, ablate: Callable) -> None:
    words = ("export", what, "-", "--format", "csv", "--campaign", campaign)
    rows = ablate(*words, "operator=SSA", "seed=1").out.splitlines()
    assert rows == [row for at, row in enumerate(ablate(*words).out.splitlines()) if not at or ",SSA,1," in row]


@pytest.mark.parametrize("width", [80, 100])
def test_thirty_cells_with_long_labels_fit_a_screen(
    width: int, long_campaign: Path, ablate: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    more = (
        ["effects", "--interactions"],
        ["table", "--best-over", "model"],
        ["status"],
        ["status", "--failures"],
        ["retry"],
    )
    for command in (*COMMANDS, *more):
        lines = ablate(*command, "--campaign", long_campaign, code=2 if command == ["retry"] else 0).out.splitlines()
        assert 1 < len(lines) <= 60, command
        assert max(len(line.rstrip()) for line in lines) <= width, command


def test_the_baseline_is_first_and_the_best_cell_next(campaign: Path, ablate: Callable) -> None:
    with Store.open(campaign) as store:
        found = verdicts(store, "quickstart")
    best = found.sort("difference")["label"].to_list()
    said = ablate("table", "--campaign", campaign).out
    assert labels(said) == ["softmax · 0.0001", *best]
    rows = json.loads(ablate("table", "--json", "--sort", "plan", "--campaign", campaign).out)["data"]
    assert [row["label"] for row in rows] == found["label"].to_list()
    by_p = json.loads(ablate("table", "--json", "--sort", "p", "--campaign", campaign).out)["data"]
    assert [row["p_holm"] for row in by_p] == sorted(row["p_holm"] for row in by_p)


@pytest.mark.parametrize("command", COMMANDS[:2], ids=lambda command: command[0])
def test_baselines_are_first_with_their_runs(command: list[str], tmp_path: Path, ablate: Callable) -> None:
    command = [word for word in command if word not in ("--level", "0.2")]
    write_campaign(tmp_path / "one", operators=OPERATORS[:3], seeds=range(4), **FEW)
    lines = ablate(*command, "--campaign", tmp_path / "one").out.splitlines()
    rows = [line.split()[:2] for line in lines if line.split()[0] in OPERATORS]
    assert sorted(rows) == [["Integral", "4"], ["SSA", "4"], ["softmax", "4"]]
    assert rows[0] == ["softmax", "4"]
    write_matched(tmp_path / "several")
    for query, cells in (((), 8), (("operator=SSA", "operator=softmax", "gate=head"), 4)):
        lines = ablate(*command, *query, "--campaign", tmp_path / "several").out.splitlines()
        rows = [line.partition("  ")[0] for line in lines if " · " in line]
        names = [row.split()[0] for row in rows]
        assert names == ["softmax"] * (cells // 2) + ["SSA"] * (cells // 2)


def test_a_pareto_set_is_sorted_in_the_order_of_the_plan(campaign: Path, ablate: Callable) -> None:
    words = ("pareto", "--against", "loss", "--campaign", campaign)
    by_plan = json.loads(ablate(*words, "--sort", "plan", "--json").out)["data"]
    assert [row["label"] for row in by_plan] == [f"{operator} · {rate:g}" for operator in OPERATORS for rate in RATES]
    best = json.loads(ablate(*words, "--json").out)["data"]
    ranks = [(("on the front", "inconclusive", "dominated").index(row["standing"]), row["mse"]) for row in best]
    assert ranks == sorted(ranks)
    assert sorted(row["cell"] for row in best) == sorted(row["cell"] for row in by_plan)
    assert labels(ablate(*words).out) == [row["label"] for row in best]


def test_failures_and_effects_of_a_query(long_campaign: Path, ablate: Callable) -> None:
    def kinds(*words: str) -> list[tuple[str, int]]:
        said = ablate("status", "--failures", *words, "--json", "--campaign", long_campaign).out
        return sorted((each["reason"], each["n"]) for each in json.loads(said)["data"]["failures"])

    assert kinds() == [("diverged", 5), ("error", 5), ("out_of_memory", 5)]
    assert kinds("operator=SSA") == [("out_of_memory", 5)]
    assert kinds("operator=SSA", f"model={MODELS[0]}", "--grid", "quickstart") == [("out_of_memory", 1)]
    ablate("status", "--failures", "operator=SSB", "--campaign", long_campaign, code=3)
    words = ("effects", "operator=SSA", "seed<4", "--json", "--campaign", long_campaign)
    found = json.loads(ablate(*words).out)["data"]
    assert "operator" not in {row["term"] for row in found["terms"]}
    assert max(found["seeds"]) < 4
    ablate("effects", "seed<none", "--campaign", long_campaign, code=2)
    ablate("effects", "seed>99", "--campaign", long_campaign, code=3)


def test_what_is_printed_is_what_was_computed(campaign: Path, ablate: Callable) -> None:
    (row,) = json.loads(ablate("table", "SSA · 0.001", "--json", "--campaign", campaign).out)["data"]
    line = ablate("table", "SSA · 0.001", "--campaign", campaign).out.splitlines()[5]
    assert f"{row['value']:#.4g}" in line
    assert f"{row['percent']:+.1f}" in line
    assert line.rstrip().endswith(row["verdict"])


@pytest.mark.parametrize("command", COMMANDS[:3], ids=lambda command: command[0])
def test_a_query_keeps_cells_and_changes_no_number(command: list[str], campaign: Path, ablate: Callable) -> None:
    def rows(*words: str) -> list[dict[str, object]]:
        return json.loads(ablate(*command, *words, "--json", "--campaign", campaign).out)["data"]  # type: ignore[no-any-return]

    query = ["loss", "operator=SSA"] if command[0] == "curves" else ["operator=SSA"]
    whole = [row for row in rows() if str(row["label"]).startswith("SSA")]
    assert whole
    assert rows(*query) == whole
    ablate(*command, "operator=SSB", "--campaign", campaign, code=3)
    ablate(*command, "--json", "--csv", "--campaign", campaign, code=2)
    assert "'seed=1' chooses a seed" in ablate(*command, *query, "seed=1", "--campaign", campaign, code=2).err
    if command[0] != "pareto":
        ablate(*command, *query[:-1], "softmax · 0.0001", "--campaign", campaign, code=3)


def test_columns_are_chosen_by_name(campaign: Path, ablate: Callable) -> None:
    said = ablate("table", "operator=SSA", "--csv", "--columns", "label, hedges_g", "--campaign", campaign).out
    assert said.splitlines()[0] == "label,hedges_g"
    assert len(said.splitlines()) == 6
    assert (
        "did you mean 'label'"
        in ablate("pareto", "--against", "loss", "--columns", "labels", "--campaign", campaign, code=3).err
    )


def test_columns_are_chosen_by_heading_and_keep_title_and_baseline(campaign: Path, ablate: Callable) -> None:
    whole = ablate("table", "operator=SSA", "--campaign", campaign).out.splitlines()
    chosen = "label,n,difference,95 % interval,p (Holm)"
    said = ablate("table", "operator=SSA", "--columns", chosen, "--campaign", campaign).out.splitlines()
    assert said[3].split() == ["label", "pairs", "difference", "low", "high", "p_holm"]
    assert said[4].split() == ["softmax", "·", "0.0001", "5", "-", "-", "-", "-"]
    assert [row.split()[-1] for row in said[4:10]] == [row.split()[-3] for row in whole[4:10]]


def test_why_takes_a_query_or_the_beginning_of_a_label(campaign: Path, ablate: Callable) -> None:
    whole = ablate("table", "--why", "SSA · 0.001", "--campaign", campaign).out
    assert ablate("table", "--why", "operator=SSA lr=0.001", "--campaign", campaign).out == whole
    assert "open quote" in ablate("table", "--why", "operator='SSA", "--campaign", campaign, code=2).err
    rows = json.loads(ablate("table", "operator=SSA", "--sort", "plan", "--json", "--campaign", campaign).out)["data"]
    for words in ("SSA", "operator=SSA"):
        lines = ablate("table", "--why", words, "--campaign", campaign).out
        reasons = [f"{row['label']}: {row['verdict']}; {row['reason']}" for row in rows]
        assert " ".join(lines.split()) == " ".join(reasons)
    assert re.search(
        r"^softmax · [\d.]+: baseline$", ablate("table", "--why", "softmax", "--campaign", campaign).out, re.M
    )


def test_levels_with_blanks_are_quoted_in_a_query(long_campaign: Path, ablate: Callable) -> None:
    query = f'operator.gate.strength.per=layer operator=SSA model="{MODELS[0]}"'
    said = ablate("table", "--why", query, "--campaign", long_campaign).out
    assert said.startswith(f"SSA · layer · {MODELS[0]}, grid quickstart")
    words = (*query.split()[:2], f"model={MODELS[0]}")
    assert labels_of(ablate, long_campaign, query) == labels_of(ablate, long_campaign, *words)


def labels_of(ablate: Callable, campaign: Path, *query: str) -> list[str]:
    """Labels of the cells of a query in every command that takes one and lists cells."""
    tables = [
        json.loads(ablate(command, *query, "--json", "--campaign", campaign).out) for command in ("table", "status")
    ]
    return [row["label"] for row in (*tables[0]["data"], *tables[1]["data"]["grids"]["quickstart"])]


def test_long_labels_become_a_column_for_each_axis(
    tmp_path: Path, ablate: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    levels = ("a gate that has a long name", "another gate with a long name")
    write_campaign(tmp_path, operators=("softmax", "SSA"), factors={"gate": levels}, seeds=range(3))
    lines = ablate("table", "--campaign", tmp_path).out.splitlines()
    assert lines[3].split()[:2] == ["operator", "gate"]
    assert any(line.startswith("SSA") and levels[1] in line for line in lines)
    monkeypatch.setenv("COLUMNS", "80")
    lines = ablate("table", "--campaign", tmp_path).out.splitlines()
    assert any(line.rstrip().endswith("verdict") for line in lines)
    rows = [line.rstrip() for line in lines if line.startswith(("SSA", "softmax"))]
    words = ("baseline", "better", "worse", "equivalent", "undecided", "unproven", "no verdict")
    assert all(len(line) <= 80 and line.endswith(words) for line in rows)


def test_the_baseline_has_its_runs_and_their_mean_whatever_became_of_other_cells(
    tmp_path: Path, ablate: Callable
) -> None:
    write_campaign(tmp_path / "a", operators=("softmax", "SSA"), seeds=range(4), pending=[("SSA", 2), ("SSA", 3)])
    rows = [line.split() for line in ablate("table", "--campaign", tmp_path / "a").out.splitlines()]
    (base,), (cell,) = ([row for row in rows if row[0] == name] for name in ("softmax", "SSA"))
    assert (base[1], cell[1:4]) == ("4", ["2", "of", "4"])
    failed = {("SSA", seed): "diverged" for seed in range(4)}
    write_campaign(tmp_path / "b", operators=("softmax", "SSA"), seeds=range(4), failed=failed)
    rows = [line.split() for line in ablate("table", "--campaign", tmp_path / "b").out.splitlines()]
    assert next(row for row in rows if row[0] == "softmax")[1:3] == base[1:3]


def test_a_baseline_that_no_cell_is_compared_with_is_listed(tmp_path: Path, ablate: Callable) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), factors={"lr": [1, 2]}, seeds=range(3))
    lines = [line for line in campaign.lines if line["label"] != "SSA · 2"]
    cells = {line["label"]: line["cell"] for line in lines}
    matched = {"baselines": {cells["SSA · 1"]: cells["softmax · 1"]}, "matched": ["lr"]}
    publish_grid(campaign.layout, {**campaign.header, **matched, "cells": 3, "trials": len(lines)}, lines)
    said = ablate("table", "--campaign", tmp_path).out
    assert labels(said) == ["softmax · 1", "softmax · 2", "SSA · 1"]
    assert all(line.split()[3] == "3" for line in said.splitlines() if line.startswith("softmax"))


def write_matched(root: Path) -> None:
    """SSA at two rates against softmax at the same one; 2 is the better, and the plan has the last cell first."""
    campaign = write_campaign(
        root,
        operators=("softmax", "SSA"),
        factors={"gate": ("head", "layer"), "lr": (1, 2)},
        effect=lambda axes: -float(axes["lr"]),
        seeds=range(6),
        **SMALL,
    )
    cells = {tuple(line["axes"].values()): line["cell"] for line in campaign.lines}
    bases = {cell: cells["softmax", *levels] for (operator, *levels), cell in cells.items() if operator == "SSA"}
    header = {**campaign.header, "baselines": bases, "matched": ["gate", "lr"]}
    publish_grid(campaign.layout, header, campaign.lines[::-1])


def test_baselines_and_candidates_have_the_order_of_the_spec(tmp_path: Path, ablate: Callable) -> None:
    write_matched(tmp_path)
    said = ablate("table", "--campaign", tmp_path).out.splitlines()
    order = ["softmax · head · 1", "softmax · head · 2", "softmax · layer · 1", "softmax · layer · 2"]
    assert [line.partition("  ")[0] for line in said if line.startswith("softmax")] == order
    rows = ablate("export", "cells", "-", "--format", "csv", "--campaign", tmp_path).out.splitlines()
    labels_of = [line.split(",")[2] for line in rows if ",loss," in line]
    assert labels_of == [*order, *(label.replace("softmax", "SSA") for label in order)]


def test_tuned_cells_are_listed_with_the_baselines_that_they_are_compared_with(
    tmp_path: Path, ablate: Callable
) -> None:
    write_matched(tmp_path)
    ablate("table", "--best-over", "operator", "--campaign", tmp_path, code=2)
    lines = ablate("table", "--best-over", "lr", "--campaign", tmp_path).out.splitlines()
    shown = [line.partition("  ")[0] for line in lines if "·" in line]
    assert shown[:2] == ["softmax · head", "softmax · layer"]
    assert set(shown[2:]) == {"SSA · head", "SSA · layer"}


def test_a_misspelt_campaign_is_answered_with_the_one_beside_it(campaign: Path, ablate: Callable) -> None:
    said = ablate("table", "--campaign", campaign.with_name("campaing"), code=3).err
    assert "which does not exist" in said
    assert f"did you mean {str(campaign)!r}?" in said


def test_verdicts_are_chosen_by_the_answers_of_their_checks(campaign: Path, ablate: Callable) -> None:
    every = json.loads(ablate("table", "--json", "--campaign", campaign).out)["data"]
    for word in ("check.tuned=unknown", "check.noise!=yes", "check.control=-"):
        name, answer = re.split("!?=", word.removeprefix("check."))
        expected = [row["cell"] for row in every if (row[name] == answer) == ("!" not in word)]
        rows = json.loads(
            ablate("table", word, "--json", "--campaign", campaign, code=0 if expected else 3).out or "{}"
        )
        assert [row["cell"] for row in rows.get("data", ())] == expected
    both = ablate("table", "operator=SSA", "check.tuned=unknown", "--json", "--campaign", campaign).out
    assert {row["operator"] for row in json.loads(both)["data"]} == {"SSA"}
    assert "tuned" in ablate("table", "check.tune=no", "--campaign", campaign, code=3).err
    assert "unknown" in ablate("table", "check.on=maybe", "--campaign", campaign, code=2).err
    assert "check.on<2" in ablate("table", "check.on<2", "--campaign", campaign, code=2).err
