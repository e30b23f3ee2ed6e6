"""Multiple choice: questions with a few answers, of which a model takes the likeliest, by five rules at once.

    acc         sum of log p over the tokens of the answer, given the question
    acc_norm    the same over the number of characters of the answer
    acc_bytes   the same over the number of its UTF-8 bytes
    acc_tokens  the same over the number of its tokens
    acc_full    the mean of log p over all tokens, those of the question as well

The first three are lm-evaluation-harness's rules of these names (0.4.13). The last is that of the Integral Transformer
(paper 002), which takes the answer with the lowest perplexity of the whole sequence; there a sequence has the marks of
a chat and an end, which are left out here. Rules differ where answers differ in length.

A line of a file is {"question": text, "choices": [texts], "answer": index from 0}, with "context" before the question
or in its place, and with "id" and "group" where wished: a group is a set, and without groups each file is one. A model
reads the end of a document, then context and question, with a line break between them, then `delimiter` and an answer.
Where question and answer meet, tokens are cut as lm-eval cuts them (`likelihood.pair`). What does not fit loses tokens
at its beginning. A tie is wrong, where lm-eval takes the first of those that tie.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Any, ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor

from grid.errors import SpecError
from runners.evaluations.evaluation import Judge
from runners.evaluations.item_files import FromFiles, Line, chosen
from runners.evaluations.likelihood import costs_of, pair
from runners.tasks.task import Items, Measurements, Predict, Task, over_items
from runners.tasks.text.encoder import Encoder, Encodes

RULES = ("acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_full")


class Question(NamedTuple):
    """One item."""

    context: str
    choices: tuple[str, ...]
    answer: int


class MultipleChoice(FromFiles):
    """Accuracy by every rule, on every set and as the mean over sets; what a right answer costs, in nats."""

    units: ClassVar[Mapping[str, str]] = {
        **{f"multiple_choice_{kind}": "share of 1" for kind in (*RULES, "truncated")},
        "multiple_choice_loss": "nats per answer",
    }
    kind: Literal["multiple_choice"] = "multiple_choice"
    delimiter: str = " "
    """What stands between a question and an answer."""

    def _items(self) -> Mapping[str, Mapping[str, Question]]:
        return chosen(self, _question)

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        kinds = (*RULES, "loss", "truncated")
        names = [f"multiple_choice_{kind}" for kind in kinds] + ["chance.multiple_choice_acc"]
        return {row: [{}] for name in names for row in (name, *(f"{name}.{each}" for each in self.names))}

    def open(self, task: Task) -> "MultipleChoiceJudge":
        assert isinstance(task, Encodes)
        return MultipleChoiceJudge(self, task.encoder(), self._items(), task.unscored)


class AnswerOption(NamedTuple):
    """One answer to one question, as a model reads it."""

    tokens: Sequence[int]
    """What does not fit is gone from its beginning."""
    answer: int
    """How many tokens at its end are the answer's."""
    lengths: tuple[int, int]
    """Characters and bytes of the answer."""
    truncated: bool


