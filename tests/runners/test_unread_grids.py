"""A grid whose plan the database has not read yet is planned, and not absent."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_campaign import run_quietly, toy_grid

from ablate.grid.errors import EnvironmentProblem, NotFoundError
from ablate.runners.attempts.manifest import trial_lines, write_grid, write_submission
from ablate.store import Campaign
from ablate.store.files.layout import Layout
from ablate.store.store import Store


@pytest.fixture
def queued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A campaign of six queued trials, a plan that is too large for a short look, as with 12,000 trials."""
    monkeypatch.setattr("ablate.store.ingest.ingest_records.MOST_PLAN_BYTES", 0)
    layout, grid = Layout(tmp_path / "campaign"), toy_grid()
    write_grid(layout, grid, trial_lines(grid))
    write_submission(layout, "20260101T000000-abcdef", list(trial_lines(grid))[:4])
    return layout


def test_status_counts_what_is_not_read_by_its_files(queued: Layout, ablate: Callable) -> None:
    where = ["--campaign", queued.root]
    expected = {"grid": "toy", "cells": 2, "planned": 6, "submitted": 4, "begun": 0}
    for grid in ([], ["--grid", "toy"]):
        data = json.loads(ablate("status", "--json", *grid, *where).out)["data"]
        assert (data["unread"], data["grids"]) == ([expected], {})
    assert "6 trials planned, 4 submitted" in ablate("status", *where).out
    ablate("status", "--grid", "other", *where, code=3)
    assert "toy: 0 of 3 trials done" in ablate("status", "operator=falling", *where).out
    data = json.loads(ablate("status", "--json", *where).out)["data"]  # the query needed all
    assert (data["unread"], [*data["grids"]]) == ([], ["toy"])


def test_begun_trials_of_a_plan_that_is_not_read_are_counted(
    tmp_path: Path, ablate: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_quietly(tmp_path, toy_grid())
    monkeypatch.setattr("ablate.store.ingest.ingest_records.MOST_PLAN_BYTES", 0)
    data = json.loads(ablate("status", "--json", "--campaign", tmp_path).out)["data"]
    assert data["unread"] == [{"grid": "toy", "cells": 2, "planned": 6, "submitted": 6, "begun": 6}]


def test_other_readers_read_it_or_say_that_it_is_not_read(queued: Layout, ablate: Callable) -> None:
    where = ["--campaign", queued.root]
    ablate("status", *where)
    with Store.open(queued.root, refresh=False) as store:
        assert store.grids() == []
        for grid, error in (("toy", EnvironmentProblem), ("other", NotFoundError)):
            with pytest.raises(error):
                store.grid(grid)
    for grid in (None, "toy"):
        with pytest.raises(EnvironmentProblem), Campaign(queued.root, refresh=False) as campaign:
            campaign.trials(grid)
    with Campaign(queued.root) as campaign:
        assert campaign.trials().height == 6
    ablate("status", "--failures", *where)
