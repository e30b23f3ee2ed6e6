"""Tags and notes: what was written counts until it is taken back, and every query finds it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import Campaign, publish_grid, write_campaign

from ablate.grid.errors import NotFoundError
from ablate.runners.cli.app import execute
from ablate.runners.monitoring.integrity import check_campaign
from ablate.store.analysis.trial_query import select
from ablate.store.files.annotations import read_annotations
from ablate.store.ingest.rebuild import rebuild
from ablate.store.store import Store

Ablate = Callable[..., Any]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(3))


def run(campaign: Campaign, *words: str) -> int:
    return execute([*words, "--campaign", str(campaign.root)])


def tagged(campaign: Campaign, tag: str) -> set[tuple[str, int]]:
    with Store.open(campaign.root) as store:
        keys = set(select(store, [f"tag={tag}"]))
    return {(line["label"], line["seed"]) for line in campaign.lines if line["trial"] in keys}


def test_a_tag_counts_until_it_is_removed(campaign: Campaign) -> None:
    assert run(campaign, "tag", "operator=SSA", "+good", "+final") == 0
    assert run(campaign, "tag", "seed=1", "+odd", "-good") == 0
    assert tagged(campaign, "good") == {("SSA", 0), ("SSA", 2)}
    assert tagged(campaign, "final") == {("SSA", 0), ("SSA", 1), ("SSA", 2)}
    assert tagged(campaign, "odd") == {("SSA", 1), ("softmax", 1)}
    with Store.open(campaign.root) as store:
        before = store.content_hash()
        rows = store.sql("SELECT label, seed, tags FROM v_annotation ORDER BY ALL").rows()
    assert rows[1] == ("SSA", 1, ["final", "odd"])
    rebuild(campaign.root)
    with Store.open(campaign.root) as store:
        assert store.content_hash() == before


def test_a_tag_without_a_sign_is_answered_with_the_usage(campaign: Campaign, ablate: Ablate) -> None:
    assert (
        "`ablate tag operator=SSA +good`"
        in ablate("tag", "operator=SSA", "good", "--campaign", campaign.root, code=3).err
    )


def test_only_trials_that_a_tag_changes_count(campaign: Campaign, ablate: Ablate) -> None:
    def said(*words: str) -> str:
        return str(ablate("tag", *words, "--campaign", campaign.root).err)

    assert "no tag has changed" in said("operator=SSA", "-nosuch")
    assert not (campaign.root / "notes.jsonl").exists()
    assert "written on 1 trial" in said("operator=SSA", "seed=1", "+odd")
    assert "written on 2 trials" in said("operator=SSA", "+odd")
    assert "no tag has changed" in said("operator=SSA", "+odd", "-nosuch")


def test_a_tag_on_a_grid_is_one_on_its_trials(campaign: Campaign, ablate: Ablate) -> None:
    assert run(campaign, "tag", "--grid", "quickstart", "+paper") == 0
    assert len(tagged(campaign, "paper")) == 6
    assert run(campaign, "rename", "quickstart", "main") == 0
    assert len(tagged(campaign, "paper")) == 6
    assert run(campaign, "tag", "--grid", "main", "-paper") == 0
    assert "none has any" in ablate("cancel", "tag=paper", "--campaign", campaign.root, code=3).err


def test_every_listing_takes_a_tag(campaign: Campaign, ablate: Ablate) -> None:
    assert run(campaign, "tag", "operator=SSA", "seed=0", "+good") == 0
    found = json.loads(ablate("table", "tag=good", "--json", "--campaign", campaign.root).out)
    assert [row["label"] for row in found["data"]] == ["SSA"]
    listed = json.loads(ablate("tag", "--json", "--campaign", campaign.root).out)["data"]
    assert [(row["label"], row["seed"], row["tags"]) for row in listed] == [("SSA", 0, "good")]


def test_tags_and_levels_are_listed_in_the_order_of_the_spec(tmp_path: Path, ablate: Ablate) -> None:
    campaign = write_campaign(tmp_path, operators=("softmax", "SSA"), factors={"width": (128, 64)}, seeds=range(2))
    publish_grid(campaign.layout, campaign.header, campaign.lines[::-1])
    assert run(campaign, "tag", "--grid", "quickstart", "+good") == 0
    lines = ablate("tag", "--campaign", campaign.root).out.splitlines()[1:]
    assert [line.partition("  ")[0] for line in lines] == ["softmax · 128", "softmax · 64", "SSA · 128", "SSA · 64"]
    assert "there are 128, 64" in ablate("tag", "width=1", "+a", "--campaign", campaign.root, code=3).err


def test_status_shows_tags_and_notes(campaign: Campaign, ablate: Ablate) -> None:
    assert run(campaign, "tag", "operator=SSA", "seed=0", "+good") == 0
    assert run(campaign, "note", "operator=SSA", "seed=2", "loss spikes") == 0
    assert run(campaign, "note", "--grid", "quickstart", "for the appendix") == 0
    assert "quickstart: 1 of 1 trial done" in ablate("status", "tag=good", "--campaign", campaign.root).out
    shown = ablate("status", "--campaign", campaign.root).out
    assert all(words in shown for words in ("good", "SSA seed 2: loss spikes", "for the appendix"))
    data = json.loads(ablate("status", "--json", "--campaign", campaign.root).out)["data"]
    assert [row["note"] for row in data["notes"]] == ["for the appendix", "loss spikes"]
    assert {row["label"]: row["tags"] for row in data["grids"]["quickstart"]} == {"softmax": "", "SSA": "good"}


def test_a_query_finds_notes_by_a_part_of_them(campaign: Campaign) -> None:
    for seed, text in ((0, "Loss spikes late"), (1, "spikes"), (2, "smooth")):
        assert run(campaign, "note", "operator=SSA", f"seed={seed}", text) == 0
    with Store.open(campaign.root) as store:
        keys = [str(campaign.line("SSA", seed)["trial"]) for seed in range(3)]
        assert select(store, ["note=SPIKES"]) == keys[:2]
        assert select(store, ["note=late", "note=smooth"]) == [keys[0], keys[2]]
        with pytest.raises(NotFoundError, match="no note contains 'rough'; 3 notes are there"):
            select(store, ["note=rough"])


def test_the_note_of_a_trial_comes_before_that_of_its_grid(campaign: Campaign) -> None:
    assert run(campaign, "note", "operator=SSA", "first") == 0
    assert run(campaign, "note", "operator=SSA", "second") == 0
    assert run(campaign, "note", "--grid", "quickstart", "of the grid") == 0
    with Store.open(campaign.root) as store:
        rows = store.sql("SELECT DISTINCT label, note FROM v_annotation ORDER BY ALL").rows()
    assert rows == [("SSA", "second"), ("softmax", "of the grid")]


def test_annotations_of_removed_trials_count_no_more(campaign: Campaign) -> None:
    assert run(campaign, "tag", "operator=SSA", "+good") == 0
    assert run(campaign, "rm", "operator=SSA", "seed=0") == 0
    with Store.open(campaign.root) as store:
        assert store.sql("SELECT count(*) FROM tag").item() == 2
    assert len(read_annotations(campaign.layout).tags) == 3


def test_a_damaged_line_is_reported_and_the_others_count(campaign: Campaign) -> None:
    assert run(campaign, "tag", "operator=SSA", "+good") == 0
    path = campaign.root / "notes.jsonl"
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first.replace(b"good", b"evil") + b"".join(rest))
    assert len(tagged(campaign, "good")) == 2
    assert [damage.file for damage in check_campaign(campaign.root)].count("notes.jsonl") == 1
    path.write_bytes(b"".join(rest))
    assert "notes.jsonl" not in [damage.file for damage in check_campaign(campaign.root)]


def test_what_has_no_meaning_is_refused_and_writes_nothing(campaign: Campaign) -> None:
    for words in (
        ["tag", "+good"],
        ["tag", "seed=0", "--grid", "quickstart", "+good"],
        ["tag", "seed=0", "+not a word"],
        ["tag", "seed=0", "+a", "-a"],
        ["note", "a text alone"],
        ["note", "seed=0", " "],
    ):
        assert run(campaign, *words) == 2
    assert not (campaign.root / "notes.jsonl").exists()
