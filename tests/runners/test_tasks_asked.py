"""Recall, induction, copying and the needle: what is drawn, who answers right, and what is refused."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate.training.tasks.counter_rng import Draws
from ablate.training.tasks.synthetic.associative_recall import AssociativeRecall
from ablate.training.tasks.synthetic.induction import Induction
from ablate.training.tasks.synthetic.multi_query_recall import MultiQueryRecall
from ablate.training.tasks.synthetic.needle import Needle
from ablate.training.tasks.synthetic.query_task import AskedLengths, QueryTask
from ablate.training.tasks.synthetic.selective_copy import SelectiveCopy
from ablate.training.tasks.task import UNSCORED as UNASKED

GRID = AskedLengths(lengths=(21, 34), sequences=300)
RECALL = AssociativeRecall(context=20, pairs=4, keys=7, values=5, filler=3, power=0.5, batch=50, evaluation=GRID)
RECALL_SOME = RECALL.changed(queries=2, evaluated_pairs=(3, 5))
INDUCTION = Induction(context=20, symbols=9, span=4, batch=50, evaluation=GRID)
COPY = SelectiveCopy(context=20, copied=5, contents=6, batch=50, evaluation=GRID)
NEEDLE = Needle(context=20, keys=5, values=6, filler=3, distractors=3, batch=50, depths=(0, 0.3, 1), evaluation=GRID)
TASKS = [RECALL, RECALL_SOME, INDUCTION, COPY, NEEDLE]
Row = list[int]


def recall(row: Row) -> dict[int, int]:
    """The answer of every place that asks: keys are 0-6, values 7-11, filler the rest."""
    keys = [(place, token) for place, token in enumerate(row) if token < 7]
    return {place: row[row.index(token) + 1] for place, token in keys if row.index(token) < place}


def induce(row: Row) -> dict[int, int]:
    """Return the token after the only earlier occurrence of a token, also a chance one."""
    return {place: row[row.index(token) + 1] for place, token in enumerate(row) if row[:place].count(token) == 1}


def copy_contents(row: Row) -> dict[int, int]:
    """Contents are 0-5, noise is 6 and the mark 7."""
    marks = [place for place, token in enumerate(row) if token == 7]
    return dict(zip(marks, [token for token in row if token < 6], strict=True))


def find_needle(row: Row) -> dict[int, int]:
    """Keys are 0-4, values 5-10."""
    pairs = {key: value for key, value in pairwise(row) if key < 5}
    assert len(pairs) == 4
    return {len(row) - 1: pairs[row[-1]]}


ORACLES: dict[str, Callable[[Row], dict[int, int]]] = {
    "associative_recall": recall,
    "induction": induce,
    "selective_copy": copy_contents,
    "needle": find_needle,
}


def knows(task: QueryTask, inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    """Every answer that can be read off the inputs, and nothing else."""
    logits = torch.zeros(*inputs.shape, task.vocabulary)
    for number, row in enumerate(inputs.tolist()):
        for place, answer in ORACLES[task.label](row).items():
            logits[number, place, answer] = 1
    return logits


def name_of(task: QueryTask) -> str:
    return f"{task.label} {len(task.points())}"


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_what_is_asked_can_be_read_off_what_came_before(task: QueryTask) -> None:
    for point in ({}, *task.points()):
        batch = task.draw(Draws(5, "test"), 200, point)
        assert batch.inputs.shape == batch.targets.shape == (200, task.tokens(point))
        assert 0 <= batch.inputs.min() <= batch.inputs.max() < task.vocabulary
        for row, targets in zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True):
            asked = {place: answer for place, answer in enumerate(targets) if answer != UNASKED}
            known = ORACLES[task.label](row)
            if isinstance(task, Induction):
                assert [row.count(token) for token in (row[min(asked)], *asked.values())] == [2] * 4
                assert list(asked) == list(range(min(asked), min(asked) + 3))
                known = {place: answer for place, answer in known.items() if place in asked}
            assert known == asked


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_who_knows_is_always_right(task: QueryTask) -> None:
    found = list(task.open().evaluate(lambda inputs: knows(task, inputs)))
    for name in ("accuracy", "sequence_accuracy"):
        values = [m for m in found if m.name == name]
        assert {(m.value, m.items, m.se_items) for m in values} == {(1.0, 300, 0.0)}
        assert [m.point for m in values] == task.points()
    assert task.length == 34


def test_a_value_is_the_mean_over_sequences_with_its_error() -> None:
    """By hand: right at the first two of three marks, and nowhere in every other sequence."""
    task = COPY.changed(copied=3)

    def half(inputs: Tensor) -> Tensor:
        logits = knows(task, inputs)
        logits[::2] = 0
        logits[:, -1] = 0
        return logits

    found = {m.name: m for m in task.open().evaluate(half) if m.point == {"length": 21}}
    assert found["accuracy"].value == pytest.approx(1 / 3)
    assert found["accuracy"].se_items == pytest.approx((1 / 3) * math.sqrt(300 / 299) / math.sqrt(300))
    assert found["sequence_accuracy"].value == 0
    right, wrong = math.log(7 + math.e) - 1, math.log(8)
    assert found["validation_loss"].value == pytest.approx((wrong + (2 * right + wrong) / 3) / 2)


@pytest.mark.parametrize("task", TASKS, ids=name_of)
def test_guessing_is_right_as_often_as_the_rows_beside_say(task: QueryTask) -> None:
    """Guess an answer from all possible ones, or from those in the sequence."""
    first = 7 if isinstance(task, AssociativeRecall) else 5 if isinstance(task, Needle) else 0
    answers = torch.arange(first, first + task.answers)

    def guess(inputs: Tensor, weights: Tensor) -> Tensor:
        drawn = answers[weights.double().multinomial(inputs.shape[1], replacement=True, generator=source)]
        return torch.nn.functional.one_hot(drawn, task.vocabulary).float()

    def guesses(inputs: Tensor) -> Tensor:
        return guess(inputs, torch.ones(len(inputs), len(answers)))

    def guesses_shown(inputs: Tensor) -> Tensor:
        return guess(inputs, (inputs[:, :, None] == answers).any(1))

    source = torch.Generator().manual_seed(0)
    for name, guesser in (("chance", guesses), ("shown", guesses_shown)):
        found = list(task.open().evaluate(guesser))
        exact = [m for m in found if m.name == f"{name}.accuracy"]
        measured = [m for m in found if m.name == "accuracy"]
        for said, seen in zip(exact, measured, strict=bool(exact)):
            assert said.point == seen.point
            assert seen.value == pytest.approx(said.value, abs=4.5 * seen.se_items)


@pytest.mark.parametrize("power", [0.01, 0.6, 1.0, 2.0])
def test_queries_stand_where_the_power_law_puts_them(power: float) -> None:
    """Two places drawn one after another, without repetition, the g-th in proportion to g^(power - 1)."""
    task = RECALL.changed(pairs=2, queries=2, power=power, context=12, batch=20_000)
    places = (task.open().batch(1, 1).targets != UNASKED).nonzero()[:, 1].view(-1, 2)
    seen = Counter(map(tuple, ((places - 4) // 2).tolist()))
    weights = [(g + 1) ** (power - 1) for g in range(4)]
    total = sum(weights)
    for a in range(4):
        for b in range(a + 1, 4):
            p = weights[a] * weights[b] / total * (1 / (total - weights[a]) + 1 / (total - weights[b]))
            assert seen[a, b] / 20_000 == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / 20_000))


@pytest.mark.parametrize("length", [10, 11, 20, 21])
def test_a_needle_lies_at_its_depth(length: int) -> None:
    for depth in (0.0, 0.2, 0.5, 0.77, 1.0):
        batch = NEEDLE.draw(Draws(0, "needle"), 400, {"length": length, "depth": depth})
        assert {row.index(row[-1]) for row in batch.inputs.tolist()} == {round(depth * (length - 3))}
    batch = NEEDLE.draw(Draws(0, "needle"), 8000, {"length": length})
    seen = Counter(row.index(row[-1]) for row in batch.inputs.tolist())
    mean = 8000 / (length - 2)
    assert sorted(seen) == list(range(length - 2))
    assert max(abs(count - mean) for count in seen.values()) < 4.5 * math.sqrt(mean)
    distracting = {place for row in batch.inputs.tolist() for place in range(length - 1) if row[place] < 5}
    assert distracting == set(range(length - 2))


@pytest.mark.parametrize(
    ("task", "fields", "said"),
    [
        (RECALL, {"pairs": 6}, "6 pairs need 6 different values, and 5 exist; raise values"),
        (RECALL, {"queries": 5}, "5 queries ask for more than 4 pairs"),
        (RECALL, {"context": 15}, "4 pairs and 4 queries, .* into 15 tokens"),
        (RECALL, {"evaluation": {"lengths": (9,)}}, "into 9 tokens"),
        (RECALL, {"evaluated_pairs": (5, 3)}, "rise from value to value"),
        (INDUCTION, {"span": 9}, "a span of 9 leaves no other of 9 symbols"),
        (INDUCTION, {"context": 7}, "7 tokens have no room for a span of 4 twice"),
        (COPY, {"context": 9}, "9 tokens have no room for 5 to copy"),
        (NEEDLE, {"distractors": 5}, "6 pairs need 6 different keys, and 5 exist; raise keys"),
        (NEEDLE, {"context": 9}, "9 tokens have no room for 4 pairs"),
    ],
)
def test_what_cannot_be_drawn_is_refused(task: QueryTask, fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        type(task).model_validate({**task.data(), **fields})


@pytest.mark.parametrize("blanks", [False, True])
def test_released_recall_asks_for_every_key_once_after_its_pair(blanks: bool) -> None:
    task = MultiQueryRecall(symbols=30, context=40, pairs=6, blanks=blanks, batch=200)
    inputs, targets, _ = task.open().batch(3, 7)
    assert (targets != UNASKED).sum(1).unique().tolist() == [6]
    for row, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        keys, values = row[0:12:2], row[1:12:2]
        assert len({*keys}) == len({*values}) == 6
        assert {*keys} <= {*range(1, 15)}
        assert {*values} <= {*range(15, 30)}
        places = [place for place, target in enumerate(wanted) if target != UNASKED]
        assert sorted(row[place] for place in places) == sorted(keys)
        assert all(place >= 12 and place % 2 == 0 for place in places)
        assert all(wanted[place] == values[keys.index(row[place])] for place in places)
        if blanks:
            assert {row[place] for place in range(12, 40) if place not in places} == {0}
    others = inputs[:, 12:][targets[:, 12:] == UNASKED]
    assert blanks or others.unique().tolist() == [*range(30)]


def test_released_recall_draws_places_by_a_power_law_and_asks_for_early_keys_early() -> None:
    task = MultiQueryRecall(symbols=30, context=40, pairs=1, power=0.3, batch=20_000)
    inputs, targets, _ = task.open().batch(0, 1)
    places = (targets != UNASKED).float().argmax(1)
    expected = torch.arange(1, 20, dtype=torch.float64) ** (0.3 - 1)
    expected = expected / expected.sum() * len(inputs)
    counted = torch.bincount((places - 2) // 2, minlength=19)
    assert float(((counted - expected) ** 2 / expected).sum()) < 43.8  # chi-squared, 18 degrees of freedom: p = 0.0006
    task = task.changed(pairs=6, batch=2000)
    inputs, targets, _ = task.open().batch(0, 1)
    asked = [(targets == inputs[:, [2 * pair + 1]]).float().argmax(1).double().mean() for pair in (0, 5)]
    assert asked[0] + 2 < asked[1]


@pytest.mark.parametrize("wrong", [{"context": 41}, {"context": 22}, {"symbols": 12}, {"evaluated_pairs": (15,)}])
def test_released_recall_refuses_what_cannot_be_drawn(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        MultiQueryRecall.model_validate({"symbols": 30, "context": 40, "pairs": 6, **wrong})
