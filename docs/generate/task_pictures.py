"""Pictures of tasks: example sequences, with what a model reads and what it must answer."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch
from figures import Cell, Maps, Panel, Strip, draw_picture, number_words
from torch import Tensor

from ablate.training.catalogue.explain_choice import EXAMPLES
from ablate.training.tasks import (
    AskedLengths,
    AssociativeRecall,
    Batch,
    Grammar,
    Induction,
    LengthGrid,
    LinearFunctions,
    MultiQueryRecall,
    Needle,
    Quantifiers,
    SelectiveCopy,
    ShiftGrid,
    Task,
    Text,
)
from ablate.training.tasks.distillation.distillation import divergence
from ablate.training.tasks.synthetic.grammar_sentences import STOP
from ablate.training.tasks.task import UNSCORED
from ablate.training.tasks.text.encoder import Encodes
from ablate.training.tasks.text.interventions import FixedToken
from ablate.training.tasks.text.masked_text import MaskedText

WINDOW: Final = 20
"""Tokens of a text window."""
_SYMBOLS: Final = {"0x20": "␣", "0x0a": "⏎", "<end>": "⊣", "<mask>": "▢"}
_TEACHER: Final = (3.0, 2.0, 1.0, 0.0, -1.0, -2.0)
_STUDENT: Final = (1.0, 2.0, 2.0, 0.0, 0.0, -1.0)


class Picture(NamedTuple):
    """Says how a kind of task is drawn."""

    make_task: Callable[[Path], Task]
    """Make the small task that is drawn."""
    make_panels: Callable[[Task], list[Panel]]
    legend: Mapping[str, str]
    title: str = "inputs, and the answers of the model"


def _linear_panels(task: Task) -> list[Panel]:
    batch = task.open().examples(2)
    panels: list[Panel] = []
    for number, (inputs, targets) in enumerate(zip(batch.inputs[..., 0], batch.targets, strict=True), start=1):
        names = [f"f(x{at // 2 + 1})" if at % 2 else f"x{at // 2 + 1}" for at in range(len(inputs))]
        answers = {2 * at: f"{value:.2f}" for at, value in enumerate(targets.tolist())}
        panels.append(_number_strip(f"sequence {number}, with its own function", names, inputs, answers))
    return panels


def _quantifier_panels(task: Task) -> list[Panel]:
    panels: list[Panel] = []
    for labels, step in (("shown", 2), ("hidden", 1)):
        batch = task.changed(labels=labels).open().examples(1)
        inputs, answers = batch.inputs[0, :, 0], batch.targets[0].tolist()
        names = [f"y{at // 2 + 1}" if at % step else f"x{at // step + 1}" for at in range(len(inputs))]
        words = {step * at: "yes" if value else "no" for at, value in enumerate(answers)}
        heading = f'quantifier="every", labels="{labels}": are all numbers so far positive?'
        panels.append(_number_strip(heading, names, inputs, words))
    return panels


def _number_strip(heading: str, names: Sequence[str], inputs: Tensor, answers: Mapping[int, str]) -> Strip:
    rows = {
        "": [Cell(name, "dim") for name in names],
        "input": [Cell(f"{value:.2f}") for value in inputs.tolist()],
        "answer": [Cell(answers[at], "mark") if at in answers else None for at in range(len(names))],
    }
    return Strip(heading, rows, size=0.46)


def _query_panels(signs: str = "") -> Callable[[Task], list[Panel]]:
    def make_panels(task: Task) -> list[Panel]:
        batch = task.open().examples(2)
        sequences = zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
        return [
            _query_strip(f"sequence {number}{signs}", task, inputs, targets)
            for number, (inputs, targets) in enumerate(sequences, 1)
        ]

    return make_panels


def _query_strip(heading: str, task: Task, inputs: Sequence[int], targets: Sequence[int]) -> Strip:
    """Draw a sequence with an arrow from each answer to the place that asks for it."""
    name = _letter if isinstance(task, Induction | SelectiveCopy) else _pair_token
    queries = [at for at, target in enumerate(targets) if target != UNSCORED]
    if isinstance(task, SelectiveCopy):
        sources = [at for at, token in enumerate(inputs) if token < task.contents]
    else:
        sources = [inputs.index(targets[at]) for at in queries]
    styles = dict.fromkeys(sources, "odd") | dict.fromkeys(queries, "mark")
    rows = {
        "input": [Cell(name(task, token), styles.get(at, "")) for at, token in enumerate(inputs)],
        "answer": [Cell(name(task, target), "mark") if target != UNSCORED else None for target in targets],
    }
    return Strip(heading, rows, arrows=list(zip(sources, queries, strict=True)))


def _pair_token(task: Task, token: int) -> str:
    if isinstance(task, MultiQueryRecall):
        half = task.symbols // 2
        return f"v{token - half}" if token >= half else f"k{token - 1}" if token else "·"
    assert isinstance(task, AssociativeRecall | Needle)
    if token < task.keys:
        return f"k{token}"
    return f"v{token - task.keys}" if token < task.keys + task.values else "·"


def _letter(task: Task, token: int) -> str:
    if isinstance(task, SelectiveCopy) and token >= task.contents:
        return "·" if token == task.contents else "?"
    return chr(ord("a") + token)


def _grammar_panels(task: Task) -> list[Panel]:
    assert isinstance(task, Grammar)
    batch = task.open().examples(2)
    panels: list[Panel] = []
    for number, (inputs, targets) in enumerate(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True), 1):
        names = [_grammar_word(task, token) for token in inputs]
        verbs = [at for at, name in enumerate(names) if name[0] == "v"]
        subjects = [1 + max(before for before in range(at) if names[before] == "stop") for at in verbs]
        rows = {
            "input": [Cell(name, "odd" if at in {*verbs, *subjects} else "") for at, name in enumerate(names)],
            "target": [Cell(_grammar_word(task, token), "mark") for token in targets],
        }
        heading = f"window {number}: p preposition, n noun, v verb, N name; s plural"
        panels.append(Strip(heading, rows, size=0.33, arrows=list(zip(subjects, verbs, strict=True))))
    return panels


def _grammar_word(task: Grammar, token: int) -> str:
    if token == STOP:
        return "stop"
    if token < task.first_noun:
        return f"p{token}"
    if token >= task.first_name:
        return f"N{token - task.first_name + 1}"
    noun = token < task.first_verb
    kind, lemmas, first = ("n", task.nouns, task.first_noun) if noun else ("v", task.verbs, task.first_verb)
    lemma = token - first
    return f"{kind}{lemma % lemmas + 1}{'s' if lemma >= lemmas else ''}"


def _text_panels(task: Task) -> list[Panel]:
    assert isinstance(task, Text)
    variants: Mapping[str, Text] = {
        "default": task,
        "prefix=8: the loss begins with the token after them": task.changed(prefix=8),
        "intervention=FixedToken(position=3), the token that hides others": task.changed(
            intervention=FixedToken(position=3)
        ),
        'packing="documents": a query sees its own document only (the map below)': task.changed(packing="documents"),
    }
    return [panel for heading, each in variants.items() for panel in _window_panels(heading, each)]


def _window_panels(heading: str, task: Task, sequence: int = 0) -> list[Panel]:
    """Draw one of the task's sequences, with a map of the visible keys if some are hidden."""
    assert isinstance(task, Encodes)
    batch, encoder = task.open().examples(sequence + 1), task.encoder()

    def symbol(token: int) -> str:
        byte = chr(token) if 32 < token < 127 else f"0x{token:02x}"
        piece = {encoder.end: "<end>", encoder.mask: "<mask>"}.get(token, byte)
        return _SYMBOLS.get(piece, piece)

    real, targets = _real_tokens(batch, sequence), batch.targets[sequence].tolist()
    tokens = zip(batch.inputs[sequence].tolist(), real, strict=True)
    rows = {
        "input": [Cell(symbol(token), "" if is_real else "dim") for token, is_real in tokens],
        "target": [None if each == UNSCORED else Cell(symbol(each), "mark") for each in targets],
    }
    panels: list[Panel] = [Strip(heading, rows)]
    if batch.visible is not None and batch.visible.shape[-2] > 1:
        visible = batch.visible[sequence] & torch.ones_like(batch.visible[sequence]).tril()
        panels.append(Maps("", {"visible: query down, key across": visible.double().numpy()}))
    return panels


