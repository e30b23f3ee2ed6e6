"""Which runs of a grid learned, and the two parts of its table."""

from pathlib import Path
from zlib import crc32

import polars as pl
import pytest
import synthetic
from synthetic import MEASURE, SUBMISSION, Campaign, write_campaign, write_shard
from tuned_campaign import tuned

from ablate.store.analysis.judge import judge
from ablate.store.analysis.two_part import TwoParts, two_part
from ablate.store.analysis.verdicts import verdicts
from ablate.store.files.atomic import read_json, write_json
from ablate.store.store import Store

POINT = MEASURE["point"]
SEEDS = range(8)
LATE = {("SSA", seed) for seed in range(6)} | {("softmax", 7)}
"""Trials that did not learn."""


def parts(campaign: Campaign) -> TwoParts | None:
    with Store.open(campaign.root) as store:
        return two_part(store, "quickstart")


def small(root: Path) -> Campaign:
    return write_campaign(
        root, operators=("softmax", "SSA"), seeds=SEEDS, effect=lambda _: 0.0, sigma_f=(5,), sigma_x=(1,)
    )


def record(campaign: Campaign, name: str, values: dict[str, float], sequence: int = 0) -> None:
    """Record an evaluation by trial at the measure's point."""
    rows = [(trial, 1, 60, name, POINT, value, 400, 0.01) for trial, value in values.items()]
    columns = ("trial", "attempt", "step", "name", "point", "value", "items", "se_items")
    table = {column: [row[at] for row in rows] for at, column in enumerate(columns)}
    write_shard(campaign.layout, "evaluation", table, submission=SUBMISSION, worker=7, sequence=sequence)


def is_late(line: dict[str, object]) -> bool:
    return (line["label"], line["seed"]) in LATE


def declare(campaign: Campaign, **learned: object) -> None:
    path = campaign.layout.grid_header("quickstart")
    header = {name: value for name, value in read_json(path).items() if name != "seal"}
    write_json(path, {**header, "learned": learned})


def assert_counts(found: TwoParts | None) -> None:
    assert found is not None
    row = found.rows.row(0, named=True)
    counts = [row[name] for name in ("learned", "runs", "baseline_learned", "baseline_runs", "pairs")]
    assert counts == [2, 8, 7, 8, 1]
    assert row["verdict"] == "worse"


def test_the_grid_says_what_learned_means(tmp_path: Path) -> None:
    campaign = small(tmp_path)
    record(campaign, "accuracy", {line["trial"]: 0.1 if is_late(line) else 0.9 for line in campaign.lines})
    declare(campaign, name="accuracy", point=POINT, limit=0.9, better="higher")
    found = parts(campaign)
    assert found is not None
    assert found.source == "declared"
    assert_counts(found)


@pytest.mark.parametrize(("worse", "zero", "source"), [(60, 0.3, "predictor"), (200, None, "groups")])
def test_where_the_grid_does_not_say_a_predictor_divides_the_runs_and_then_two_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worse: int, zero: float | None, source: str
) -> None:
    late = {line["trial"] for line in small(tmp_path / "names").lines if is_late(line)}
    monkeypatch.setattr(synthetic, "_normal", lambda trial: crc32(trial.encode()) / 2**32 + worse * (trial in late))
    campaign = small(tmp_path / "campaign")
    if zero is not None:
        record(campaign, "zero.mse", dict.fromkeys((line["trial"] for line in campaign.lines), zero))
    divided = parts(campaign)
    assert divided is not None
    assert divided.source == source
    assert_counts(divided)


def test_a_table_whose_runs_all_learned_has_no_parts(tmp_path: Path) -> None:
    campaign = small(tmp_path)
    assert parts(campaign) is None
    record(campaign, "accuracy", dict.fromkeys((line["trial"] for line in campaign.lines), 0.95))
    declare(campaign, name="accuracy", point=POINT, limit=0.9, better="higher")
    assert parts(campaign) is None


def test_nothing_learned_is_said_of_every_comparison(tmp_path: Path) -> None:
    campaign = small(tmp_path)
    record(campaign, "accuracy", dict.fromkeys((line["trial"] for line in campaign.lines), 0.1))
    declare(campaign, name="accuracy", point=POINT, limit=0.9, better="higher")
    found = parts(campaign)
    assert found is not None
    assert found.rows.select("learned", "baseline_learned", "verdict").row(0) == (0, 0, "no verdict")


def test_a_run_whose_measure_of_learning_is_not_finite_is_no_sample(tmp_path: Path) -> None:
    campaign = small(tmp_path)
    odd = campaign.line("SSA", 0)["trial"]
    record(
        campaign,
        "accuracy",
        {line["trial"]: 0.1 if is_late(line) else 0.9 for line in campaign.lines} | {odd: float("nan")},
    )
    declare(campaign, name="accuracy", point=POINT, limit=0.9, better="higher")
    found = parts(campaign)
    assert found is not None
    assert found.rows["verdict"].to_list() == ["no verdict"]
    assert pl.Series(found.rows["share_p"]).null_count() == 1


def test_tuned_cells_learn_at_the_levels_that_are_compared(tmp_path: Path) -> None:
    campaign = tuned(tmp_path)
    late = {line["trial"] for line in campaign.lines if line["label"].startswith("Integral") and line["seed"] < 2}
    record(campaign, "accuracy", {line["trial"]: 0.1 if line["trial"] in late else 0.9 for line in campaign.lines})
    declare(campaign, name="accuracy", point=POINT, limit=0.9, better="higher")
    with Store.open(campaign.root) as store:
        found, judged = two_part(store, "quickstart"), verdicts(store, "quickstart")
    assert found is not None
    assert found.rows["cell"].to_list() == judged["cell"].to_list()
    assert found.rows["learned"].to_list() == [6, 4]
    assert found.rows["runs"].to_list() == [6, 6]


def test_the_check_noise_tells_late_runs_by_the_limit_of_the_grid_and_by_groups_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = {line["trial"] for line in small(tmp_path / "names").lines if line["label"] == "SSA" and is_late(line)}
    monkeypatch.setattr(synthetic, "_normal", lambda trial: crc32(trial.encode()) / 2**32 + 200 * (trial in late))
    campaign = write_campaign(
        tmp_path / "campaign",
        operators=("softmax", "SSA", "FoX"),
        seeds=SEEDS,
        effect=lambda _: 0.0,
        sigma_f=(5,),
        sigma_x=(1,),
    )
    answers = []
    for declared in (False, True):
        if declared:
            values = {line["trial"]: 0.1 if line["trial"] in late else 0.9 for line in campaign.lines}
            record(campaign, "accuracy", values)
            declare(campaign, name="accuracy", point=POINT, limit=0.9, better="higher")
        with Store.open(campaign.root) as store:
            answers.append(dict(judge(store, "quickstart").rows.select("label", "noise").rows()))
    assert answers == [{"SSA": "no", "FoX": "no"}, {"SSA": "no", "FoX": "yes"}]
