"""Long context: questions about long texts, answered by writing on, in the files and by the scores of LongBench.

A line of a file is an item as LongBench has it: "input", "context", "answers" (texts), "dataset", and "all_classes" or
null; further fields are not read. `answer_scores` has the scores, between 0 and 1 where LongBench prints per cents.

A model reads the end of a document and then `template` with the item in it. It writes the likeliest token, one after
another, until it ends the document, has written `new_tokens`, or, where one line is asked for, breaks the line. There
is no cache of keys and values: every token costs a forward pass over all before it, an evaluation about items times
`new_tokens` passes of `context` tokens. LongBench has a template of its own for each data set, and writes 32 to 512
tokens; give several evaluations where these matter. What does not fit into `context` minus `new_tokens` loses its
middle, as there: as many tokens are kept at the end as at the beginning. LongBench decodes and encodes the two halves
once more, here their tokens stay what they are.

Source: LongBench (Bai et al. 2024). The Integral Transformer (paper 002, section 4.4) stretches positions fourfold by
YaRN and says ROUGE of all data sets, of which it is the score of four.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, final

import torch
from pydantic import Field, PositiveInt, model_validator

from grid.errors import SpecError
from runners.evaluations.answer_scores import ONE_LINE, SCORES, classification, retrieval, score
from runners.evaluations.evaluation import Judge
from runners.evaluations.item_files import FromFiles, Line, chosen
from runners.evaluations.likelihood import by_length
from runners.evaluations.multiple_choice import over_sets
from runners.evaluations.rope_scaling import Stretch, factor_of, stretched
from runners.tasks.task import Items, Measurements, Predict, Task, over_items
from runners.tasks.text.encoder import Encoder, Encodes
from variants import Backbone, Positions

_TOKENS = 1 << 14
"""Tokens per forward pass."""


class LongQuestion(NamedTuple):
    """One item."""

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
    """Most tokens that a model reads at a time, what it has written included."""
    new_tokens: PositiveInt = 64
    """Most tokens that it writes."""
    template: Annotated[str, Field(min_length=1)] = "{context}\n\n{input}\n"
    """What it reads, with `{context}` and `{input}` where these belong; both once."""
    scaling: Stretch | None = None
    """How rotary positions are stretched; None leaves positions as they were in training."""

    @model_validator(mode="after")
    def _template_asks(self) -> Self:
        for part in ("{context}", "{input}"):
            if self.template.count(part) != 1:
                raise ValueError(f"template has {part} once; got {self.template!r:.60}; add it or remove the others")
        if self.context < self.new_tokens + 3:
            raise ValueError(
                f"a model reads something before it writes; got context={self.context} and "
                f"new_tokens={self.new_tokens}; raise context"
            )
        return self

    def _items(self) -> Mapping[str, Mapping[str, LongQuestion]]:
        return chosen(self, _asked)

    def check(self, task: Task, model: Backbone) -> None:
        super().check(task, model)
        stretched(model, self.scaling)

    def positions(self, model: Backbone) -> Positions:
        return stretched(model, self.scaling)

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        names = ("long_context", "long_context_truncated")
        return {row: [self.point] for name in names for row in (name, *(f"{name}.{each}" for each in self.names))}

    @property
    def point(self) -> dict[str, float]:
        """Where its rows are taken."""
        return {"factor": factor_of(self.scaling)}

    def open(self, task: Task) -> "LongContextJudge":
        assert isinstance(task, Encodes)
        return LongContextJudge(self, task.encoder(), self._items(), task.unscored)


class LongPrompt(NamedTuple):
    """What a model reads."""

    tokens: list[int]
    truncated: bool


@final
class LongContextJudge(Judge):
    """Lets a model write; `unscored` is how many positions at the beginning may see what follows them."""

    def __init__(
        self, spec: LongContext, encoder: Encoder, sets: Mapping[str, Mapping[str, LongQuestion]], unscored: int
    ) -> None:
        self._spec, self._encoder, self._sets = spec, encoder, sets
        self._prompts = {
            name: [self._prompt(item, asked) for item, asked in items.items()] for name, items in sets.items()
        }
        for name, prompts in self._prompts.items():
            for item, prompt in zip(sets[name], prompts, strict=True):
                if len(prompt.tokens) <= unscored:
                    raise SpecError(
                        f"an answer comes after the {unscored} positions that the task leaves out of its loss; item "
                        f"{item!r} of {spec.source} has {len(prompt.tokens)} tokens; give it more context or remove it"
                    )

    @property
    def record(self) -> Mapping[str, Any]:
        return self._spec.record_of(self._sets)

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """`long_context.<set>` and `long_context_truncated.<set>` (the share of items that did not fit) at {factor},
        with the values of single items; each as the mean over sets under its name without a set.
        """
        found: dict[str, list[Measurements]] = {"long_context": [], "long_context_truncated": []}
        for name, items in self._sets.items():
            prompts = self._prompts[name]
            written = self._written(predict, prompts, one_line=next(iter(items.values())).dataset in ONE_LINE)
            scores = [score(asked.dataset, text, asked.answers, asked.classes)
                      for asked, text in zip(items.values(), written, strict=True)]  # fmt: skip
            for kind, values in zip(found, (scores, [float(each.truncated) for each in prompts]), strict=True):
                row = over_items(f"{kind}.{name}", torch.tensor(values, dtype=torch.float64), self._spec.point)
                yield row
                yield Items(row.name, row.point, tuple(items), values)
                found[kind].append(row)
        for kind, rows in found.items():
            yield over_sets(kind, rows)

    def _written(self, predict: Predict, prompts: Sequence[LongPrompt], *, one_line: bool) -> list[str]:
        texts = [""] * len(prompts)
        for members in by_length([len(prompt.tokens) for prompt in prompts]):
            rows = max(1, _TOKENS // (len(prompts[members[-1]].tokens) + self._spec.new_tokens))
            for start in range(0, len(members), rows):
                some = members[start : start + rows]
                shown = [prompts[at].tokens for at in some]
                for at, ids in zip(some, self._likeliest(predict, shown, one_line=one_line), strict=True):
                    texts[at] = self._encoder.decode(ids)
        return texts

    def _likeliest(self, predict: Predict, shown: Sequence[Sequence[int]], *, one_line: bool) -> list[list[int]]:
        """The likeliest token after each of `shown`, which have one length, and so on; ids without the end."""
        end = self._encoder.end
        written: list[list[int]] = [[] for _ in shown]
        going = list(range(len(shown)))
        for _ in range(self._spec.new_tokens):
            taken = predict(torch.tensor([[*shown[row], *written[row]] for row in going]))[:, -1].argmax(-1)
            for row, token in zip(going, taken.tolist(), strict=True):
                written[row].append(token)
            going = [row for row in going if not self._is_over(written[row], one_line=one_line)]
            if not going:
                break
        return [each[:-1] if each[-1] == end else each for each in written]

    def _is_over(self, written: Sequence[int], *, one_line: bool) -> bool:
        """Whether what was written last ends an answer: of one line, a break after something else than breaks."""
        if written[-1] == self._encoder.end:
            return True
        return one_line and "\n" in self._encoder.decode(written).lstrip("\n")

    def _prompt(self, item: str, asked: LongQuestion) -> LongPrompt:
        before, _, rest = self._spec.template.partition("{context}")
        text = self._filled(before, asked) + asked.context + self._filled(rest, asked)
        try:
            ids = list(self._encoder.encode(text).ids)
        except ValueError as error:
            raise SpecError(f"item {item!r} of {self._spec.source} cannot be encoded: {error}; change it") from error
        room = self._spec.context - self._spec.new_tokens - 1
        if len(ids) <= room:
            return LongPrompt([self._encoder.end, *ids], truncated=False)
        half = room // 2
        return LongPrompt([self._encoder.end, *ids[:half], *ids[len(ids) - half :]], truncated=True)

    @staticmethod
    def _filled(part: str, asked: LongQuestion) -> str:
        return part.replace("{input}", asked.input)


def _asked(line: Line) -> tuple[str, str, LongQuestion]:
    dataset = line.text("dataset")
    rule = SCORES.get(dataset)
    if rule is None:
        raise SpecError(f"dataset is one of {', '.join(SCORES)}; {line.where} has {dataset!r:.60}")
    answers = line.texts("answers")
    classes = line.texts("all_classes") if line.fields.get("all_classes") else ()
    if rule is classification and not set(answers) <= set(classes):
        raise SpecError(
            f"answers of {dataset} are among all_classes; {line.where} has {list(answers)!r:.60} and "
            f"{list(classes)!r:.60}; complete all_classes"
        )
    if rule is retrieval:
        try:
            [retrieval("", answer) for answer in answers]
        except ValueError as error:
            raise SpecError(f"{error}, in {line.where}; mend it") from error
    asked = LongQuestion(dataset, line.text("context"), line.text("input"), answers, classes)
    return dataset, line.text("_id", line.place), asked
