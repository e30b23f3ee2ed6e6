"""Failures by kind with their advice, and queries that select trials."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from submission_files import SMALL
from synthetic import EPOCH, Campaign, write_campaign, write_end, write_start

from ablate.grid.errors import AblateError, NotFoundError, SpecError
from ablate.grid.names import label_of
from ablate.runners.monitoring.failure_groups import TRACE_LINES, FailureGroup, action, failures
from ablate.store.analysis.trial_query import select
from ablate.store.store import Store

FINGERPRINTS = {"killed": "dd" * 8, "error": "aa" * 8, "out_of_memory": "bb" * 8, "diverged": "cc" * 8}


def fail(
    campaign: Campaign, label: str, seed: int, *, host: str, reason: str, at: float, message: str = "m", **start: object
) -> None:
    key = campaign.line(label, seed)["trial"]
    write_start(campaign.layout, key, 1, host=host, pid=1, pid_started=1, **start)
    trace = "\n".join([f"line {n}" for n in range(40)] + [message]) if reason == "error" else None
    fields = {"reason": reason, "message": message, "traceback": trace, "fingerprint": FINGERPRINTS[reason]}
    write_end(campaign.layout, key, 1, status="failed", ended=EPOCH + at, **fields)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """softmax is done; of SSA six fail on two hosts, of Integral four, all on n3."""
    pending = {(label, seed) for label in ("SSA", "Integral") for seed in range(6)}
    made = write_campaign(tmp_path, operators=("softmax", "SSA", "Integral"), seeds=range(6), pending=pending, **SMALL)
    for seed in range(6):
        fail(made, "SSA", seed, host=f"n{seed % 2}", reason="error", at=10 * seed, message=f"ValueError: shape {seed}")
    for seed in range(4):
        fail(made, "Integral", seed, host="n3", reason="out_of_memory", at=100 - seed)
    return made


def groups(campaign: Campaign, grid: str | None = None) -> dict[str, FailureGroup]:
    with Store.open(campaign.root) as store:
        return {found.fingerprint: found for found in failures(store, grid)}


def test_kinds_are_counted_by_host_and_dated(campaign: Campaign) -> None:
    found = groups(campaign)
    error, memory = found[FINGERPRINTS["error"]], found[FINGERPRINTS["out_of_memory"]]
    assert list(found) == [error.fingerprint, memory.fingerprint]  # commonest first
    assert (error.n, error.hosts, error.labels) == (6, {"n0": 3, "n1": 3}, ["SSA"])
    assert (error.first, error.last) == (EPOCH, EPOCH + 50)
    assert error.example == campaign.line("SSA", 0)["trial"]
    assert error.message == "ValueError: shape 0"
    assert len(error.trace) == TRACE_LINES
    assert error.trace[-1] == "ValueError: shape 0"
    assert (memory.n, memory.hosts, memory.trace) == (4, {"n3": 4}, [])
    assert memory.example == campaign.line("Integral", 3)["trial"]


def test_a_trial_counts_with_its_latest_failure_and_not_once_it_is_done(campaign: Campaign) -> None:
    key = campaign.line("SSA", 0)["trial"]
    write_start(campaign.layout, key, 2)
    write_end(campaign.layout, key, 2)
    other = campaign.line("SSA", 1)["trial"]
    write_start(campaign.layout, other, 2, host="n7", pid=1, pid_started=1)
    fields = {"reason": "diverged", "message": "nan", "fingerprint": FINGERPRINTS["diverged"]}
    write_end(campaign.layout, other, 2, status="failed", **fields)
    counted = Counter({found.reason: found.n for found in groups(campaign).values()})
    assert counted == {"error": 4, "out_of_memory": 4, "diverged": 1}


def test_nodes_of_a_cluster_are_called_as_its_scheduler_calls_them(tmp_path: Path) -> None:
    """The host of an attempt is no name that --exclude takes; several nodes may even be one host."""
    trials = {("SSA", seed) for seed in range(6)}
    made = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(6), pending=trials, **SMALL)
    for seed in range(6):
        node = f"gpu{seed // 4}"
        place = {"scheduler": "slurm", "job": f"7_{seed // 4}", "restarts": 0, "node": node, "devices": "0"}
        worker = seed // 4 * 1_000_000 + seed
        fail(made, "SSA", seed, host="h.cluster", reason="killed", at=seed, place=place, worker=worker)
    (found,) = groups(made).values()
    assert (found.hosts, found.scheduled) == ({"gpu0": 4, "gpu1": 2}, True)
    for seed in (4, 5):
        key = made.line("SSA", seed)["trial"]
        place = {"scheduler": "slurm", "job": "7_1", "restarts": 0, "node": "gpu1", "devices": "0"}
        write_start(made.layout, key, 2, host="h.cluster", place=place, worker=2_000_000)
        write_end(made.layout, key, 2)
    (found,) = groups(made).values()
    assert found.hosts == {"gpu0": 4}
    assert "--exclude gpu0" in found.action


def advice(*, good: tuple[str, ...] = ("n0",), scheduled: bool = True, **fields: object) -> str:
    usual = FailureGroup(
        "f1", "error", 12, {"n3": 7, "n4": 5}, ["SSA"], ["SSA"], 0.0, 1.0, "ab" * 16, "m", [], "", scheduled
    )
    return action(usual._replace(**fields), set(good))


def test_each_kind_has_its_advice() -> None:
    assert "--exclude n3" in advice(hosts={"n3": 12})
    assert "--exclude" not in advice(hosts={"n3": 12}, good=("n3",))  # it is where everything runs
    assert "--exclude" not in advice(hosts={"n3": 12}, good=())
    assert "--exclude" not in advice(hosts={"n3": 1}, n=1)
    assert "--exclude" not in advice(hosts={"n3": 12}, reason="diverged")  # no host makes a loss diverge
    memory = advice(reason="out_of_memory")
    assert "--oom halve" in memory
    assert "--mem" in memory
    assert "--mem" in advice(reason="killed")
    assert "n3, n4" in advice(message="FileNotFoundError: [Errno 2] No such file: 'corpus.txt'")
    assert "abababab" in advice()


def test_without_a_cluster_no_advice_is_about_one() -> None:
    for reason, remedy in {
        "out_of_memory": "--oom halve",
        "killed": "--workers 1",
        "error": "",
        "diverged": "",
    }.items():
        said = advice(reason=reason, hosts={"n3": 12}, scheduled=False)
        assert remedy in said
        assert not [word for word in ("--exclude", "--mem", "--time", "cluster") if word in said]


def test_what_is_advised_is_a_command_that_selects_these_trials(campaign: Campaign) -> None:
    with Store.open(campaign.root) as store:
        for found in failures(store):
            words = found.action.split("`ablate retry ")[1].split("`")[0].split(" --")[0].split()
            assert len(select(store, words)) == found.n


@pytest.fixture(scope="module")
def factored(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    failed = {("SSA · 0.5", 1): "diverged", ("softmax · 2.0", 0): "out_of_memory"}
    factors = {"lr": [0.5, 2.0], "tied": [True, None]}
    lines = {"operators": ("softmax", "SSA", "add"), "seeds": range(3), "factors": factors}
    root = tmp_path_factory.mktemp("campaign")
    written = {(f"{label} · {tied}", seed): reason for (label, seed), reason in failed.items() for tied in ("true",)}
    return write_campaign(root, failed=written, **lines)


@pytest.fixture(scope="module")
def store(factored: Campaign) -> Iterator[Store]:
    with Store.open(factored.root) as store:
        yield store


def test_without_words_it_is_every_trial_and_words_are_written_as_one_likes(factored: Campaign, store: Store) -> None:
    assert select(store, []) == [line["trial"] for line in factored.lines]
    assert select(store, ["lr=5e-1"]) == select(store, ["lr=0.5"])
    assert select(store, ["tied=True", "operator=ssa"]) == select(store, ["tied=true", "operator=SSA"])
    assert select(store, ["reason=diverged"]) == [factored.line("SSA · 0.5 · true", 1)["trial"]]


def test_words_about_one_field_widen_and_about_several_narrow(factored: Campaign, store: Store) -> None:
    chance = random.Random("queries")
    values = {"operator": ["softmax", "SSA", "add"], "seed": ["0", "1", "2"], "lr": ["0.5", "2.0"], "tied": ["true"]}
    for _ in range(15):
        wanted = {name: chance.sample(of, chance.randint(1, len(of))) for name, of in values.items()}
        kept = dict(chance.sample(sorted(wanted.items()), chance.randint(1, len(wanted))))
        words = [f"{name}={value}" for name, found in kept.items() for value in found]
        expected = [
            line["trial"]
            for line in factored.lines
            if all(label_of({**line["axes"], "seed": line["seed"]}[name]) in found for name, found in kept.items())
        ]
        chance.shuffle(words)
        assert select(store, words) == expected


def test_the_path_of_an_axis_means_the_axis(factored: Campaign, store: Store) -> None:
    (path,) = store.sql("SELECT path FROM axis WHERE name = 'lr'")["path"]
    assert path != "lr"
    assert select(store, [f"{path}=0.5", "seed=1"]) == select(store, ["lr=0.5", "seed=1"])
    with pytest.raises(NotFoundError, match=r"did you mean lr=0\.5"):
        select(store, ["0.5"])


def test_a_label_and_a_key_name_trials_and_either_is_enough(factored: Campaign, store: Store) -> None:
    one = factored.line("SSA · 2.0 · none", 2)["trial"]
    labelled = [line["trial"] for line in factored.lines if line["label"] == "add · 0.5 · true"]
    assert select(store, [one[:9].upper()]) == [one]
    assert select(store, ["add · 0.5 · true"]) == labelled
    assert set(select(store, [one[:9], "add · 0.5 · true"])) == {one, *labelled}
    assert select(store, ["add · 0.5 · true", "seed=1"]) == labelled[1:2]


def test_what_means_nothing_is_refused(factored: Campaign, store: Store) -> None:
    keys = sorted(line["trial"] for line in factored.lines)
    ambiguous = next(a for a, b in pairwise(keys) if a[0] == b[0])[0]
    cases: list[tuple[list[str], type[AblateError], str]] = [
        (["oprator=SSA"], NotFoundError, "did you mean 'operator'"),
        (["operator=SSB"], NotFoundError, "did you mean 'SSA'"),
        (["seed=9"], NotFoundError, "there are 0, 1, 2"),
        (["sofmax · 2.0 · true"], NotFoundError, "did you mean 'softmax · 2.0 · true'"),
        (["ffffffffffff"], NotFoundError, "no beginning of a key"),
        ([""], NotFoundError, "no label"),
        (["="], NotFoundError, "no label"),
        (["reason=diverged", "operator=softmax"], NotFoundError, "no trial fits all of"),
        (["reason="], NotFoundError, "there are diverged"),
        ([ambiguous], SpecError, "several keys begin"),
    ]
    for words, kind, message in cases:
        with pytest.raises(kind, match=re.escape(message)):
            select(store, words)