def _real_tokens(batch: Batch, sequence: int) -> list[bool]:
    """Return False for padding, which is hidden from every query."""
    length = batch.inputs.shape[1]
    return [True] * length if batch.visible is None else batch.visible[sequence].expand(length, length).any(0).tolist()


def _distillation_panels(task: Task) -> list[Panel]:  # noqa: ARG001  (needs no data)
    """Draw the divergence of the predictions of one token at two temperatures."""
    teacher, student = (torch.tensor([[logits]], dtype=torch.float64) for logits in (_TEACHER, _STUDENT))
    panels: list[Panel] = []
    for tau in (1.0, 4.0):
        p, q = ((each / tau).softmax(-1)[0, 0] for each in (teacher, student))
        kl, entropy = (float(each[0, 0]) for each in divergence(student, teacher, tau))
        rows = {
            "": [Cell(f"token {at + 1}", "dim") for at in range(len(p))],
            "teacher p": _value_cells(p, "odd"),
            "student q": _value_cells(q, "mark"),
            "p log(p/q)": _value_cells(p * (p / q).log(), ""),
        }
        heading = f"temperature {tau:g}: kl, the sum, {number_words(kl)} nats"
        panels.append(Strip(f"{heading}; soft cross-entropy {number_words(kl + entropy)} nats", rows, size=0.64))
    return panels


