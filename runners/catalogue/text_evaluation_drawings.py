"""What is drawn of evaluations that read text: the sequences that they show to a model, as a model of the page's own
is shown them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from runners.catalogue.panels import Cell, Panel, Row, Strip
from runners.catalogue.text_drawings import WINDOW, piece, small_sentences, small_text
from runners.evaluations import Evaluation, LengthExtrapolation, LmEval, LongContext, MultipleChoice
from runners.evaluations.likelihood import pair
from runners.evaluations.minimal_pairs import MinimalPairs
from runners.tasks import Task, Text
from runners.tasks.text.encoder import Encodes


class Recorder:
    """A model that keeps what it is shown, finds all tokens equally likely, and writes `answer` where it may write."""

    def __init__(self, vocabulary: int, answer: Sequence[int] = ()) -> None:
        self.shown: list[Tensor] = []
        self._vocabulary, self._answer = vocabulary, answer

    def __call__(self, inputs: Tensor, visible: Tensor | None = None, /) -> Tensor:
        """Logits [B, T, vocabulary]."""
        del visible
        self.shown.append(inputs.clone())
        found = torch.zeros(*inputs.shape, self._vocabulary)
        if len(self.shown) <= len(self._answer):
            found[..., self._answer[len(self.shown) - 1]] = 1.0
        return found


def _shown(evaluation: Evaluation, task: Task, answer: Sequence[int] = ()) -> list[Tensor]:
    """Every batch of sequences that a model is shown."""
    recorder = Recorder(256, answer)
    for _ in evaluation.open(task).evaluate(recorder):
        pass
    return recorder.shown


def _cells(task: Task, tokens: Sequence[int], *marks: tuple[slice, str]) -> list[Cell]:
    assert isinstance(task, Encodes)
    styles = [""] * len(tokens)
    for place, style in marks:
        styles[place] = [style] * len(styles[place])
    return [Cell(piece(task.encoder(), token), style) for token, style in zip(tokens, styles, strict=True)]


def lengths(folder: Path) -> list[Panel]:
    """Windows of three lengths that end at the same token."""
    task, last = small_text(folder), 4
    spec = LengthExtrapolation(lengths=(5, 10, WINDOW), count=1, last=last, bucket=5)
    rows = []
    for batch in _shown(spec, task):
        tokens = batch[0].tolist()
        cells = _cells(task, tokens, (slice(-last, None), "mark"))
        rows.append(Row(f"length {len(tokens)}", [*[None] * (WINDOW - len(tokens)), *cells]))
    return [Strip("what a model reads of one window at each length; last=4", rows, size=27, left=76)]


def choices(folder: Path) -> list[Panel]:
    """A question with each of its answers."""
    task, spec = small_text(folder), choices_spec(folder)
    shown = sorted((row for batch in _shown(spec, task) for row in batch.tolist()), key=len)
    found: list[Panel] = []
    for tokens, answer, words in zip(shown, ("one", "a lot"), ("right", "wrong"), strict=True):
        size = len("Rows sum to ") + len(answer)
        cells = _cells(task, tokens[:size])
        after = [piece(task.encoder(), ord(letter)) for letter in " " + answer]
        wanted = [*[None] * (size - len(after)), *(Cell(letter, "mark") for letter in after)]
        found.append(
            Strip(f"answer {answer!r}, {words}", [Row("input", cells[:-1]), Row("scored", wanted[1:])], size=27)
        )
    return found


def choices_spec(folder: Path) -> MultipleChoice:
    """Of the page's file."""
    return MultipleChoice(source=str(folder / "choices.jsonl"))


def pairs_spec(folder: Path) -> MinimalPairs:
    """Of the page's files."""
    return MinimalPairs(source=str(folder / "pairs"))


def long_spec(folder: Path) -> LongContext:
    """Of the page's file."""
    return LongContext(source=str(folder / "questions.jsonl"))


def pairs(folder: Path) -> list[Panel]:
    """The two sentences of a pair, one token after another masked."""
    task, spec = small_sentences(folder), pairs_spec(folder)
    assert isinstance(task, Encodes)
    mask, found = task.encoder().mask, list[Panel]()
    shown = [row for batch in _shown(spec, task) for row in batch.tolist()]
    for sentence, words in (("heads look", "grammatical"), ("heads looks", "ungrammatical")):
        ids = sentence.encode()
        rows = [row for row in shown if all(a in (b, mask) for a, b in zip(row[1 : len(ids) + 1], ids, strict=True))]
        rows = [row for row in rows if row[len(ids) + 1] == task.encoder().end]
        shortened = [(0, rows[0]), (1, rows[1]), (len(rows) - 1, rows[-1])]
        lines = [
            Row(f"pass {at + 1}", _cells(task, row[: len(ids) + 2], (slice(at + 1, at + 2), "mark")))
            for at, row in shortened
        ]
        heading = f"{words}: {len(rows)} passes, one for each token; first, second and last"
        found.append(Strip(heading, lines, size=27, left=76))
    return found


def long(folder: Path) -> list[Panel]:
    """A text that is too long, with its middle left out, and what a model writes after it."""
    task, answer = small_text(folder), b"one\0"
    spec = long_spec(folder).changed(context=61, new_tokens=5, template="{context}\n{input}\n")
    tokens = _shown(spec, task, answer)[-1][0].tolist()
    written = len(answer) - 1
    cells = [*_cells(task, tokens, (slice(len(tokens) - written, None), "mark")), Cell("⊣", "mark")]
    half = (61 - 5 - 1) // 2
    cells.insert(1 + half, Cell("...", "odd"))
    return [Strip("what a model has read and written when it has ended its document", [Row("", cells)], size=27)]


def harness_spec(folder: Path) -> LmEval:
    """Of a folder with a task's YAML file."""
    return LmEval(tasks=("rows",), include=str(folder / "harness"))


def harness(folder: Path) -> list[Panel]:
    """What each kind of the harness's requests asks, with tokens cut as it is told to."""
    task = small_text(folder)
    encoder, found = task.encoder(), list[Panel]()
    before, after = pair(encoder, "Rows sum to", " one")
    kinds = {
        "loglikelihood: of a continuation, such as each answer of multiple choice": (before, after),
        "loglikelihood_rolling: of a whole text": ([], [*before, *after]),
        "generate_until: what the model writes after a text, token by token": (before, after),
    }
    for heading, (given, asked) in kinds.items():
        tokens = [encoder.end, *given, *asked]
        found.append(Strip(heading, [Row("", _cells(task, tokens, (slice(1 + len(given), None), "mark")))], size=27))
    return found


def long_task(folder: Path) -> Text:
    """A task whose models all of these but minimal pairs judge."""
    return Text(source=str(folder / "text.jsonl"))