@final
class MultipleChoiceJudge(Judge):
    """Ranks answers; `unscored` is how many positions at the beginning may see what follows them."""

    def __init__(
        self, spec: MultipleChoice, encoder: Encoder, sets: Mapping[str, Mapping[str, Question]], unscored: int
    ) -> None:
        self._spec, self._encoder, self._sets, self._unscored = spec, encoder, sets, unscored
        self._options = {
            name: [
                [self._option(item, question, text) for text in question.choices] for item, question in items.items()
            ]
            for name, items in sets.items()
        }

    @property
    def record(self) -> Mapping[str, Any]:
        return self._spec.record_of(self._sets)

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """`multiple_choice_<rule>.<set>`, `multiple_choice_loss.<set>` (the nats that the tokens of the right answer
        cost together) and `multiple_choice_truncated.<set>` (the share of items that did not fit), all with the values
        of single items; `chance.multiple_choice_acc.<set>`; each as the mean over sets under its name without a set.
        """
        found: dict[str, list[Measurements]] = {}
        for name, items in self._sets.items():
            for kind, values in self._of_set(predict, name).items():
                row = over_items(f"multiple_choice_{kind}.{name}", values)
                yield row
                yield Items(row.name, {}, tuple(items), values.tolist())
                found.setdefault(f"multiple_choice_{kind}", []).append(row)
            guess = sum(1 / len(question.choices) for question in items.values()) / len(items)
            row = Measurements(f"chance.multiple_choice_acc.{name}", guess, {}, len(items), None)
            yield row
            found.setdefault("chance.multiple_choice_acc", []).append(row)
        for name, rows in found.items():
            yield over_sets(name, rows)

    def _of_set(self, predict: Predict, name: str) -> dict[str, Tensor]:
        """Values by row, float64 [items] each."""
        options, questions = self._options[name], self._sets[name].values()
        sequences = [option.tokens for each in options for option in each]
        found = iter(costs_of(predict, sequences, self._encoder.vocabulary))
        scored = [[(option, next(found)) for option in each] for each in options]
        right = [question.answer for question in questions]
        values: dict[str, list[float]] = {rule: [] for rule in (*RULES, "loss", "truncated")}
        for each, answer in zip(scored, right, strict=True):
            scores = [self._scores(option, costs) for option, costs in each]
            for rule, of_options in zip(RULES, zip(*scores, strict=True), strict=True):
                values[rule].append(float(_wins(of_options, answer)))
            values["loss"].append(-scores[answer][0])
            values["truncated"].append(float(any(option.truncated for option, _ in each)))
        return {kind: torch.tensor(each, dtype=torch.float64) for kind, each in values.items()}

    def _scores(self, option: AnswerOption, costs: Tensor) -> tuple[float, ...]:
        """In the order of `RULES`, more is better."""
        total = -float(costs[len(costs) - option.answer :].sum())
        characters, size = option.lengths
        return total, total / characters, total / size, total / option.answer, -float(costs[self._unscored :].mean())

    def _option(self, item: str, question: Question, text: str) -> AnswerOption:
        most, what = self._spec.context, f"item {item!r} of {self._spec.source}"
        try:
            before, answer = pair(self._encoder, question.context, self._spec.delimiter + text)
        except ValueError as error:
            raise SpecError(f"{what} cannot be encoded: {error}; change it") from error
        if not answer:
            raise SpecError(
                f"an answer has tokens of its own; those of {text!r}, of {what}, are all one with the question; give a "
                "delimiter"
            )
        if len(answer) > most:
            raise SpecError(
                f"an answer fits into context={most} tokens; {text[:60]!r}, of {what}, has {len(answer)}; "
                "raise context or remove the item"
            )
        whole = [self._encoder.end, *before, *answer]
        kept = whole[-(most + 1) :]
        if len(kept) - 1 - len(answer) < self._unscored:
            raise SpecError(
                f"an answer comes after the {self._unscored} positions that the task leaves out of its loss; {what} "
                f"has {len(kept) - 1 - len(answer)} before {text[:60]!r}; give it more context or remove it"
            )
        return AnswerOption(kept, len(answer), (len(text), len(text.encode())), len(kept) < len(whole))


def over_sets(name: str, rows: Sequence[Measurements]) -> Measurements:
    """The mean over sets, whatever their sizes, with the standard error that follows from theirs."""
    errors = [row.se_items for row in rows if row.se_items is not None]
    se = hypot(*errors) / len(rows) if len(errors) == len(rows) else None
    value = sum(row.value for row in rows) / len(rows)
    return Measurements(name, value, rows[0].point, sum(row.items for row in rows), se)


def _wins(scores: Sequence[float], answer: int) -> bool:
    return all(scores[answer] > score for at, score in enumerate(scores) if at != answer)  # NaN never wins


def _question(line: Line) -> tuple[str, str, Question]:
    strange = line.fields.keys() - {"context", "question", "choices", "answer", "id", "group"}
    if strange:
        raise SpecError(
            f"an item has question or context, choices, answer, and may have id and group; {line.where} has "
            f"{sorted(strange)[0]!r}: remove it"
        )
    if "context" not in line.fields and "question" not in line.fields:
        raise SpecError(
            f"an item has a question or a context; {line.where} has neither; add one, empty if there is none"
        )
    parts = [line.text(name) for name in ("context", "question") if name in line.fields]
    choices, answer = line.texts("choices"), line.fields.get("answer")
    if len(choices) < 2 or not all(map(str.strip, choices)):
        raise SpecError(
            f"choices are two or more texts, none empty or white space alone; {line.where} has {list(choices)!r:.60}"
        )
    if len(set(choices)) < len(choices):
        raise SpecError(
            f"choices differ, since of two that are equal none is the likeliest; {line.where} has "
            f"{list(choices)!r:.60}: remove one"
        )
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise SpecError(f"answer is the index of a choice, 0 to {len(choices) - 1}; {line.where} has {answer!r:.60}")
    return (
        line.text("group", line.place.rpartition("/")[0]),
        line.text("id", line.place),
        Question("\n".join(parts), choices, answer),
    )
