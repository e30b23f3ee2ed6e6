"""Result files of a campaign give the verdicts and effects of the campaign itself."""

import json
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal
from synthetic import write_campaign

from grid.errors import NotFoundError, StoreError
from store.analysis.effects import analyse_runs, analysis
from store.analysis.verdicts import judge_runs, measure_of, verdicts
from store.store import Store

GENERATE = Path(__file__).parent.parent / "docs" / "generate"


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(GENERATE))
    import result_files

    return result_files


def test_verdicts_and_effects_of_result_files_are_those_of_the_campaign(tmp_path: Path, files: Any) -> None:
    campaign = write_campaign(
        tmp_path / "campaign",
        operators=("softmax", "SSA"),
        factors={"gate": ("constant", "head")},
        effect=lambda axes: 0.2 * (axes["operator"] == "SSA"),
        noise=0.01,
        pending=[("SSA · head", 0)],
        failed={("softmax · head", 3): "diverged"},
    )
    files.collect(campaign.root, tmp_path / "results")
    result = files.read(tmp_path / "results", "quickstart")
    rules = result.measure()
    with Store.open(campaign.root) as store:
        assert rules == measure_of(store, "quickstart", None)
        expected = verdicts(store, "quickstart")
        found = judge_runs(result.runs(rules), result.baselines, rules)
        assert_frame_equal(found, expected.select(found.columns), check_row_order=False)
        terms = analyse_runs(result.runs(rules), result.header, rules, interactions=True).terms
        assert_frame_equal(terms, analysis(store, "quickstart", interactions=True).terms)
    assert result.cost["trials"] == (result.rows.unique("trial")["status"] == "ok").sum() > 0


def test_an_unknown_grid_and_another_version_are_refused(tmp_path: Path, files: Any) -> None:
    (tmp_path / "old.json").write_text(json.dumps({"schema": 0}))
    with pytest.raises(NotFoundError, match=r"no result of a grid 'new'; it has \['old'\]"):
        files.read(tmp_path, "new")
    with pytest.raises(StoreError, match=r"reads result files of version 1; .*old.json has version 0: collect"):
        files.read(tmp_path, "old")
