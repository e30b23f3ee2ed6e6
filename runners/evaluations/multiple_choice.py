"""Multiple choice: questions with a few answers; a model takes the likeliest, by five rules at once.

    acc         sum of log p over the tokens of the answer, given the question
    acc_norm    the same over the number of characters of the answer
    acc_bytes   the same over the number of its UTF-8 bytes
    acc_tokens  the same over the number of its tokens
    acc_full    the mean of log p over all tokens, those of the question as well

The first three are lm-evaluation-harness's rules of these names (0.4.13). The last is the rule of the Integral
Transformer (paper 002): the answer with the lowest perplexity of the whole sequence. There a sequence has the marks of
a chat and an end, which are left out here. Rules differ for answers of different lengths.

A line of a file is `{"question": text, "choices": [texts], "answer": index from 0}`. "context" may stand before the
question or in its place. "id" and "group" are optional. A group is a set; without groups each file is one set. A model
reads the end of a document, then context and question with a line break between them, then `delimiter` and an answer.
Tokens at the border of question and answer are cut as in lm-eval (`likelihood.pair`). Texts that are too long lose
tokens at their beginning. A tie is wrong; lm-eval takes the first of equal answers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, final

from grid.errors import SpecError
from runners.evaluations.evaluation import over_sets
from runners.evaluations.item_files import FromFiles, Line, SetsJudge, read_sets
from runners.evaluations.likelihood import costs_of, encoding, pair
from runners.tasks.task import Items, Measurements, Predict, Task

RULES = ("acc", "acc_norm", "acc_bytes", "acc_tokens", "acc_full")


class Question(NamedTuple):
    context: str
    choices: tuple[str, ...]
    answer: int


class MultipleChoice(FromFiles):
    """Accuracy by every rule, on every set and as the mean over sets, and the loss of right answers in nats."""

    units: ClassVar[Mapping[str, str]] = {
        **{f"multiple_choice_{kind}": "share of 1" for kind in (*RULES, "truncated")},
        "multiple_choice_loss": "nats per answer",
    }
    kind: Literal["multiple_choice"] = "multiple_choice"
    delimiter: str = " "
    """Text between a question and an answer."""

    def read_parts(self) -> Mapping[str, Mapping[str, Question]]:
        return read_sets(self, _question)

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        kinds = (*RULES, "loss", "truncated")
        names = [f"multiple_choice_{kind}" for kind in kinds] + ["chance.multiple_choice_acc"]
        return {row: [{}] for name in names for row in (name, *(f"{name}.{each}" for each in self.names))}

    def open(self, task: Task) -> "MultipleChoiceJudge":
        return MultipleChoiceJudge(self, task)


class AnswerOption(NamedTuple):
    """One answer to one question, as a model reads it."""

    tokens: Sequence[int]
    """Cut at the beginning if it is too long."""
    answer: int
    """Number of tokens of the answer, at the end."""
    lengths: tuple[int, int]
    """Characters and bytes of the answer."""
    truncated: bool


@final
class MultipleChoiceJudge(SetsJudge["MultipleChoice", Question]):
    def encode(self, name: str, item: Question, what: str) -> list[AnswerOption]:  # noqa: ARG002
        return [self._option(item, text, what) for text in item.choices]

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Yield accuracies, losses and truncation by set, with the values of single items, and their means over sets.

        The rows are `multiple_choice_<rule>.<set>`, `multiple_choice_loss.<set>` (the nats of all tokens of the right
        answer), `multiple_choice_truncated.<set>` (the share of items that were cut) and
        `chance.multiple_choice_acc.<set>`. The mean over sets has the name without a set.
        """
        yield from self.evaluate_sets(predict, {})
        rows = []
        for name, items in self.sets.items():
            guess = sum(1 / len(question.choices) for question in items.values()) / len(items)
            rows.append(Measurements(f"chance.multiple_choice_acc.{name}", guess, {}, len(items), None))
        yield from rows
        yield over_sets("chance.multiple_choice_acc", rows)

    def values(self, predict: Predict, name: str) -> dict[str, list[float]]:
        options: list[list[AnswerOption]] = self.encoded[name]
        sequences = [option.tokens for each in options for option in each]
        losses = iter(costs_of(predict, sequences, self.encoder.vocabulary))
        values: dict[str, list[float]] = {f"multiple_choice_{kind}": [] for kind in (*RULES, "loss", "truncated")}
        for each, question in zip(options, self.sets[name].values(), strict=True):
            scores = []  # one row per option, in the order of `RULES`; more is better
            for option in each:
                nats, (characters, size) = next(losses), option.lengths
                total, mean = -float(nats[len(nats) - option.answer :].sum()), -float(nats[self.unscored :].mean())
                scores.append((total, total / characters, total / size, total / option.answer, mean))
            for rule, of_options in zip(RULES, zip(*scores, strict=True), strict=True):
                others = [score for at, score in enumerate(of_options) if at != question.answer]
                wins = all(of_options[question.answer] > score for score in others)  # NaN never wins
                values[f"multiple_choice_{rule}"].append(float(wins))
            values["multiple_choice_loss"].append(-scores[question.answer][0])
            values["multiple_choice_truncated"].append(float(any(option.truncated for option in each)))
        return values

    def _option(self, question: Question, text: str, what: str) -> AnswerOption:
        most = self.spec.context
        with encoding(what):
            before, answer = pair(self.encoder, question.context, self.spec.delimiter + text)
        if not 0 < len(answer) <= most:
            raise SpecError(
                f"an answer has 1 to context={most} tokens; {text[:60]!r} of {what} has {len(answer)}; raise context "
                "or remove the item"
            )
        whole = [self.encoder.end, *before, *answer]
        kept = whole[-(most + 1) :]
        if len(kept) - 1 - len(answer) < self.unscored:
            raise SpecError(
                f"{what} has {len(kept) - 1 - len(answer)} unscored positions before its answer; add context"
            )
        return AnswerOption(kept, len(answer), (len(text), len(text.encode())), len(kept) < len(whole))


def _question(line: Line) -> tuple[str, str, Question]:
    unknown = line.fields.keys() - {"context", "question", "choices", "answer", "id", "group"}
    if unknown:
        raise SpecError(f"an item has no field {sorted(unknown)[0]!r}; remove it from {line.where}")
    if "context" not in line.fields and "question" not in line.fields:
        raise SpecError(f"an item has a question or a context; {line.where} has neither; add an empty one")
    parts = [line.text(name) for name in ("context", "question") if name in line.fields]
    choices, answer = line.texts("choices"), line.fields.get("answer")
    if len(choices) < 2 or not all(map(str.strip, choices)):
        raise SpecError(f"choices are two or more texts, none of them empty; {line.where} has {list(choices)!r:.60}")
    if len(set(choices)) < len(choices):
        raise SpecError(f"choices differ from one another; {line.where} has {list(choices)!r:.60}; remove one")
    if type(answer) is not int or not 0 <= answer < len(choices):
        raise SpecError(f"answer is the index of a choice, 0 to {len(choices) - 1}; {line.where} has {answer!r:.60}")
    return (
        line.text("group", line.place.rpartition("/")[0]),
        line.text("id", line.place),
        Question("\n".join(parts), choices, answer),
    )
