"""A query selects the trials that its words name, or is an error that names the nearest."""

import random
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from synthetic import Campaign, write_campaign

from grid.errors import AblateError, NotFoundError, SpecError
from grid.names import label_of
from runners.monitoring.trial_query import select
from store.store import Store


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    failed = {("SSA · 0.5", 1): "diverged", ("softmax · 2.0", 0): "out_of_memory"}
    factors = {"lr": [0.5, 2.0], "tied": [True, None]}
    lines = {"operators": ("softmax", "SSA", "add"), "seeds": range(3), "factors": factors}
    root = tmp_path_factory.mktemp("campaign")
    written = {(f"{label} · {tied}", seed): reason for (label, seed), reason in failed.items() for tied in ("true",)}
    return write_campaign(root, failed=written, **lines)


@pytest.fixture(scope="module")
def store(campaign: Campaign) -> Iterator[Store]:
    with Store.open(campaign.root) as store:
        yield store


def test_without_words_it_is_every_trial_and_words_are_written_as_one_likes(campaign: Campaign, store: Store) -> None:
    assert select(store, []) == [line["trial"] for line in campaign.lines]
    assert select(store, ["lr=5e-1"]) == select(store, ["lr=0.5"])
    assert select(store, ["tied=True", "operator=ssa"]) == select(store, ["tied=true", "operator=SSA"])
    assert select(store, ["reason=diverged"]) == [campaign.line("SSA · 0.5 · true", 1)["trial"]]


def test_words_about_one_field_widen_and_about_several_narrow(campaign: Campaign, store: Store) -> None:
    chance = random.Random("queries")
    values = {"operator": ["softmax", "SSA", "add"], "seed": ["0", "1", "2"], "lr": ["0.5", "2.0"], "tied": ["true"]}
    for _ in range(60):
        wanted = {name: chance.sample(of, chance.randint(1, len(of))) for name, of in values.items()}
        kept = dict(chance.sample(sorted(wanted.items()), chance.randint(1, len(wanted))))
        words = [f"{name}={value}" for name, found in kept.items() for value in found]
        expected = [
            line["trial"]
            for line in campaign.lines
            if all(label_of({**line["axes"], "seed": line["seed"]}[name]) in found for name, found in kept.items())
        ]
        chance.shuffle(words)
        assert select(store, words) == expected


def test_a_label_and_a_key_name_trials_and_either_is_enough(campaign: Campaign, store: Store) -> None:
    one = campaign.line("SSA · 2.0 · none", 2)["trial"]
    labelled = [line["trial"] for line in campaign.lines if line["label"] == "add · 0.5 · true"]
    assert select(store, [one[:9].upper()]) == [one]
    assert select(store, ["add · 0.5 · true"]) == labelled
    assert set(select(store, [one[:9], "add · 0.5 · true"])) == {one, *labelled}
    assert select(store, ["add · 0.5 · true", "seed=1"]) == labelled[1:2]


def test_what_means_nothing_is_refused(campaign: Campaign, store: Store) -> None:
    keys = sorted(line["trial"] for line in campaign.lines)
    ambiguous = next(a for a, b in pairwise(keys) if a[0] == b[0])[0]
    cases: list[tuple[list[str], type[AblateError], str]] = [
        (["oprator=SSA"], SpecError, "did you mean 'operator'"),
        (["operator=SSB"], NotFoundError, "did you mean 'SSA'"),
        (["seed=9"], NotFoundError, "there are 0, 1, 2"),
        (["sofmax · 2.0 · true"], NotFoundError, "did you mean 'softmax · 2.0 · true'"),
        (["ffffffffffff"], NotFoundError, "no trial's key begins with 'ffffffffffff'"),
        ([""], NotFoundError, "no label"),
        (["="], SpecError, "no field ''"),
        (["reason=diverged", "operator=softmax"], NotFoundError, "no trial fits all of"),
        (["reason="], NotFoundError, "there are diverged"),
        ([ambiguous], NotFoundError, "several keys begin"),
    ]
    for words, kind, message in cases:
        with pytest.raises(kind, match=re.escape(message)):
            select(store, words)
