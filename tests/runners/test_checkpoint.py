"""Checkpoints survive damage, and are nobody else's."""

import errno
import io
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from ablate.grid.errors import EnvironmentProblem
from ablate.runners import checkpoint
from ablate.runners.checkpoint import (
    CheckpointError,
    checkpointed_step,
    discard_checkpoints,
    forget_older,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from ablate.store.files.layout import Layout
from ablate.store.files.shards import content_hash

TRIAL = "ab" * 16
OTHER = "cd" * 16


def state(value: float = 1.0) -> dict[str, Any]:
    return {"weights": torch.full((3,), value), "optimizer": {0: {"betas": (0.9, 0.99)}, "name": None}, "steps": [1, 2]}


def saved(layout: Layout, *steps: int, attempt: int = 1) -> list[Path]:
    return [save_checkpoint(layout.checkpoint(TRIAL, attempt), TRIAL, step, state(step)) for step in steps]


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    written = {**state(), "rng": torch.get_rng_state(), "order": OrderedDict(a=torch.tensor([1], dtype=torch.bfloat16))}
    step, read = load_checkpoint(save_checkpoint(tmp_path, TRIAL, 40, written), TRIAL)
    assert step == 40
    assert torch.equal(read.pop("weights"), written.pop("weights"))
    assert torch.equal(read.pop("rng"), written.pop("rng"))
    assert read.pop("order")["a"].dtype == written.pop("order")["a"].dtype
    assert read == written


def steps(layout: Layout) -> list[tuple[int, int]]:
    """Attempt and step of every checkpoint there is."""
    files = (
        (attempt, file) for attempt in layout.attempts(TRIAL) for file in layout.checkpoint(TRIAL, attempt).iterdir()
    )
    return sorted((attempt, int(file.name[5:14])) for attempt, file in files)


@pytest.mark.parametrize(
    ("before", "mine", "resumed", "left"),
    [
        ([[10, 20], [30, 40]], [50, 60], (2, 40), [(3, 50), (3, 60)]),
        ([[10, 20], [30, 40]], [50], (2, 40), [(2, 40), (3, 50)]),
        ([[10, 20], [30, 40]], [50], (2, 30), [(2, 30), (3, 50)]),  # 40 was damaged
        ([[10, 20], [30, 40]], [10], None, [(2, 40), (3, 10)]),  # all were
        ([[10, 20], [30, 40]], [], (2, 40), [(2, 30), (2, 40)]),
        ([[10, 20], [30, 40]], [], (1, 20), [(1, 10), (1, 20)]),
        ([[10, 20], [], []], [], (1, 20), [(1, 10), (1, 20)]),
        ([], [10, 20], None, [(1, 10), (1, 20)]),
    ],
)
def test_attempts_share_what_is_kept_of_a_trial(
    layout: Layout, before: list, mine: list[int], resumed: tuple[int, int] | None, left: list[tuple[int, int]]
) -> None:
    for attempt, each in enumerate([*before, mine], start=1):
        layout.checkpoint(TRIAL, attempt).mkdir(parents=True)
        saved(layout, *each, attempt=attempt)
    found = {"attempt": resumed[0], "step": resumed[1]} if resumed else None
    forget_older(layout, TRIAL, len(before) + 1, found, lambda _: True)
    assert steps(layout) == left


def test_checkpoints_of_other_code_or_of_an_attempt_that_was_taken_over_are_left_alone(layout: Layout) -> None:
    for attempt in (1, 2, 3):
        saved(layout, 20 * attempt - 10, 20 * attempt, attempt=attempt)
    forget_older(layout, TRIAL, 2, {"attempt": 1, "step": 20}, lambda _: True)
    assert len(steps(layout)) == 6
    forget_older(layout, TRIAL, 3, {"attempt": 1, "step": 20}, lambda attempt: attempt != 2)
    assert steps(layout) == [(2, 30), (2, 40), (3, 50), (3, 60)]


def test_a_look_while_an_owner_saves_finds_what_is_there(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(layout, 10, 20)
    later = iter([(30, 40), (50, 60)])
    read = checkpoint.read_bytes

    def meanwhile(path: Path) -> bytes:
        saved(layout, *next(later, ()))
        return read(path)

    monkeypatch.setattr(checkpoint, "read_bytes", meanwhile)
    found, remarks = newest_checkpoint(layout, TRIAL)
    assert (found.step, remarks) == (60, [])


def test_a_flipped_byte_or_a_cut_is_noticed_and_the_checkpoint_before_it_is_used(layout: Layout) -> None:
    _, newest = saved(layout, 10, 20)
    whole = newest.read_bytes()
    damaged = [whole[:size] for size in (0, 1, 100)]
    for place in (0, 0.25, 0.5, 0.75, 1):
        damaged.append(bytearray(whole))
        damaged[-1][int(place * (len(whole) - 1))] ^= 1
    for data in damaged:
        newest.write_bytes(data)
        found, refused = newest_checkpoint(layout, TRIAL)
        assert (found.attempt, found.step) == (1, 10)
        assert found.state["weights"].tolist() == [10, 10, 10]
        assert [str(newest) in remark for remark in refused] == [True]


def test_without_a_sound_checkpoint_there_is_none(layout: Layout) -> None:
    assert newest_checkpoint(layout, TRIAL) == (None, [])
    (path,) = saved(layout, 10)
    path.rename(path.with_name(f"{path.name}.tmp.host.1.abc"))
    assert newest_checkpoint(layout, TRIAL) == (None, [])
    for path in saved(layout, 10, 20):
        path.write_bytes(b"")
    found, refused = newest_checkpoint(layout, TRIAL)
    assert found is None
    assert len(refused) == 3
    assert refused[-1] == "training starts from the beginning"
    saved(layout, 10, 30, attempt=2)
    saved(layout, 20, attempt=3)
    assert newest_checkpoint(layout, TRIAL)[0].step == checkpointed_step(layout, TRIAL) == 30


def test_the_checkpoint_of_another_trial_is_refused(layout: Layout) -> None:
    path = save_checkpoint(layout.checkpoint(TRIAL, 1), OTHER, 10, state())
    with pytest.raises(CheckpointError, match=f"belongs to trial {OTHER}, not to {TRIAL}"):
        load_checkpoint(path, TRIAL)
    assert newest_checkpoint(layout, TRIAL)[0] is None


@pytest.mark.parametrize(
    ("part", "where"),
    [({"f": os.getcwd}, r"state\['f'\] is a builtin"), ({"a": [1, {2}]}, r"state\['a'\]\[1\] is a set")],
)
def test_a_state_that_is_not_plain_data_is_refused(tmp_path: Path, part: dict[str, Any], where: str) -> None:
    with pytest.raises(TypeError, match=where):
        save_checkpoint(tmp_path, TRIAL, 1, part)
    assert not list(tmp_path.iterdir())


def test_loading_never_runs_code_from_the_file(tmp_path: Path) -> None:
    class Exploit:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "witness",))

    sink = io.BytesIO()
    torch.save({"schema": 1, "trial": TRIAL, "step": 1, "state": {"x": Exploit()}}, sink)
    path = tmp_path / f"step-000000001.{content_hash(sink.getvalue())}.pt"
    path.write_bytes(sink.getvalue())
    with pytest.raises(CheckpointError, match="holds more than tensors and plain data"):
        load_checkpoint(path, TRIAL)
    assert not (tmp_path / "witness").exists()


def test_a_full_disk_keeps_the_checkpoints_that_are_there(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = saved(layout, 10)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentProblem, match="No space left"):
        saved(layout, 20)
    assert list(before.parent.iterdir()) == [before]


def test_checkpoints_of_a_finished_trial_can_be_discarded(layout: Layout) -> None:
    layout.start(TRIAL, 1).parent.mkdir(parents=True)
    layout.start(TRIAL, 1).write_text("{}")
    for attempt, step in ((1, 10), (2, 20), (3, 5)):
        saved(layout, step, attempt=attempt)
    discard_checkpoints(layout, TRIAL, 2)
    assert checkpointed_step(layout, TRIAL) == 5  # the step of an attempt that trains it again
    assert [layout.checkpoint(TRIAL, attempt).exists() for attempt in (1, 2, 3, 4)] == [False, False, True, False]
    assert layout.start(TRIAL, 1).exists()
