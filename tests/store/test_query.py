"""One language: commands and the page Runs keep the trials that plain Python keeps."""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from known_campaign import open_view, show_slot
from synthetic import Campaign, write_campaign

from ablate.dashboards.app.page import PageView
from ablate.dashboards.app.pages.runs import RUNS
from ablate.grid.errors import NotFoundError, SpecError
from ablate.store.analysis.query import split_condition
from ablate.store.analysis.trial_query import select
from ablate.store.store import Store

RATES = [0.5, 2.0, 1e-05]
FAILED = {("SSA · 0.5", 1): "diverged", ("softmax · 2.0", 0): "out_of_memory"}
PENDING = {("softmax · 1e-05", seed) for seed in range(3)}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    root = tmp_path_factory.mktemp("query") / "campaign"
    return write_campaign(
        root, operators=("softmax", "SSA", "SSA2"), factors={"lr": RATES}, seeds=range(3), failed=FAILED,
        pending=PENDING, steps=3, sigma_f=(5,), sigma_x=(1,),
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(campaign: Campaign) -> Iterator[Store]:
    with Store.open(campaign.root) as store:
        yield store


@pytest.fixture(scope="module")
def view(campaign: Campaign) -> Iterator[PageView]:
    with open_view(campaign.root, RUNS) as view:
        yield view


def fields_of(line: Mapping[str, Any]) -> dict[str, str]:
    who = (line["label"], line["seed"])
    state = "failed" if who in FAILED else "pending" if who in PENDING else "done"
    return {
        "operator": line["operator"].casefold(),
        "seed": str(line["seed"]),
        "lr": str(line["axes"]["lr"]),
        "label": line["label"].casefold(),
        "state": state,
    }


CONDITIONS: dict[str, Callable[[dict[str, str]], bool]] = {
    "operator=SSA": lambda of: of["operator"] == "ssa",
    "operator=ssa2": lambda of: of["operator"] == "ssa2",
    "operator!=ssa": lambda of: of["operator"] != "ssa",
    "operator~SA": lambda of: "sa" in of["operator"],
    "label~2.0": lambda of: "2.0" in of["label"],
    "lr=5e-1": lambda of: float(of["lr"]) == 0.5,
    "lr=0.00001": lambda of: float(of["lr"]) == 1e-05,
    "lr<2": lambda of: float(of["lr"]) < 2,
    "lr>=0.5": lambda of: float(of["lr"]) >= 0.5,
    "lr!=2": lambda of: float(of["lr"]) != 2,
    "seed<=1": lambda of: int(of["seed"]) <= 1,
    "seed>0": lambda of: int(of["seed"]) > 0,
    "seed=2.0": lambda of: of["seed"] == "2",
    "state=done": lambda of: of["state"] == "done",
    "status=ok": lambda of: of["state"] == "done",
    "status!=OK": lambda of: of["state"] != "done",
    "state=failed": lambda of: of["state"] == "failed",
    "state~pend": lambda of: of["state"] == "pending",
}


def fitting(campaign: Campaign, words: list[str]) -> list[str]:
    """The trials that fit by plain Python: either of conditions with = about one field, and all others."""
    either: dict[str, list[str]] = {}
    for word in words:
        name, sign, _ = split_condition(word) or ("", "", "")
        either.setdefault(name.replace("status", "state") if sign == "=" else word, []).append(word)
    return [
        line["trial"]
        for line in campaign.lines
        if all(any(CONDITIONS[word](fields_of(line)) for word in group) for group in either.values())
    ]


def test_commands_and_the_page_keep_what_plain_python_keeps(campaign: Campaign, store: Store, view: PageView) -> None:
    chance = random.Random("one language")
    queries = [[word] for word in CONDITIONS]
    queries += [chance.sample(sorted(CONDITIONS), chance.randint(2, 4)) for _ in range(25)]
    for words in queries:
        expected = fitting(campaign, words)
        shown = show_slot(view, RUNS, "runs", f"?filter={' '.join(words)}").data
        assert sorted(shown["trial"].to_list()) == sorted(expected), words
        if expected:
            assert select(store, words) == expected
        else:
            with pytest.raises(NotFoundError):
                select(store, words)


def test_a_label_and_the_beginning_of_a_key_mean_the_same_trials(
    campaign: Campaign, store: Store, view: PageView
) -> None:
    key = campaign.line("SSA · 2.0", 1)["trial"]
    for words in ([key[:9]], ["SSA · 2.0", "seed=1"]):
        asked = " ".join(f"'{word}'" for word in words)
        assert select(store, words) == [key]
        assert show_slot(view, RUNS, "runs", f"?filter={asked}").data["trial"].to_list() == [key]


def test_a_label_with_signs_is_a_label(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, operators=("lr=1", "seed<2", "a~b"), seeds=range(2), steps=3)
    with Store.open(campaign.root) as store:
        for label in ("lr=1", "seed<2", "A~B"):
            named = [line["trial"] for line in campaign.lines if line["label"] == label.lower()]
            assert select(store, [label]) == named


def test_sizes_are_of_numbers_and_fields_are_known(store: Store) -> None:
    for word, kind in (("lr<fast", SpecError), ("colour=red", NotFoundError), ("state=lost", NotFoundError)):
        with pytest.raises(kind):
            select(store, [word])
    with pytest.raises(NotFoundError) as refused:
        select(store, ["oprator~SSA"])
    assert "'operator'" in str(refused.value)
