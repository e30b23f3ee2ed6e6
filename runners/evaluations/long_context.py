"""Long context: questions about long texts, answered by generation, in LongBench's files and with its scores.

A line of a file is an item as in LongBench: "input", "context", "answers" (texts), "dataset", and "all_classes" or
null. Other fields are ignored. `longbench` has the scores, between 0 and 1; LongBench prints per cents.

A model reads the end of a document and then `template` with the item in it. It writes the likeliest token, one after
another. It stops at the end of the document, after `new_tokens`, or at a line break if the data set asks for one line.
There is no cache of keys and values: every token costs a forward pass over all tokens before it. So an evaluation costs
about items times `new_tokens` passes of `context` tokens. With `prompts="longbench"`, each data set has the prompt and
the answer length, 32 to 512 tokens, of LongBench's released code (`longbench`).

As in LongBench, texts longer than `context` minus `new_tokens` lose their middle: the beginning and the end keep
equally many tokens. LongBench decodes and encodes the two halves once more; here their tokens stay.

Source: LongBench (Bai et al. 2024). The Integral Transformer (paper 002, section 4.4) stretches positions fourfold by
YaRN and reports ROUGE of all data sets, but ROUGE-L is the score of four.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple, Self, final

from pydantic import Field, PositiveInt, model_validator

from grid.errors import SpecError
from grid.spec import Added
from runners.evaluations.item_files import FromFiles, Line, SetsJudge, read_sets, slug
from runners.evaluations.length_extrapolation import Stretch, factor_of, stretch_positions
from runners.evaluations.likelihood import encoding, generate
from runners.evaluations.longbench import (
    ANSWER_TOKENS,
    ONE_LINE,
    PROMPTS,
    SCORES,
    classification,
    retrieval,
    score,
)
from runners.tasks.task import Items, Measurements, Predict, Task
from variants import Backbone, Positions


class LongQuestion(NamedTuple):
    dataset: str
    context: str
    input: str
    answers: tuple[str, ...]
    classes: tuple[str, ...]


class LongContext(FromFiles):
    """The score of every data set, and the mean over them; `sets` are data sets."""

    units: ClassVar[Mapping[str, str]] = dict.fromkeys(("long_context", "long_context_truncated"), "share of 1")
    kind: Literal["long_context"] = "long_context"
    context: PositiveInt = 2048
    """Most tokens that a model reads at a time, with those that it has written."""
    new_tokens: PositiveInt = 64
    """Most tokens that it writes."""
    template: Annotated[str, Field(min_length=1)] = "{context}\n\n{input}\n"
    """The text that it reads, with `{context}` and `{input}` once each."""
    prompts: Annotated[Literal["template", "longbench"], Added()] = "template"
    """Prompts and answer lengths: `template` and `new_tokens`, or LongBench's own of each data set."""
    scaling: Stretch | None = None
    """Stretches rotary positions; None leaves positions as in training."""

    @model_validator(mode="after")
    def _template_asks(self) -> Self:
        if self.prompts == "longbench":
            fields = type(self).model_fields
            self.set_normal_form(template=fields["template"].default, new_tokens=fields["new_tokens"].default)
        for part in ("{context}", "{input}"):
            if self.template.count(part) != 1:
                raise ValueError(f"template needs {part} once; got {self.template!r:.60}")
        longest = max(map(self.answer_tokens, self.names))
        if self.context < longest + 3:
            what = "LongBench's longest answer" if self.prompts == "longbench" else "new_tokens"
            raise ValueError(f"context is at least {what} + 3 = {longest + 3}; got context={self.context}; raise it")
        return self

    def answer_tokens(self, name: str) -> int:
        return _ANSWER_TOKENS.get(name, self.new_tokens) if self.prompts == "longbench" else self.new_tokens

    def prompt(self, question: LongQuestion) -> str:
        template = PROMPTS[question.dataset] if self.prompts == "longbench" else self.template
        parts = template.split("{context}")
        return question.context.join(part.replace("{input}", question.input) for part in parts)

    def read_parts(self) -> Mapping[str, Mapping[str, LongQuestion]]:
        return read_sets(self, _parse_line)

    def check(self, task: Task, model: Backbone) -> None:
        super().check(task, model)
        stretch_positions(model, self.scaling)

    def positions(self, model: Backbone) -> Positions:
        return stretch_positions(model, self.scaling)

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        names = ("long_context", "long_context_truncated")
        return {row: [self.point] for name in names for row in (name, *(f"{name}.{each}" for each in self.names))}

    @property
    def point(self) -> dict[str, float]:
        return {"factor": factor_of(self.scaling)}

    def open(self, task: Task) -> "LongContextJudge":
        return LongContextJudge(self, task)


@final
class LongContextJudge(SetsJudge["LongContext", LongQuestion]):
    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Yield `long_context.<set>`, the score, and `long_context_truncated.<set>`, the share of cut items.

        Both are at {factor}, with the values of single items. The mean over sets has the name without a set.
        """
        return self.evaluate_sets(predict, self.spec.point)

    def values(self, predict: Predict, name: str) -> dict[str, list[float]]:
        questions, prompts = list(self.sets[name].values()), self.encoded[name]
        one_line = questions[0].dataset in ONE_LINE

        def is_over(text: str) -> bool:
            return one_line and "\n" in text.lstrip("\n")

        shown = [tokens for tokens, _ in prompts]
        written = generate(predict, shown, self.spec.answer_tokens(name), self.encoder, is_over)
        answered = zip(questions, written, strict=True)
        return {
            "long_context": [score(item.dataset, text, item.answers, item.classes) for item, text in answered],
            "long_context_truncated": [float(truncated) for _, truncated in prompts],
        }

    def encode(self, name: str, item: LongQuestion, what: str) -> tuple[list[int], bool]:
        """Return the tokens that a model reads, and True if some are left out."""
        with encoding(what):
            ids = list(self.encoder.encode(self.spec.prompt(item)).ids)
        room = self.spec.context - self.spec.answer_tokens(name) - 1
        half, cut = room // 2, len(ids) > room
        tokens = [self.encoder.end, *(ids[:half] + ids[len(ids) - half :] if cut else ids)]
        if len(tokens) <= self.unscored:
            raise SpecError(f"{what} has {len(tokens)} tokens, all unscored")
        return tokens, cut


_ANSWER_TOKENS = {slug(name, name): count for name, count in ANSWER_TOKENS.items()}
"""By set."""


def _parse_line(line: Line) -> tuple[str, str, LongQuestion]:
    dataset = line.text("dataset")
    rule = SCORES.get(dataset)
    if rule is None:
        raise SpecError(f"dataset is one of {', '.join(SCORES)}; {line.where} has {dataset!r:.60}")
    answers = line.texts("answers")
    classes = line.texts("all_classes") if line.fields.get("all_classes") else ()
    if rule is classification and not set(answers) <= set(classes):
        raise SpecError(f"answers of {dataset} must be among all_classes; {line.where} has {list(answers)!r:.60}")
    if rule is retrieval:
        try:
            [retrieval("", answer) for answer in answers]
        except ValueError as error:
            raise SpecError(f"{error}, in {line.where}; correct it") from error
    question = LongQuestion(dataset, line.text("context"), line.text("input"), answers, classes)
    return dataset, line.text("_id", line.place), question
