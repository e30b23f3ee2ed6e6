"""The caution of a table: what fired, and the outcomes that so few runs cannot show."""

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import synthetic

from ablate.store.analysis.noise_caution import noise_caution
from ablate.store.analysis.verdicts import measure_of, runs
from ablate.store.statistics.noise import unseen_share
from ablate.store.statistics.pairing_gain import pairing_gain
from ablate.store.store import Store


@pytest.mark.parametrize(("runs", "share"), [(3, 0.63), (5, 0.45), (8, 0.31), (12, 0.22), (18, 0.15)])
def test_so_rare_an_outcome_is_unseen_once_in_twenty(runs: int, share: float) -> None:
    assert unseen_share(runs) == pytest.approx(share, abs=0.005)
    assert (1 - unseen_share(runs)) ** runs == pytest.approx(0.05)


def test_runs_in_two_groups_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "_normal", lambda trial: 100.0 * (crc32(trial.encode()) % 2))
    campaign = synthetic.write_campaign(tmp_path)
    high = sum(crc32(line["trial"].encode()) % 2 for line in campaign.lines)
    with Store.open(tmp_path) as store:
        found, caution, *_ = noise_caution(store, "quickstart")
    assert found.fired == ("split",)
    assert (found.above, found.runs, found.fewest) == (high, 20, 5)
    assert caution


def test_a_table_without_a_claim_says_nothing_of_unseen_outcomes(tmp_path: Path) -> None:
    synthetic.write_campaign(tmp_path, effect=lambda _: 0.0, noise=0.5)
    with Store.open(tmp_path) as store:
        assert noise_caution(store, "quickstart").standing == ""


def test_the_bound_is_said_until_29_runs(tmp_path: Path) -> None:
    for seeds in (28, 29):
        synthetic.write_campaign(
            tmp_path / str(seeds),
            operators=("softmax", "SSA"),
            seeds=range(seeds),
            noise=0.01,
            sigma_x=(1,),
            sigma_f=(5,),
        )
        with Store.open(tmp_path / str(seeds)) as store:
            assert bool(noise_caution(store, "quickstart").standing) is (seeds == 28)


def test_the_gain_of_pairing_is_the_variance_that_seeds_explain(tmp_path: Path) -> None:
    campaign = synthetic.write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(9), noise=0.1)
    with Store.open(tmp_path) as store:
        rows = store.final("quickstart", "mse", synthetic.MEASURE["point"]).sort("seed")
        sentences = noise_caution(store, "quickstart").sentences
        values = runs(store, "quickstart", measure_of(store, "quickstart", None))
    ours, theirs = (np.log(rows.filter(label=label)["value"].to_numpy()) for label in ("SSA", "softmax"))
    found = pairing_gain(values, baseline=campaign.header["baseline"], scale="log")
    assert found is not None
    left = np.var(ours - theirs, ddof=1) / (np.var(ours, ddof=1) + np.var(theirs, ddof=1))
    assert found.removed == pytest.approx(1 - left)
    assert found.correlation == pytest.approx(np.corrcoef(ours, theirs)[0, 1])
    assert any(f"{100 * found.removed:.0f} %" in each for each in sentences)


def test_tables_with_runs_of_one_baseline_are_named(tmp_path: Path) -> None:
    campaign = synthetic.write_campaign(tmp_path, operators=("softmax", "SSA", "Integral"))
    for name, labels in (("same", ("softmax", "SSA")), ("apart", ("SSA", "Integral"))):
        lines = [{**line, "grid": name} for line in campaign.lines if line["label"] in labels]
        header = {**campaign.header, "grid": name, "cells": 2, "trials": len(lines), "baseline": lines[0]["cell"]}
        synthetic.publish_grid(campaign.layout, header, lines, None)
    with Store.open(tmp_path) as store:
        shared = noise_caution(store, "quickstart").shared
        assert "same" in shared
        assert "apart" not in shared
        assert "quickstart" in noise_caution(store, "same").shared