def _value_cells(values: Tensor, style: str) -> list[Cell]:
    return [Cell(f"{value:.3f}", style) for value in values.tolist()]


_IN_LOSS: Final = {"mark": "in the loss; mean errors leave out the first three"}
_QUERIES: Final = {"mark": "query: only here is the model scored", "odd": "the place of the answer"}
_NEXT: Final = {"mark": "scored: every next token"}
_HALVES: Final = ": k a key, v a value, · token 0"
_PAIRS: Final = ": k a key, v a value, · filler"
_LENGTHS: Final = AskedLengths(lengths=(20,))
_SMALL_PAIRS: Final = {"context": 20, "keys": 9, "values": 9, "filler": 4, "evaluation": _LENGTHS}
_SHIFTS: Final = ShiftGrid(sigma_x=(1.0,), sigma_f=(1.0,), functions=2, sequences=2, points=6)

PICTURES: Final[Mapping[str, Picture]] = {
    "associative_recall": Picture(
        lambda _: AssociativeRecall(pairs=4, queries=3, power=1.0, **_SMALL_PAIRS), _query_panels(_PAIRS), _QUERIES
    ),
    "distillation": Picture(
        EXAMPLES["distillation"],  # type: ignore[arg-type]
        _distillation_panels,
        {"odd": "teacher", "mark": "student"},
        "two predictions of one token and their divergence",
    ),
    "grammar": Picture(
        lambda _: Grammar(context=16, nouns=9, verbs=9, names=9),
        _grammar_panels,
        {**_NEXT, "odd": "a subject and the verb that agrees with it"},
    ),
    "induction": Picture(
        lambda _: Induction(context=20, span=4, symbols=26, evaluation=_LENGTHS), _query_panels(), _QUERIES
    ),
    "linear_functions": Picture(lambda _: LinearFunctions(points=6, evaluation=_SHIFTS), _linear_panels, _IN_LOSS),
    "masked_text": Picture(
        lambda folder: MaskedText(
            source=str(folder / "text.jsonl"), context=WINDOW, validation_share=0.8, validation_sentences=3
        ),
        lambda task: [panel for at in range(3) for panel in _window_panels(f"sentence {at + 1}", task, at)],
        {"mark": "scored: the tokens that are hidden or replaced"},
    ),
    "multi_query_recall": Picture(
        lambda _: MultiQueryRecall(context=20, pairs=4, symbols=20, power=1.0, blanks=True, evaluation=_LENGTHS),
        _query_panels(_HALVES),
        _QUERIES,
    ),
    "needle": Picture(lambda _: Needle(distractors=2, **_SMALL_PAIRS), _query_panels(_PAIRS), _QUERIES),
    "quantifiers": Picture(
        lambda _: Quantifiers(points=6, evaluation=LengthGrid(lengths=(6,), sigma=(1.0,), sequences=1)),
        _quantifier_panels,
        _IN_LOSS,
    ),
    "selective_copy": Picture(
        lambda _: SelectiveCopy(context=20, copied=4, evaluation=_LENGTHS),
        _query_panels(": letters are contents, · noise, ? the mark"),
        _QUERIES,
    ),
    "text": Picture(
        lambda folder: Text(source=str(folder / "text.jsonl"), context=WINDOW, validation_windows=1),
        _text_panels,
        {"mark": "scored: every next token that is shown here"},
    ),
}


def draw_task(kind: str, folder: Path) -> str:
    """Draw the picture of a task as SVG. `folder` holds the fixture files."""
    picture = PICTURES[kind]
    return draw_picture(f"{kind}: {picture.title}", picture.make_panels(picture.make_task(folder)), picture.legend)
