"""A budget is understood or refused in one sentence, and what was used is what the attempts recorded."""

import os
from pathlib import Path
from typing import Any

import pytest

from grid.errors import SpecError
from runners import budget
from runners.budget import Budget, Spending, budget_hours, spent
from store.files import write_json
from store.layout import Layout

NOW = 1_800_000_000.0
KEYS = [f"{at:02x}" + "0" * 30 for at in range(4)]


@pytest.mark.parametrize(
    ("text", "hours", "unit"),
    [
        ("200gpuh", 200.0, "GPU-h"),
        ("40 cpuh", 40.0, "CPU-h"),
        ("12CPU-h", 12.0, "CPU-h"),
        (" 0.5 GPUh ", 0.5, "GPU-h"),
        (".25gpu-h", 0.25, "GPU-h"),
    ],
)
def test_a_budget_is_hours_of_a_unit(text: str, hours: float, unit: str) -> None:
    assert budget_hours(text) == Budget(hours, unit)  # type: ignore[arg-type]
    assert budget_hours(str(budget_hours(text))) == budget_hours(text)


@pytest.mark.parametrize(
    "text", ["", "200", "gpuh", "90m", "200h", "-1gpuh", "0gpuh", "1e3gpuh", "nan gpuh", "1 2cpuh"]
)
def test_what_is_none_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(SpecError, match=r"such as 200gpuh or 40cpuh; got") as refused:
        budget_hours(text)
    assert repr(text) in str(refused.value)


def attempt(root: Path, key: str, number: int, *, started: float = NOW, beats: float | None = None, **end: Any) -> None:
    layout = Layout(root)
    layout.attempt(key, number).mkdir(parents=True)
    write_json(layout.start(key, number), {"schema": 1, "started": started})
    if beats is not None:
        layout.heartbeat(key, number).touch()
        os.utime(layout.heartbeat(key, number), (beats, beats))
    if end:
        write_json(layout.end(key, number), {"schema": 1, "status": "ok", "ended": NOW, **end})


def test_every_attempt_counts_and_one_at_work_or_killed_until_its_last_heartbeat(tmp_path: Path) -> None:
    attempt(tmp_path, KEYS[0], 1, status="failed", wall_s=1800.0)
    attempt(tmp_path, KEYS[0], 2, wall_s=3600.0)
    attempt(tmp_path, KEYS[1], 1, beats=NOW + 900)  # killed
    attempt(tmp_path, KEYS[1], 2, beats=NOW + 900)  # at work
    attempt(tmp_path, KEYS[2], 1, beats=NOW - 5)  # the clocks of two hosts differ
    attempt(tmp_path, KEYS[3], 1, wall_s=7200.0)  # of another run
    layout = Layout(tmp_path)
    assert spent(layout, KEYS[:3]) == pytest.approx(0.5 + 1.0 + 0.25 + 0.25)
    assert spent(layout, KEYS[:3], "GPU-h", gpus_per_trial=0.25) == pytest.approx(2.0 / 4)
    assert spent(layout, KEYS[:3], "CPU-h", gpus_per_trial=0.25) == pytest.approx(2.0)
    assert spent(layout, ["f" * 32]) == 0.0
    assert spent(Layout(tmp_path / "nowhere"), KEYS) == 0.0


def test_damaged_records_cost_what_is_left_of_them(tmp_path: Path) -> None:
    attempt(tmp_path, KEYS[0], 1, beats=NOW + 3600, wall_s=60.0)
    layout = Layout(tmp_path)
    layout.end(KEYS[0], 1).write_text("{torn")
    assert spent(layout, KEYS) == pytest.approx(1.0)
    layout.start(KEYS[0], 1).write_text("")
    assert spent(layout, KEYS) == 0.0


def test_asked_again_it_reads_only_what_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    real = budget.read_json

    def reading(path: Path) -> dict[str, Any]:
        read.append(path)
        return real(path)

    monkeypatch.setattr(budget, "read_json", reading)
    layout = Layout(tmp_path)
    spending = Spending(layout, "CPU-h", now=NOW)
    attempt(tmp_path, KEYS[0], 1, wall_s=3600.0, ended=NOW + 1)
    attempt(tmp_path, KEYS[1], 1, wall_s=3600.0, ended=NOW - 1)
    attempt(tmp_path, KEYS[2], 1, beats=NOW + 1800)
    assert spending.hours(KEYS) == pytest.approx(2.5)
    read.clear()
    listed: list[str] = []
    real_attempts = Layout.attempts
    monkeypatch.setattr(Layout, "attempts", lambda self, key: listed.append(key) or real_attempts(self, key))
    assert spending.hours(KEYS) == pytest.approx(2.5)
    assert {path.parent for path in read} == {layout.attempt(KEYS[2], 1)}
    assert listed == [
        KEYS[1],
        KEYS[2],
    ]  # what became ok since the first look is settled; what does not exist is not asked


def test_what_was_ok_before_and_is_trained_again_is_seen(tmp_path: Path) -> None:
    attempt(tmp_path, KEYS[0], 1, wall_s=3600.0, ended=NOW - 1)
    spending = Spending(Layout(tmp_path), "CPU-h", now=NOW)
    assert spending.hours(KEYS) == pytest.approx(1.0)
    attempt(tmp_path, KEYS[0], 2, wall_s=1800.0, ended=NOW + 1)
    assert spending.hours(KEYS) == pytest.approx(1.5)
