"""Results that moved code made before it moved count as made by this code."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from runners import Trial
from runners.cli.app import execute
from runners.provenance.code import Codes
from store.files.code_aliases import current_core, current_sources

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "golden" / "sources.json").read_text())
"""Trials and the sources that release 0.1.0 recorded for them."""

REMEDY = (
    "the code of an old result was edited; if its numbers are equal, run tests/code_aliases.py, else delete its lines "
    "of store/files/code_aliases.json and tests/golden/sources.json"
)

RELEASED = Path(__file__).parent / "golden" / "release_0_1_0"


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_sources_are_those_of_this_code(name: str) -> None:
    recorded = RECORDED[name]
    trial = Trial.model_validate(recorded["spec"])
    assert current_sources(recorded["sources"]) == Codes().sources(trial), REMEDY


def test_an_unknown_hash_is_other_code() -> None:
    recorded = next(iter(RECORDED.values()))
    edited = {**recorded["sources"], "core": "0" * 32}
    assert current_sources(edited) != current_sources(recorded["sources"])
    assert current_core("0" * 32) == "0" * 32
    assert current_sources(None) is None


def test_a_campaign_of_the_release_before_the_move_needs_no_training_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RELEASED / "campaign", tmp_path / "campaign")
    campaign = ["--campaign", str(tmp_path / "campaign")]
    for seeds, pairs in (([], 2), (["seeds=0..3"], 4)):
        assert execute(["run", str(RELEASED / "spec.py"), *seeds, *campaign, "--on", "inline"]) == 0
        assert "4 were done before" in (words := "".join(capsys.readouterr())), words
        assert "other code" not in words
        assert execute(["table", *campaign, "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        (row,) = table["data"]
        assert (row["pairs"], table["warnings"]) == (pairs, [])
    assert row["verdict"] != "no verdict", row["reason"]
