"""The tasks of specs/claims_tasks.py, against answers that are read off the tokens."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from ablate import AskedLengths, Draws

sys.path.insert(0, str(Path(__file__).parent.parent / "specs"))
from claims_tasks import FlaggedRecall, GrowingRecall, RecallOrNone

SIZES = {"batch": 4, "context": 32, "evaluation": AskedLengths(lengths=(32, 64))}
FEW = {**SIZES, "keys": 16, "values": 16, "filler": 4}
TASKS = [
    RecallOrNone(**FEW, absent=0.25),
    FlaggedRecall(**FEW),
    GrowingRecall(**SIZES, keys=8, values=8, filler=4),
]


def answer(task, tokens, key):
    """Return the answer to `key` from the pairs or triples at the beginning of a sequence."""
    if isinstance(task, FlaggedRecall):
        triples = [tokens[at : at + 3] for at in range(0, 6 * task.pairs, 3)]
        matches = [(flag, value) for flag, shown, value in triples if shown == key]
        assert len(matches) == 2
        return dict(matches)[task.vocabulary - 1]
    shown = 2 * (task.pairs if isinstance(task, RecallOrNone) else min(len(tokens) // 8, 8))
    pairs = dict(zip(tokens[:shown:2], tokens[1:shown:2], strict=True))
    assert len(pairs) == shown // 2
    return pairs.get(key, task.vocabulary - 1) if isinstance(task, RecallOrNone) else pairs[key]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_every_answer_follows_from_the_tokens(task):
    for point in ({}, *task.points()):
        batch = task.draw(Draws(0, "test"), 64, point)
        assert batch.inputs.shape == (64, task.tokens(point))
        assert batch.inputs.min() >= 0
        assert batch.inputs.max() < task.vocabulary
        for tokens, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            asked = [place for place, target in enumerate(targets) if target >= 0]
            assert len({tokens[place] for place in asked}) == len(asked) > 0
            assert [answer(task, tokens, tokens[place]) for place in asked] == [targets[place] for place in asked]


def test_the_share_of_absent_keys_is_that_of_the_point():
    task = TASKS[0]
    for point in ({}, *task.points()):
        share = point.get("absent", 0.25)
        asked = task.draw(Draws(0, "test"), 2000, point).targets
        missing = (asked == task.none).sum() / (asked >= 0).sum()
        assert abs(float(missing) - share) <= 4 * (share * (1 - share) / 8000) ** 0.5


@pytest.mark.parametrize("kind", [RecallOrNone, FlaggedRecall])
def test_a_sequence_without_room_is_refused(kind):
    with pytest.raises(ValidationError, match="10"):
        kind(**FEW | {"context": 10}, pairs=3)
