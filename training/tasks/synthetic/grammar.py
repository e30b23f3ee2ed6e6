"""Grammar: next-token prediction on sentences of a process with a known optimal predictor.

    loss                = -mean log p(next token)                              nats per token
    bits_above_optimum  = (loss - loss of the optimal predictor) / log 2       on the same tokens

The process (`grammar_sentences`) is our own: a hidden Markov process with memory over subject, verb and object. It has
Zipf vocabularies, agreement of subject and verb across other nouns, repeated names, and a hidden topic that shifts the
probabilities of words. `optimal.validation_loss` is the exact loss of the optimal predictor on the validation windows.
`informed.validation_loss` is that of a predictor that knows the hidden topic. `constant.validation_loss` is the exact
entropy of token frequencies.

A window begins with a sentence; the model first reads the stop of the previous one. Agreement is measured on separate
sentences, up to the verb: is the right form likelier than the other form of the same lemma? Attractors, nouns with
another number than the subject, stand in between.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, ClassVar, Literal, Self, final

import torch
from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from ablate.grid.validation import INCREASING
from ablate.training.tasks.counter_rng import CPU, Draws
from ablate.training.tasks.synthetic.grammar_sentences import (
    STOP,
    GrammarProcess,
    Sampler,
    SentenceSample,
    odds,
    unigrams,
)
from ablate.training.tasks.task import Batch, Measurements, Predict, TokenData, in_chunks, over_items, token_losses
from ablate.variants.axes import Ids

_TOKENS = 1 << 14
"""Tokens per forward pass of an evaluation."""


@final
class Grammar(GrammarProcess):
    """Windows of `context` predictions; most other fields are about the process (`grammar_sentences`)."""

    units: ClassVar[Mapping[str, str]] = {
        "validation_loss": "nats per token",
        "bits_above_optimum": "bits per token",
        "agreement_accuracy": "share of 1",
    }
    kind: Literal["grammar"] = "grammar"
    batch: PositiveInt = 32
    context: PositiveInt = 128
    """Tokens of a window, all of which are predicted."""
    validation_windows: PositiveInt = 256
    """Validation windows, the same for all models and seeds."""
    attractors: Annotated[tuple[NonNegativeInt, ...], INCREASING] = (0, 1, 2, 3)
    """Numbers of attractors at which agreement is measured; () if the grammar has no such sentences."""
    agreement_pairs: PositiveInt = 256
    """Sentences per number of attractors."""
    sample: NonNegativeInt = 0
    """Selects another draw of the evaluation."""

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> Self:
        for name, lemmas in (("nouns", self.nouns), ("verbs", self.verbs)):
            if self.topics > lemmas:
                raise ValueError(
                    f"{self.topics} topics are more than the {lemmas} {name}, of which each has one; raise {name}"
                )
        if self.attractors and (self.naming == 1 or self.plural in {0, 1}):
            raise ValueError(
                "attractors need noun subjects of both numbers for agreement; change naming or plural, or attractors"
            )
        if self.attractor == 0 and self.attractors not in {(), (0,)}:
            raise ValueError(
                f"attractors={self.attractors} cannot occur with attractor=0; raise it or use attractors=(0,)"
            )
        return self

    @property
    def length(self) -> int:
        return max(self.context, *(2 + 2 * count for count in self.attractors), 1)

    @property
    def trained_length(self) -> int:
        return self.context

    def measured_length(self, point: Mapping[str, float]) -> int:
        return int(point.get("length", 2 + 2 * point.get("attractors", -1)))

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        losses = (f"{predictor}validation_loss" for predictor in ("", "optimal.", "informed.", "constant."))
        asked = [{"attractors": count} for count in self.attractors]
        agreement = ("agreement_accuracy", "chance.agreement_accuracy") if asked else ()
        return {name: [{}] for name in (*losses, "bits_above_optimum")} | dict.fromkeys(agreement, asked)

    def windows(self, length: int, count: int) -> Batch:
        """Draw `count` windows of `length` predictions, different from the validation windows, on the CPU."""
        draws = Draws(self.sample, "evaluation", "grammar", "windows", length)
        return _predictions(_sampler(self, CPU).draw(draws, count, length).tokens)

    def open(self) -> "GrammarData":
        return GrammarData(self)


@final
class GrammarData(TokenData):
    """Draws windows and computes the losses of reference predictors."""

    def __init__(self, task: Grammar) -> None:
        self._task = task

    @cached_property
    def constant_loss(self) -> float:
        """The entropy of the expected frequencies of tokens in a window."""
        frequencies = unigrams(self._task, self._task.context)
        return float(-torch.special.xlogy(frequencies, frequencies).sum())

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Draw windows: ids [B, T] from the stop on, and the ids that follow them, int64."""
        draws = Draws(seed, "data", step, device=device)
        return _predictions(_sampler(self._task, device).draw(draws, self._task.batch, self._task.context).tokens)

    def examples(self, count: int) -> Batch:
        return _predictions(_sampler(self._task, CPU).draw(Draws(0, "data", 0), count, self._task.context).tokens)

    def evaluate(self, predict: Predict) -> Iterator[Measurements]:
        """Yield losses in nats per token over windows, and `agreement_accuracy` at {attractors} over sentences."""
        task = self._task
        windows, optimal, informed = self._validation
        shown = _predictions(windows.tokens)
        losses = token_losses(predict, shown, max(1, _TOKENS // shown.inputs.shape[1])).mean(1)
        yield over_items("validation_loss", losses)
        yield over_items("optimal.validation_loss", optimal)
        yield over_items("informed.validation_loss", informed)
        yield Measurements("constant.validation_loss", self.constant_loss, {}, len(losses), None)
        yield over_items("bits_above_optimum", (losses - optimal) / math.log(2))
        for count in task.attractors:
            point = {"attractors": count}
            yield over_items("agreement_accuracy", self._agreement(predict, count), point)
            yield Measurements("chance.agreement_accuracy", 0.5, point, task.agreement_pairs, None)

    @cached_property
    def _validation(self) -> tuple[SentenceSample, Float[Tensor, " windows"], Float[Tensor, " windows"]]:
        task = self._task
        draws = Draws(task.sample, "evaluation", "grammar", "windows")
        windows = _sampler(task, CPU).draw(draws, task.validation_windows, task.context)
        token_odds = odds(windows.tokens, task)
        return windows, token_odds.optimal().mean(1), token_odds.informed_loss(windows.topics).mean(1)

    def _agreement(self, predict: Predict, attractors: int) -> Float[Tensor, " pairs"]:
        """Return 1 if the verb that agrees is likelier than its other form, else 0; float64."""
        task = self._task
        draws = Draws(task.sample, "evaluation", "grammar", "agreement", attractors)
        openings, right, wrong = _sampler(task, CPU).agreement(draws, task.agreement_pairs, attractors)
        inputs = F.pad(openings, (1, 0), value=STOP)
        agreement = torch.empty(len(inputs), dtype=torch.float64)

        def reduce(rows: slice, outputs: Tensor) -> Tensor:
            last = outputs[:, -1].cpu()
            return (last.gather(1, right[rows, None]) > last.gather(1, wrong[rows, None]))[:, 0].double()

        for rows, each in in_chunks(predict, inputs, max(1, _TOKENS // inputs.shape[1]), reduce):
            agreement[rows] = each
        return agreement


@lru_cache(maxsize=8)
def _sampler(task: Grammar, device: torch.device) -> Sampler:
    return Sampler(task, device)


def _predictions(tokens: Ids) -> Batch:
    return Batch(F.pad(tokens[:, :-1], (1, 0), value=STOP), tokens)
