"""Training code of a user's own on several processes, with gloo."""

from pathlib import Path
from typing import Any

import pytest
from own_ranks import Shared

from ablate.runners.attempts.experiments import train_experiment
from ablate.runners.processes.process_state import reset_random
from ablate.runners.processes.rank_launcher import RankFailed


def train(shared: Shared, context: Any, place: Path) -> list[int]:
    """Train until no stop is left; the steps at which it stopped or ended."""
    steps = []
    while True:
        with reset_random(shared.seed):
            result = train_experiment(shared, context, place)
        steps.append(result.step)
        if not result.stopped:
            return steps
        context.stop_at.clear()


def test_ranks_stop_together_and_go_on_with_their_own_batches_and_random_numbers(tmp_path: Path, memory: Any) -> None:
    """A stop is announced two steps ahead; every rank then draws what it would have drawn."""
    notes = {name: tmp_path / name for name in ("straight", "broken")}
    contexts = {"straight": memory(), "broken": memory(stop_at=range(5, 9), save_at={2})}
    for name, context in contexts.items():
        notes[name].mkdir()
        shared = Shared(seed=3, notes=str(notes[name]), execution={"gpus": 2})
        assert train(shared, context, tmp_path) == {"straight": [9], "broken": [7, 9]}[name]
    assert contexts["straight"].logged == contexts["broken"].logged
    assert contexts["straight"].evaluations == contexts["broken"].evaluations != {}
    lines = {(name, rank): (notes[name] / f"rank-{rank}").read_text() for name in notes for rank in (0, 1)}
    assert lines["straight", 0] == lines["broken", 0]
    assert lines["straight", 1] == lines["broken", 1]
    assert lines["straight", 0] != lines["straight", 1]
    assert len(lines["straight", 1].splitlines()) == 9


def test_a_rank_that_leaves_ends_the_trial_with_its_reason(tmp_path: Path, memory: Any) -> None:
    with pytest.raises(RankFailed, match=r"rank 1 of 2 failed: .*left the loop .* at step 1 of 9"):
        train(Shared(fate="apart", execution={"gpus": 2}), memory(), tmp_path)
