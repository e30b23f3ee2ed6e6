"""Files of published results, what replicates, and what docs/findings.md says of them."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from gallery_campaign import Harm, Made, spec_of, write_gallery
from polars.testing import assert_frame_equal
from synthetic import write_campaign

import ablate
from ablate.grid.errors import NotFoundError, SpecError, StoreError
from ablate.papers.figures.paper_tables import read_beside
from ablate.papers.paper_grids import load_paper, paper_names
from ablate.papers.results.grid_results import GridResult, open_result, read
from ablate.store.analysis.judge import judge
from ablate.store.analysis.verdicts import compare_runs, measure_of, verdicts
from ablate.store.store import Store
from ablate.training.optimisers import Training, recipes
from ablate.variants.model import named_backbones

GENERATE = Path(__file__).parent.parent / "docs" / "generate"
RESULTS = Path(__file__).parent.parent / "results"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(GENERATE))
    import result_files

    return result_files


def write_known(root: Path, **more: Any) -> Path:
    """A campaign where SSA is worse by 0.2 and a second axis does nothing."""
    campaign = write_campaign(
        root,
        operators=("softmax", "SSA"),
        factors={"gate": ("constant", "head")},
        effect=lambda axes: 0.2 * (axes["operator"] == "SSA"),
        noise=0.01,
        **more,
    )
    return campaign.root


def test_verdicts_of_result_files_are_those_of_the_campaign(tmp_path: Path, files: Any) -> None:
    root = write_known(tmp_path / "campaign", pending=[("SSA · head", 0)], failed={("softmax · head", 3): "diverged"})
    files.collect(root, tmp_path / "results")
    result = read(tmp_path / "results", "quickstart")
    rules = result.measure()
    with Store.open(root) as store:
        assert rules == measure_of(store, "quickstart", None)
        expected = verdicts(store, "quickstart")
        found = compare_runs(result.compared_runs(rules), rules)
        assert_frame_equal(found, expected.select(found.columns), check_row_order=False)
    assert result.cost["trials"] == (result.rows.unique("trial")["state"] == "done").sum() > 0


def test_checks_of_result_files_are_those_of_the_campaign(tmp_path: Path, files: Any) -> None:
    import results_page

    root = write_known(tmp_path / "campaign")
    files.collect(root, tmp_path / "results")
    result = read(tmp_path / "results", "quickstart")
    found = results_page._verdicts(result, result.measure())
    with Store.open(root) as store:
        expected = judge(store, "quickstart")
    assert result.checks == expected.checks
    assert_frame_equal(found, expected.rows.select(found.columns), check_row_order=False)
    assert {"headline", "doubt", "tuned"} < set(found.columns)


def test_a_result_opens_as_a_store_with_the_values_of_the_campaign(tmp_path: Path, files: Any) -> None:
    rows: list[Any] = [("evaluation", "mse", {"sigma_f": f, "sigma_x": 1.0}, None, None) for f in (3.0, 5.0)]
    rows += [("probe", "sink_share", {"eps": 0.2}, layer, head) for layer in (0, 1) for head in (0, 1)]
    specs = {name: {"operator": spec_of(name, {}), "task": {"kind": "linear_functions"}} for name in ("softmax", "ssa")}
    made = [Made(name, spec, {"operator": name}, rows) for name, spec in specs.items()]
    root = write_gallery(tmp_path / "runs", {"table1-cpu": made}, Harm(seeds=(0, 1, 2)))
    with Store.open(root) as store:
        expected = read_beside(store, "table1-cpu", "003", 1)
        table = "SELECT cell, any_value(spec)::VARCHAR FROM trial GROUP BY cell"
        by_cell = {cell: json.loads(spec) for cell, spec in store.sql(table).rows()}
        probes = store.sql("SELECT trial, layer, head, point, value FROM last_probe('sink_share') ORDER BY ALL")
    files.collect(root, tmp_path / "results")
    with open_result(tmp_path / "results", "table1-cpu", by_cell) as store:
        found = read_beside(store, "table1-cpu", "003", 1)
        assert not found["mean"].is_null().all()
        assert_frame_equal(found.drop("differs"), expected.drop("differs"))
        again = store.sql("SELECT trial, layer, head, point, value FROM v_probe WHERE name = 'sink_share' ORDER BY ALL")
        assert_frame_equal(again, probes)


def test_a_contrast_is_the_planted_difference_with_seeds_as_the_sample(tmp_path: Path, files: Any) -> None:
    import results_page

    root = write_known(tmp_path / "campaign")
    files.collect(root, tmp_path / "results")
    result = read(tmp_path / "results", "quickstart")
    operator, gate = results_page._contrasts(result, result.measure()).rows(named=True)
    assert operator["factor"] == "operator"
    assert operator["effect"] == pytest.approx(0.2, abs=0.02)
    assert operator["low"] < 0.2 < operator["high"]
    assert operator["high"] - operator["low"] < 0.05
    assert operator["p_holm"] < 0.001
    assert abs(gate["effect"]) < 0.02
    with pytest.raises(SpecError, match=r"'mse' is measured at \['sigma_f', 'sigma_x'\]; got 'length=3'"):
        results_page._measure(result, ["length=3"])


def test_means_are_over_the_runs_that_have_the_measure(tmp_path: Path, files: Any) -> None:
    import results_page

    root = write_known(tmp_path / "campaign", pending=[("SSA · head", 0)])
    files.collect(root, tmp_path / "results")
    result = read(tmp_path / "results", "quickstart")
    lines = results_page._write_means(result, []).splitlines()
    cells = {cell[1].strip(): cell[2:4] for cell in (line.split("|") for line in lines[4:] if line)}
    values = result.runs(result.measure()).filter(label="SSA · head")["value"].drop_nulls()
    count, mean = cells["SSA · head"]
    assert (int(count), float(mean)) == (len(values), pytest.approx(values.mean(), rel=1e-3))


@pytest.mark.usefixtures("files")
def test_a_probe_of_several_positions_is_read_at_one() -> None:
    import results_page

    points = [{"layer": layer, "head": 0, "position": position} for layer in (0, 1) for position in (1.0, 2.0)]
    rows = pl.DataFrame(
        {"cell": "a", "seed": 0, "source": "probe", "name": "sink_share", "value": [0.1, 0.5, 0.3, 0.9]}
    ).with_columns(point=pl.Series([json.dumps(point) for point in points]))
    result = GridResult({"grid": "sinks"}, {}, rows)
    found = results_page._values_of_probe(result, "sink_share:position=2")
    assert found.rows() == [("a", 0, pytest.approx(0.7))]
    with pytest.raises(SpecError, match="sinks has 2 points of 'sink_share'; name one"):
        results_page._values_of_probe(result, "sink_share")
    with pytest.raises(SpecError, match="has 0 points of 'sink_share:position=3'; leave it out"):
        results_page._values_of_probe(result, "sink_share:position=3")


def test_effects_are_those_of_every_level(tmp_path: Path, files: Any) -> None:
    import results_page

    campaign = write_campaign(
        tmp_path / "campaign",
        operators=("softmax", "SSA"),
        factors={"gate": ("constant", "layer", "head")},
        effect=lambda axes: 0.2 * (axes["gate"] == "head"),
        noise=0.01,
    )
    files.collect(campaign.root, tmp_path / "results")
    result = read(tmp_path / "results", "quickstart")
    lines = results_page._write_effects(result, result.measure()).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "against" in line]
    assert [row[:2] for row in rows[1:]] == [["gate", "layer against constant"], ["gate", "head against constant"]]
    assert rows[2][5] == "worse"
    assert rows[1][5] != "worse"


@pytest.mark.parametrize("paper", paper_names())
def test_every_small_grid_of_a_paper_is_published_with_the_trials_of_its_spec(paper: str) -> None:
    grids = load_paper(paper)
    small = [item.name for item in grids.items if item.make is not None and "cpu" in item.scales]
    assert small
    for item in small:
        published = pl.read_parquet(RESULTS / paper / f"{item}-cpu.parquet")["trial"]
        planned = {each.trial.key for each in grids.item(item).make("cpu").enumerate()}
        assert planned <= set(published), f"run `ablate run {paper}:{item} --scale cpu` and collect it"


def test_an_unknown_grid_and_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"schema": 0}))
    with pytest.raises(NotFoundError, match=r"no result of a grid 'new'; it has \['old'\]"):
        read(tmp_path, "new")
    with pytest.raises(StoreError, match=r"old.json has version 0, .*reads result files of version 1; collect"):
        read(tmp_path, "old")


@pytest.mark.parametrize(
    "text", ['{"schema": 1', '{"schema": 1, "cost": {}}', '{"schema": 1, "cost": {}, "header": {}}']
)
def test_damaged_results_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "torn.json").write_text(text)  # the last one has no Parquet file
    with pytest.raises(StoreError, match=r"torn.json and its Parquet file are damaged \(.*: collect"):
        read(tmp_path, "torn")


PAGE = (Path(__file__).parent.parent / "docs" / "findings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
CHECKED = {title: re.findall(r"```python\n(.*?)```", body, re.DOTALL) for title, body in SECTIONS.items()}
UNCHECKED = {"What is not mathematics"}


@pytest.mark.parametrize("title", [title for title in CHECKED if title not in UNCHECKED])
def test_a_finding_holds(title: str) -> None:
    (code,) = CHECKED[title]
    assert "assert" in code
    torch.manual_seed(0)
    exec(compile(code, f"docs/findings.md: {title}", "exec"), {})


def test_what_cannot_be_checked_says_so() -> None:
    assert {title for title, code in CHECKED.items() if not code} == UNCHECKED


def test_a_check_can_fail() -> None:
    code = CHECKED["002: Integral attention on logits is softmax at temperature sqrt(S)"][0]
    with pytest.raises(AssertionError):
        exec(code.replace("signals**0.5", "signals"), {})


REPLICATION_PAGE = (Path(__file__).parent.parent / "docs" / "replication.md").read_text(encoding="utf-8")
WORDS = sorted(set(re.findall(r"`([^`]+)`", REPLICATION_PAGE)))
CALLS = [word for word in WORDS if re.match(r"[A-Za-z_]\w*\(.*\)$", word) and "..." not in word]
CHANGES = [word for word in WORDS if word.startswith(".changed(")]
RECIPES = sorted(
    {name for line in re.findall(r".*of the recipes", REPLICATION_PAGE) for name in re.findall(r"`(\w+)`", line)}
)
NAMES = {**vars(named_backbones), **{name: getattr(ablate, name) for name in dir(ablate) if not name.startswith("_")}}


@pytest.mark.parametrize("call", CALLS)
def test_a_spec_is_built_as_the_page_writes_it(call: str) -> None:
    assert eval(call, dict(NAMES)) is not None


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_fits_the_model_before_it(change: str) -> None:
    assert eval(f"icl(){change}", dict(NAMES)).key != named_backbones.icl().key


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_exists(name: str) -> None:
    make: Callable[[], Training] = getattr(recipes, name)
    assert isinstance(make(), Training)


def test_the_page_covers_every_recipe_and_every_named_operator_of_a_paper() -> None:
    made = {name for name, each in vars(recipes).items() if getattr(each, "__module__", "") == recipes.__name__}
    assert set(RECIPES) == made - {"scaled", "nanogpt"}
    operators = {name for name, each in ablate.catalogue().items() if each.paper != "baseline"}
    assert not {name for name in operators if not re.search(rf"`{name}\(", REPLICATION_PAGE)}
