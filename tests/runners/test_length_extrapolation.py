"""Length extrapolation: what is shown, closed forms of its losses, and models whose use of context is known."""

import math
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ablate import Grammar, LengthExtrapolation, Needle, Stretch, Text, Trial
from ablate.grid.errors import SpecError
from ablate.training.loop.train import train
from ablate.training.tasks import Batch, Data, Measurements, Predict, Task
from ablate.training.tasks.task import Items
from ablate.variants import Alibi, Rotary, Tokens, Transformer, Yarn, gpt2, llama2

SMALL = LengthExtrapolation(lengths=(7, 20, 63), count=5, bucket=10, last=6)
WORDS = Grammar(nouns=6, verbs=5, names=7, prepositions=3, topics=2, context=16)


class Repeated(Task):
    """Nothing but token 0, as far as one looks; the first positions may be left out, and keys hidden."""

    kind: Literal["repeated_zero"] = "repeated_zero"
    batch: int = 2
    hides: bool = False
    skips: int = 0

    @property
    def inputs(self) -> Tokens:
        return Tokens(3)

    @property
    def length(self) -> int:
        return 7

    @property
    def unscored(self) -> int:
        return self.skips

    def windows(self, length: int, count: int) -> Batch:
        ids = torch.zeros(count, length, dtype=torch.int64)
        places = torch.arange(length)
        near = (places[:, None] - places).abs() < 3
        return Batch(ids, ids, near.expand(count, -1, -1) if self.hides else None)

    def open(self) -> Data:
        raise AssertionError


def evaluate(spec: LengthExtrapolation, predict: Predict, task: Task = WORDS) -> dict[Any, Measurements]:
    rows = [each for each in spec.open(task).evaluate(predict) if isinstance(each, Measurements)]
    keyed = {(each.name.removeprefix("length_extrapolation_"), *each.point.values()): each for each in rows}
    assert len(keyed) == len(rows)
    return keyed


