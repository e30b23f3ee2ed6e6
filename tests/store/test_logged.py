"""Runs of foreign training loops: the same files as everything else, whatever ends the process."""

import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_campaign

from ablate.dashboards import write_report
from ablate.grid import Measure
from ablate.grid.errors import EnvironmentProblem, SpecError
from ablate.runners.cli.app import execute
from ablate.store import Campaign
from ablate.store.external_runs import logged_plans
from ablate.store.files.layout import Layout
from ablate.store.files.shards import ShardBuffer
from ablate.store.files.trial_state import trial_state
from ablate.store.ingest.rebuild import rebuild

Process = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    """A campaign that does not exist yet."""
    with Campaign(tmp_path / "mine") as found:
        yield found


def rows(campaign: Campaign, query: str) -> list[tuple[Any, ...]]:
    return campaign.refresh().sql(query).rows()


def test_a_loop_that_logs_two_variants_gets_a_verdict(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    """The measured ratio of the variants is the planted one, and every command reads the campaign as any other."""
    campaign.grid("widths", baseline="narrow", measure=Measure(name="mse", scale="log"))
    noise = random.Random(0)
    for width, label in ((8, "narrow"), (64, "wide")):
        for seed in range(3):
            config = {"width": width, "seed": seed, "betas": (0.9, 0.95)}
            with campaign.start("widths", label=label, seed=seed, config=config, axes={"width": width}) as run:
                for step in range(1, 4):
                    run.log(step, {"train/loss": 1 / step}, loss=1 / step, lr=0.1)
                value = math.exp(0.1 * seed + 0.01 * noise.random()) * (0.5 if width == 64 else 1.0)
                run.evaluate(3, "mse", value, items=10)
    verdict = campaign.compare().row(0, named=True)
    assert (verdict["label"], verdict["verdict"], verdict["pairs"]) == ("wide", "better", 3)
    assert verdict["percent"] == pytest.approx(-50, abs=1)
    assert campaign.trials()["width"].to_list() == [8, 8, 8, 64, 64, 64]
    assert campaign.trials()["seed"].to_list() == [0, 1, 2, 0, 1, 2]
    assert campaign.effects().select("level", "against").rows() == [("64", "8")]
    assert campaign.curves("train/loss").height == 18
    assert campaign.store.warnings() == []
    for table in ("bad_record", "bad_shard"):
        assert campaign.sql(f"SELECT * FROM {table}").is_empty()
    before = campaign.store.content_hash()
    campaign.close()
    rebuild(Layout(campaign.root))
    assert campaign.store.content_hash() == before
    for command, told in (("table", "better"), ("status", "6 of 6 trials done")):
        assert execute([command, "--campaign", str(campaign.root)]) == 0
        assert told in capsys.readouterr().out
    assert execute(["curves", "--campaign", str(campaign.root)]) == 3
    assert "widths" in write_report(campaign.root).read_text()


def test_everything_logged_is_there_as_it_was(campaign: Campaign) -> None:
    values = {"one": 1.0, "two": 4.0, "three": 2.5}
    with campaign.start("a", label="x", seed=0, steps=2) as run:
        run.log(0, loss=math.inf)
        run.log(1, loss=math.nan, lr=0.5)
        run.evaluate(1, "score", items=values, point={"length": 7})
        run.evaluate(1, "score", 2.0, items=4, se_items=0.5, point={"length": 8})
        run.probe(1, "rank", 3, layer=2, head=1, point={"sequence": 0})
    found = campaign.evaluations("score").sort("length")
    assert found["value"].to_list() == [pytest.approx(statistics.fmean(values.values())), 2.0]
    assert found["items"].to_list() == [3, 4]
    assert found["se_items"].to_list() == [pytest.approx(statistics.stdev(values.values()) / math.sqrt(3)), 0.5]
    assert dict(rows(campaign, "SELECT item, value FROM v_item")) == values
    metrics = rows(campaign, "SELECT step, name, value FROM v_metric ORDER BY ALL")
    assert [row[:2] for row in metrics] == [(0, "loss"), (1, "loss"), (1, "lr")]
    assert metrics[0][2] == math.inf
    assert math.isnan(metrics[1][2])
    assert campaign.probes("rank").select("layer", "head", "sequence", "value").rows() == [(2, 1, 0.0, 3.0)]


def test_an_exception_is_a_failed_attempt_with_its_reason(campaign: Campaign) -> None:
    def fail(seed: int, error: BaseException) -> None:
        with campaign.start("a", label="x", seed=seed) as run:
            run.log(4, loss=1.0)
            raise error

    for seed, error in enumerate([ValueError("nonsense"), RuntimeError("CUDA out of memory"), KeyboardInterrupt()]):
        with pytest.raises(type(error)):
            fail(seed, error)
    run = campaign.start("a", label="x", seed=3)
    run.fail("loss is NaN", "diverged")
    found = rows(
        campaign, "SELECT a.status, a.reason, message, a.step FROM attempt a JOIN trial t USING (trial) ORDER BY seed"
    )
    assert found == [
        ("failed", "error", "ValueError: nonsense", 4),
        ("failed", "out_of_memory", "RuntimeError: CUDA out of memory", 4),
        ("stopped", None, "it was stopped by KeyboardInterrupt", 4),
        ("failed", "diverged", "loss is NaN", 0),
    ]
    assert campaign.trials()["state"].to_list() == ["failed", "failed", "stopped", "failed"]
    assert rows(campaign, "SELECT count(*) FROM metric") == [(3,)]
    log = Layout(campaign.root).log(campaign.trials()["trial"][0], 1).read_text()
    assert log.endswith("ValueError: nonsense\n")


LOOP = """
import os, signal, sys
from ablate.store import Campaign

def main(root, grid, label, seed, end):
    run = Campaign(root).start(grid, label=label, seed=int(seed), config={"label": label}, steps=10)
    run.log(0, loss=1.0)
    if end in ("wait", "kill"):
        run.flush()
        print("ready", flush=True)
        sys.stdin.readline()
    if end == "raise":
        raise ValueError("nonsense")
    if end == "finish":
        run.evaluate(1, "mse", 1.0)
        run.finish()

main(*sys.argv[1:])
"""


def loop(root: Path, label: str, seed: int, end: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LOOP, str(root), "a", label, str(seed), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_killed_process_is_seen_as_such_and_its_run_can_be_logged_again(
    campaign: Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    with loop(campaign.root, "x", 0, "kill") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert campaign.trials()["state"].to_list() == ["running"]
        with pytest.raises(SpecError, match=f"'x' with seed 0 of grid 'a' is being logged by process {process.pid} on"):
            campaign.start("a", label="x", seed=0, config={"label": "x"})
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert campaign.refresh().trials()["state"].to_list() == ["lost"]
        execute(["status", "--campaign", str(campaign.root)])
        assert "lost: 1 trial" in capsys.readouterr().out
        assert rows(campaign, "SELECT count(*) FROM metric") == [(1,)]  # the row that was on disk
    with campaign.start("a", label="x", seed=0, config={"label": "x"}) as run:
        run.log(0, loss=2.0)
    assert run.attempt == 2
    assert campaign.trials()["state"].to_list() == ["done"]
    assert rows(campaign, "SELECT value FROM v_metric") == [(2.0,)]  # the later attempt counts


def test_a_process_that_ends_without_a_word_keeps_what_it_logged(campaign: Campaign) -> None:
    for seed, end in enumerate(("raise", "quit")):
        with loop(campaign.root, "x", seed, end) as process:
            _, told = process.communicate()
        assert "atexit" not in told
    found = rows(campaign, "SELECT t.seed, a.status, a.message FROM attempt a JOIN trial t USING (trial) ORDER BY ALL")
    assert found == [
        (0, "failed", "ValueError: nonsense"),
        (1, "stopped", "the process ended before the run was finished"),
    ]
    assert rows(campaign, "SELECT count(*) FROM v_metric") == [(2,)]


def test_several_processes_log_into_one_grid_at_once(campaign: Campaign) -> None:
    with loop(campaign.root, "x", 0, "wait") as first, loop(campaign.root, "y", 0, "wait") as second:
        others = [loop(campaign.root, label, seed, "finish") for label, seed in (("x", 1), ("y", 1))]
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in others:
            _, told = process.communicate()
            assert process.returncode == 0, told
        found = campaign.trials().sort("label", "seed")
        assert found.select("label", "seed", "state").rows() == [
            (label, seed, "done" if seed else "running") for label in "xy" for seed in (0, 1)
        ]
        for process in (first, second):
            process.communicate("\n")
    assert campaign.refresh().store.warnings() == []


@pytest.mark.parametrize("at", ["before the trials", "before the header", "after both"])
def test_a_run_that_comes_in_between_is_in_the_grid(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Whoever writes last has looked after its last write, wherever another process comes in between."""
    layout = Layout(campaign.root)
    writes: dict[str, Any] = {"trials": logged_plans.write_atomic, "header": logged_plans.write_json}
    between = iter([logged_plans.trial_line("a", "other", 0, {}, {})])

    def other() -> None:
        for line in between:
            logged_plans.publish(layout, line)

    def trials(path: Path, data: bytes) -> None:
        if at == "before the trials" and path == layout.grid_trials("a"):
            other()
        writes["trials"](path, data)

    def header(path: Path, data: dict[str, Any]) -> None:
        if at == "before the header" and path == layout.grid_header("a"):
            other()
        writes["header"](path, data)
        if at == "after both" and path == layout.grid_header("a"):
            other()

    monkeypatch.setattr(logged_plans, "write_atomic", trials)
    monkeypatch.setattr(logged_plans, "write_json", header)
    logged_plans.publish(layout, logged_plans.trial_line("a", "mine", 0, {}, {}))
    assert sorted(campaign.trials()["label"]) == ["mine", "other"]
    assert campaign.store.grid("a")["trials"] == 2


def test_of_two_that_come_at_once_with_one_label_none_takes_the_others_place(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout(campaign.root)
    whole = logged_plans._publish_submission
    between = iter([logged_plans.trial_line("a", "x", 0, {"width": 8}, {})])

    def interrupted(layout: Layout, submission: str, line: dict[str, Any]) -> None:
        for other in between:
            logged_plans.publish(layout, other)
        whole(layout, submission, line)

    monkeypatch.setattr(logged_plans, "_publish_submission", interrupted)
    with pytest.raises(SpecError, match="'x' of grid 'a' has another config: width was 8 and is 9"):
        logged_plans.publish(layout, logged_plans.trial_line("a", "x", 0, {"width": 9}, {}))
    assert campaign.trials().height == 1
    assert len(layout.submission_ids()) == 1


def test_baseline_and_measure_are_given_once_before_or_after(campaign: Campaign) -> None:
    campaign.grid("a", baseline="x")
    assert "no grid yet" in repr(campaign)
    for label, value in (("y", 2.0), ("x", 1.0)):
        with campaign.start("a", label=label, seed=0) as run:
            run.evaluate(0, "mse", value)
    campaign.grid("a", measure={"name": "mse", "scale": "linear"})
    header = campaign.refresh().store.grid("a")
    assert header["measure"]["scale"] == "linear"
    assert campaign.compare()["label"].to_list() == ["y"]
    before = Layout(campaign.root).grid_header("a").stat().st_mtime_ns
    campaign.grid("a", baseline="x")
    assert Layout(campaign.root).grid_header("a").stat().st_mtime_ns == before


def test_levels_as_baseline_are_matched_on_the_other_axes(campaign: Campaign) -> None:
    campaign.grid("a", baseline={"operator": "softmax"}, measure=Measure(name="mse", better="lower"))
    for operator, rate in (("softmax", 0.1), ("SSA", 0.1), ("softmax", 0.2), ("SSA", 0.2), ("SSA", 0.4)):
        axes = {"operator": operator, "lr": rate}
        for seed in range(3):
            with campaign.start("a", label=f"{operator} {rate}", seed=seed, config=axes, axes=axes) as run:
                run.evaluate(1, "mse", rate * (1 + 0.1 * seed + 0.01 * seed**2 * (operator == "SSA")), items=1)
    header = campaign.refresh().store.grid("a")
    assert header["matched"] == ["lr"]
    found = campaign.compare()
    assert found["label"].to_list() == ["SSA 0.1", "SSA 0.2"], "no softmax has the rate 0.4"
    assert found["baseline_value"].to_list() == pytest.approx([0.11, 0.22], rel=0.01)
    campaign.grid("a", baseline="softmax 0.1")
    assert campaign.refresh().compare().height == 4
    campaign.grid("a", baseline={"operator": "SSA", "lr": 0.1})
    assert campaign.refresh().compare().height == 4, "one cell has the levels"
    campaign.grid("a", baseline={"operator": "other"})
    with pytest.raises(SpecError, match="no cell of grid 'a' has a baseline of the same lr; log it"):
        campaign.refresh().compare()
    with pytest.raises(SpecError, match="baseline"):
        campaign.grid("a", baseline={})


def test_cells_are_not_compared_before_a_baseline_of_their_levels_is_logged(campaign: Campaign) -> None:
    campaign.grid("a", baseline={"operator": "softmax"}, measure=Measure(name="mse", better="lower"))
    for operator, rate in (("softmax", 0.1), ("softmax", 0.2), ("SSA", 0.4)):
        axes = {"operator": operator, "lr": rate}
        for seed in range(2):
            with campaign.start("a", label=f"{operator} {rate}", seed=seed, config=axes, axes=axes) as run:
                run.evaluate(1, "mse", rate + seed, items=1)
    with pytest.raises(SpecError, match="has a baseline of the same lr"):
        campaign.refresh().compare()


def test_a_run_that_has_no_meaning_is_refused_and_leaves_nothing(campaign: Campaign) -> None:
    """The sentence names the argument, and the entry in it."""
    refused: list[tuple[dict[str, Any], str]] = [
        ({"grid": "My grid"}, "My grid"),
        ({"label": " "}, "label"),
        *(({"seed": seed}, "seed") for seed in (-1, 2**63, True, 1.5, "0", None)),
        ({"config": {"seed": 1}}, "seed=0"),
        ({"config": ["rate"]}, "config"),
        *(({"axes": {name: 1}}, "axis") for name in ("label", "LABEL", "select", "a b", "", "x" * 151, 0, None)),
        ({"axes": {"width": [1]}}, "width"),
        ({"axes": {"Gate": 1, "gate": 2}}, "gate"),
        ({"steps": 0}, "steps"),
    ]
    for words, told in refused:
        with pytest.raises(SpecError, match=told):
            campaign.start(**{"grid": "a", "label": "x", "seed": 0, **words})
        assert not campaign.root.exists()


def test_a_variant_keeps_its_config_and_its_place(campaign: Campaign) -> None:
    with campaign.start("a", label="x", seed=0, config={"width": 8}, axes={"width": 8}):
        pass
    with pytest.raises(SpecError, match=r"rate was 'nothing' and is 0\.1"):
        campaign.start("a", label="x", seed=1, config={"width": 8, "rate": 0.1}, axes={"width": 8})
    with pytest.raises(SpecError, match=r"'x' is at \{'width': 8\}, and now at \{\}"):
        campaign.start("a", label="x", seed=1, config={"width": 8})
    assert campaign.trials().height == 1
    with campaign.start("b", label="x", seed=0, config={"width": 9}):
        pass


def test_a_grid_of_a_spec_takes_no_logged_runs(campaign: Campaign) -> None:
    write_campaign(campaign.root, seeds=(0,), steps=2, sigma_f=(1, 5))
    for attempt in (lambda: campaign.start("quickstart", label="x", seed=0), lambda: campaign.grid("quickstart")):
        with pytest.raises(SpecError, match=r"'quickstart' of .* was planned by a spec; log runs"):
            attempt()
    with campaign.start("mine", label="x", seed=0) as run:
        run.log(0, loss=1.0)
    assert campaign.grids() == ["mine", "quickstart"]


REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (lambda run: run.log(3, loss=1.0), "'loss'"),
    (lambda run: run.log(-1, lr=1.0), "-1"),
    (lambda run: run.log(4, lr="1"), "'lr'"),
    (lambda run: run.evaluate(3, "mse", 1.0), "'mse' at step 3"),
    (lambda run: run.evaluate(4, "mse", 3.0, items={"a": 1, "b": 2}), "'mse' is 3, .* 1.5"),
    (lambda run: run.evaluate(4, "mse", 3.0, point={"x": math.inf}), "'x'"),
    (lambda run: run.fail("x", "tired"), "'tired'"),
]


def test_what_is_no_value_is_refused_and_the_run_goes_on(campaign: Campaign) -> None:
    run = campaign.start("a", label="x", seed=0)
    run.log(3, loss=1.0)
    run.evaluate(3, "mse", 1.0)
    for log, told in REFUSED:
        with pytest.raises(SpecError, match=told):
            log(run)
    run.log(4, loss=0.5)
    run.finish()
    with pytest.raises(SpecError, match="has ended; start another"):
        run.log(9, loss=0.0)
    assert rows(campaign, "SELECT max(step), count(DISTINCT name) FROM v_metric") == [(4, 1)]
    assert rows(campaign, "SELECT step, value FROM v_evaluation") == [(3, 1.0)]


def test_a_full_disk_does_not_end_the_training(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    run = campaign.start("a", label="x", seed=0)
    flush = ShardBuffer.flush

    def full(self: ShardBuffer) -> list[Path]:
        raise EnvironmentProblem("the disk is full")

    monkeypatch.setattr("ablate.store.external_runs.logged_run.FLUSH_S", 0.0)
    monkeypatch.setattr(ShardBuffer, "flush", full)
    with pytest.warns(RuntimeWarning, match="the disk is full; the values are kept for another try"):
        run.log(0, loss=1.0)
    with pytest.raises(EnvironmentProblem, match="the disk is full"):
        run.finish()
    assert not run.ended
    monkeypatch.setattr(ShardBuffer, "flush", flush)
    run.finish()
    assert rows(campaign, "SELECT count(*) FROM v_metric") == [(1,)]


def test_a_campaign_that_is_gone_is_not_built_again(campaign: Campaign) -> None:
    run = campaign.start("a", label="x", seed=0)
    campaign.root.rename(campaign.root.with_name("moved"))
    with pytest.raises(EnvironmentProblem, match="the campaign was moved or removed meanwhile"):
        run.finish()
    assert not campaign.root.exists()
    campaign.root.with_name("moved").rename(campaign.root)
    run.finish()
    assert campaign.trials()["state"].to_list() == ["done"]


def test_the_sign_of_life_says_how_far_the_run_is(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.store.files.attempts.BEAT_EVERY_S", 0.01)
    layout = Layout(campaign.root)
    with campaign.start("a", label="x", seed=0, steps=20) as run:
        beat = layout.heartbeat(run.trial, run.attempt)
        run.log(7, loss=0.25)
        while b"step" not in beat.read_bytes():
            pass
        assert json.loads(beat.read_bytes()) | {"idle_s": 0.0} == {"step": 7, "steps": 20, "loss": 0.25, "idle_s": 0.0}
        assert beat.stat().st_size == 161
        assert trial_state(layout, run.trial).state == "running"
    assert trial_state(layout, run.trial).state == "done"


def test_logging_needs_no_database(campaign: Campaign) -> None:
    """A training process loads neither duckdb nor polars, torch, plotly or scipy."""
    code = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"duckdb", "polars", "torch", "plotly", "scipy"}:
            raise ImportError(f"{name} is blocked here")

sys.meta_path.insert(0, Refuse())
from ablate.store import Campaign
with Campaign(sys.argv[1]).grid("a", measure={"name": "mse"}).start("a", label="x", seed=0) as run:
    run.log(0, loss=1.0)
"""
    found = subprocess.run(
        [sys.executable, "-c", code, str(campaign.root)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert campaign.trials()["state"].to_list() == ["done"]
    (start,) = campaign.root.glob("trials/*/*/001/start.json")
    versions = json.loads(start.read_text())["versions"]
    assert (versions["torch"], versions["triton"]) == (None, None)


def test_a_run_that_ended_without_its_evaluation_is_no_lost_shard(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path).grid("widths", baseline="a", measure=Measure(name="mse", better="lower"))
    for label, measured in (("a", 4), ("b", 4), ("some", 3), ("none", 0)):
        for seed in range(4):
            with campaign.start("widths", label=label, seed=seed) as run:
                run.log(1, loss=1.0)
                if seed < measured:
                    run.evaluate(1, "mse", 1.0 + 0.1 * seed + (0.01 * seed * seed if label != "a" else 0.0), items=10)
    found = {row["label"]: row for row in campaign.compare("widths").iter_rows(named=True)}
    assert campaign.store.warnings() == []
    assert found["none"]["verdict"] == "no verdict"
    assert "4 runs" in found["none"]["reason"]
    assert "1 run ended" in found["some"]["reason"]
    assert {row["family"] for row in found.values()} == {2}
    assert found["b"]["p_holm"] == pytest.approx(min(1.0, 2 * found["b"]["p"]))
    assert found["none"]["p_holm"] is None