def by_place(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    """Token 0 has the logit t at position t, the two others 0."""
    logits = torch.zeros(*inputs.shape, 3, dtype=torch.float64)
    logits[..., 0] = torch.arange(inputs.shape[1])
    return logits


def cost_at(t: int) -> float:
    return math.log(math.exp(t) + 2) - t


def test_every_loss_is_the_mean_over_its_positions() -> None:
    rows = evaluate(SMALL, by_place, Repeated())
    for length in SMALL.lengths:
        expected = [cost_at(t) for t in range(length)]
        assert rows["loss", length, 1].value == pytest.approx(sum(expected) / length, rel=1e-12)
        assert rows["last_loss", length, 1].value == pytest.approx(sum(expected[-6:]) / 6, rel=1e-12)
        for start in range(0, length, 10):
            part = expected[start : start + 10]
            row = rows["bucket_loss", length, 1, start + 1]
            assert row.value == pytest.approx(sum(part) / len(part), rel=1e-12)
            assert (row.items, row.se_items) == (5, pytest.approx(0, abs=1e-12))
    rows = evaluate(SMALL.changed(lengths=(20,), bucket=1), by_place, Repeated(skips=2))  # positions that may see ahead
    assert rows["loss", 20, 1].value == pytest.approx(sum(map(cost_at, range(2, 20))) / 18, rel=1e-12)
    assert ("bucket_loss", 20, 1, 2) not in rows
    assert rows["bucket_loss", 20, 1, 3].value == pytest.approx(cost_at(2), rel=1e-12)


def record_inputs(spec: LengthExtrapolation, task: Task) -> list[tuple[Tensor, Tensor | None]]:
    seen: list[tuple[Tensor, Tensor | None]] = []

    def remember(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
        seen.append((inputs, visible))
        return torch.zeros(*inputs.shape, task.inputs.vocabulary)

    evaluate(spec, remember, task)
    return seen


def test_windows_of_all_lengths_end_at_the_same_tokens_and_hide_what_is_hidden() -> None:
    seven, twenty, longest = (inputs for inputs, _ in record_inputs(SMALL, WORDS))
    assert longest.shape == (5, 63)
    assert torch.equal(seven, longest[:, -7:])
    assert torch.equal(twenty, longest[:, -20:])
    for inputs, visible in record_inputs(SMALL, Repeated(hides=True)):
        places = torch.arange(inputs.shape[1])
        assert torch.equal(visible, ((places[:, None] - places).abs() < 3).expand(5, -1, -1))


def counting(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    """The frequencies of all tokens before: the more of them, the better the guess."""
    seen = F.one_hot(inputs, WORDS.inputs.vocabulary).double().cumsum(1)
    return ((seen + 0.1) / (seen + 0.1).sum(-1, keepdim=True)).log()


def test_the_last_positions_tell_whether_context_helps() -> None:
    """The loss of the last positions of every window: the same predictions at every length."""
    spec = LengthExtrapolation(lengths=(8, 32, 128), count=200, last=8)
    size = WORDS.inputs.vocabulary
    table = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def losses(predict: Predict) -> list[Tensor]:
        rows = [each.values for each in spec.open(WORDS).evaluate(predict) if isinstance(each, Items)]
        return [torch.tensor(values, dtype=torch.float64) for values in rows]

    short, middle, long = losses(counting)
    for gain in (short - middle, middle - long):
        assert gain.mean() > 5 * gain.std() / 200**0.5
    short, *others = losses(lambda inputs, _=None: table[inputs])  # looks at nothing but the last token
    for each in others:
        torch.testing.assert_close(short, each, rtol=1e-12, atol=0)


def backbone(**changes: object) -> Any:
    return llama2(layers=2, heads=2, width=16, feedforward_width=16).changed(**changes)


def language_trial(tiny: Trial, *evaluations: LengthExtrapolation, **changes: Any) -> Trial:
    return tiny.changed(**{"task": WORDS, "model": backbone(), "evaluations": evaluations, **changes})


def test_scaling_holds_for_its_own_rows_and_nothing_else(tiny: Trial, memory: Any) -> None:
    """Rows under both factors are those of the trained weights with the positions exchanged by hand."""
    stretch = Stretch(factor=4, original=16, beta_fast=3)
    spec = SMALL.changed(scaling=stretch)
    worlds = [memory() for _ in range(2)]
    trial = language_trial(tiny, SMALL, spec, model=backbone(positions=Rotary(base=50, share=0.5)))
    trial = trial.changed(execution=trial.execution.changed(keep_weights=True))
    train(trial, worlds[0])
    train(trial.changed(evaluations=()), worlds[1])
    assert worlds[1].evaluations.items() < worlds[0].evaluations.items()
    assert worlds[0].losses() == worlds[1].losses()
    state = worlds[0].kept[1]["model"]
    for positions, factor in ((trial.model.positions, 1), (Yarn(base=50, share=0.5, **stretch.data()), 4)):
        model = Transformer(trial.model.changed(positions=positions), trial.operators(), inputs=WORDS.inputs, seed=0)
        model.load_state_dict(state)
        with torch.inference_mode():
            expected = evaluate(SMALL, model.eval())["last_loss", 63, 1].value
        place = (12, "length_extrapolation_last_loss", ("factor", factor), ("length", 63))
        assert worlds[0].evaluations[place][0] == pytest.approx(expected, rel=1e-6)
        single = worlds[0].single[place]
        assert sum(single.values()) / len(single) == pytest.approx(expected, rel=1e-6)
        assert list(single) == [f"window/{number}" for number in range(1, 6)]


def test_bad_input_is_refused_before_any_training(tiny: Trial, task: Text) -> None:
    learned = gpt2(layers=2, heads=2, width=8, max_positions=30)
    stretch, short = (SMALL.changed(scaling=Stretch(factor=4, original=original)) for original in (16, 3))
    alibi, long = backbone(positions=Alibi()), SMALL.changed(lengths=(100_000,))
    refusals: dict[str, Callable[[], object]] = {
        "rise from value to value": lambda: SMALL.changed(lengths=(20, 20)),
        "last=6 is above the shortest length, 5": lambda: SMALL.changed(lengths=(5, 20)),
        "greater than 1": lambda: Stretch(factor=1, original=16),
        "cannot evaluate Needle; it needs a task of text or grammar": lambda: language_trial(
            tiny, SMALL, task=Needle()
        ),
        "up to 63 tokens and the model has 30 positions": lambda: language_trial(tiny, SMALL, model=learned),
        "the model has 'alibi', and scaling stretches rotary": lambda: language_trial(tiny, stretch, model=alibi),
        "original=3, nearest is 7": lambda: language_trial(tiny, short),
        "the shortest window has 7 positions": lambda: SMALL.check(Repeated(skips=2), backbone()),
        "needs windows of 100000 predictions": lambda: long.open(task),
    }
    for said, build in refusals.items():
        with pytest.raises((SpecError, ValueError), match=said):
            build()
