"""What is drawn of each task: a small one of its kind, and its sequences as the task itself makes them.

A new kind needs an entry in `TASKS`: how a spec of it is written, a small one to draw, and how.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from grid.errors import SpecError
from runners.catalogue.panels import Cell, Panel, Row, Strip, picture
from runners.catalogue.text_drawings import (
    sentence_panels,
    small_sentences,
    small_text,
    taught,
    teaching_panels,
    text_panels,
)
from runners.tasks import (
    AskedLengths,
    AssociativeRecall,
    Grammar,
    Induction,
    LengthGrid,
    LinearFunctions,
    Needle,
    Quantifiers,
    SelectiveCopy,
    ShiftGrid,
    Task,
    Text,
)
from runners.tasks.synthetic.grammar_sentences import STOP
from runners.tasks.synthetic.query_task import UNASKED
from runners.tasks.text.masked_text import MaskedText


class Drawing(NamedTuple):
    """How a kind is shown."""

    write: Callable[[Path], Task]
    """A spec to copy; files are in the folder."""
    small: Callable[[Path], Task]
    """The one that is drawn."""
    panels: Callable[[Task], list[Panel]]
    legend: Mapping[str, str]
    title: str = "what a model reads, and what it has to say where"


_IN_LOSS = {"mark": "in the loss: what the model has to say here; mean errors leave the first three out"}
_ASKED = {"mark": "asked: only here is the model scored", "odd": "where the answer stands"}
_NEXT = {"mark": "scored: every next token"}


def _linear(task: Task) -> list[Panel]:
    found: list[Panel] = []
    batch = task.open().examples(2)
    for number, (inputs, targets) in enumerate(zip(batch.inputs[..., 0], batch.targets, strict=True), start=1):
        names = [f"f(x{at // 2 + 1})" if at % 2 else f"x{at // 2 + 1}" for at in range(len(inputs))]
        answers = {2 * at: f"{value:.2f}" for at, value in enumerate(targets.tolist())}
        found.append(_scalars(f"sequence {number}, a function of its own", names, inputs, answers))
    return found


def _quantified(task: Task) -> list[Panel]:
    found: list[Panel] = []
    for labels, step in (("shown", 2), ("hidden", 1)):
        batch = task.changed(labels=labels).open().examples(1)
        inputs, truth = batch.inputs[0, :, 0], batch.targets[0].tolist()
        names = [f"y{at // 2 + 1}" if at % step else f"x{at // step + 1}" for at in range(len(inputs))]
        answers = {step * at: "yes" if value else "no" for at, value in enumerate(truth)}
        heading = f'quantifier="every", labels="{labels}": are all numbers so far positive?'
        found.append(_scalars(heading, names, inputs, answers))
    return found


def _scalars(heading: str, names: Sequence[str], inputs: Tensor, answers: Mapping[int, str]) -> Strip:
    read = [Cell(f"{value:.2f}") for value in inputs.tolist()]
    wanted = [Cell(answers[at], "mark") if at in answers else None for at in range(len(read))]
    rows = [Row("", [Cell(name, "dim") for name in names]), Row("input", read), Row("answer", wanted)]
    return Strip(heading, rows, size=49)


def _asked(name: Callable[[Task, int], str], signs: str) -> Callable[[Task], list[Panel]]:
    """Sequences whose marked places ask, each with an arc from where its answer stands; what signs mean is told."""

    def panels(task: Task) -> list[Panel]:
        batch = task.open().examples(2)
        return [
            _questions(f"sequence {number}{signs}", [name(task, token) for token in inputs], inputs, targets, task)
            for number, (inputs, targets) in enumerate(
                zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True), start=1
            )
        ]

    return panels


def _questions(heading: str, names: Sequence[str], inputs: Sequence[int], targets: Sequence[int], task: Task) -> Strip:
    asked = [at for at, target in enumerate(targets) if target != UNASKED]
    if isinstance(task, SelectiveCopy):
        sources = [at for at, token in enumerate(inputs) if token < task.contents]
    else:
        sources = [inputs.index(targets[at]) for at in asked]
    styles = dict.fromkeys(sources, "odd") | dict.fromkeys(asked, "mark")
    read = [Cell(name, styles.get(at, "")) for at, name in enumerate(names)]
    of_token = dict(zip(inputs, names, strict=True))
    wanted = [Cell(of_token[targets[at]], "mark") if at in asked else None for at in range(len(names))]
    arcs = list(zip(sources, asked, strict=True))
    return Strip(heading, [Row("input", read), Row("answer", wanted)], size=27, arcs=arcs)


def _pair_token(task: Task, token: int) -> str:
    assert isinstance(task, AssociativeRecall | Needle)
    if token < task.keys:
        return f"k{token}"
    return f"v{token - task.keys}" if token < task.keys + task.values else "·"


def _letter(task: Task, token: int) -> str:
    if isinstance(task, SelectiveCopy) and token >= task.contents:
        return "·" if token == task.contents else "?"
    return chr(ord("a") + token)


def _grammar(task: Task) -> list[Panel]:
    assert isinstance(task, Grammar)
    batch = task.open().examples(2)
    found: list[Panel] = []
    for number, (inputs, targets) in enumerate(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True), 1):
        names = [_word(task, token) for token in inputs]
        agreeing = [at for at, name in enumerate(names) if name[0] == "v"]
        subjects = [1 + max(before for before in range(at) if names[before] == "stop") for at in agreeing]
        styles = dict.fromkeys((*agreeing, *subjects), "odd")
        rows = [
            Row("input", [Cell(name, styles.get(at, "")) for at, name in enumerate(names)]),
            Row("target", [Cell(_word(task, token), "mark") for token in targets]),
        ]
        arcs = list(zip(subjects, agreeing, strict=True))
        found.append(
            Strip(f"window {number}: p preposition, n noun, v verb, N name; s plural", rows, size=33, arcs=arcs)
        )
    return found


def _word(task: Grammar, token: int) -> str:
    """p preposition, n noun, v verb, N name; a plural ends with s."""
    words = task.words
    if token == STOP:
        return "stop"
    if token < words.noun:
        return f"p{token}"
    if token >= words.name:
        return f"N{token - words.name + 1}"
    kind, lemmas, first = ("n", words.nouns, words.noun) if token < words.verb else ("v", words.verbs, words.verb)
    lemma = token - first
    return f"{kind}{lemma % lemmas + 1}{'s' if lemma >= lemmas else ''}"


def _pairs(length: int) -> Mapping[str, Any]:
    """The vocabulary of pairs whose tokens fit their cells."""
    return {"context": length, "keys": 9, "values": 9, "filler": 4, "evaluation": AskedLengths(lengths=(length,))}


_SMALL_GRID = ShiftGrid(sigma_x=(1.0,), sigma_f=(1.0,), functions=2, sequences=2, points=6)
_SMALL_LENGTHS = LengthGrid(lengths=(6,), sigma=(1.0,), sequences=1)

TASKS: Mapping[str, Drawing] = {
    "associative_recall": Drawing(
        write=lambda _: AssociativeRecall(),
        small=lambda _: AssociativeRecall(pairs=4, queries=3, power=1.0, **_pairs(20)),
        panels=_asked(_pair_token, ": k a key, v a value, · filler"),
        legend=_ASKED,
    ),
    "distillation": Drawing(
        write=taught,
        small=taught,
        panels=teaching_panels,
        legend={"odd": "teacher", "mark": "student"},
        title="two predictions of one token, and how far apart they are",
    ),
    "grammar": Drawing(
        write=lambda _: Grammar(),
        small=lambda _: Grammar(context=16, nouns=9, verbs=9, names=9),
        panels=_grammar,
        legend={**_NEXT, "odd": "a subject and its verb, which agrees with it"},
    ),
    "induction": Drawing(
        write=lambda _: Induction(),
        small=lambda _: Induction(context=20, span=4, symbols=26, evaluation=AskedLengths(lengths=(20,))),
        panels=_asked(_letter, ""),
        legend=_ASKED,
    ),
    "linear_functions": Drawing(
        write=lambda _: LinearFunctions(),
        small=lambda _: LinearFunctions(points=6, evaluation=_SMALL_GRID),
        panels=_linear,
        legend=_IN_LOSS,
    ),
    "masked_text": Drawing(
        write=lambda folder: MaskedText(source=str(folder / "text.jsonl")),
        small=small_sentences,
        panels=sentence_panels,
        legend={"mark": "scored: what is hidden here, or replaced"},
    ),
    "needle": Drawing(
        write=lambda _: Needle(),
        small=lambda _: Needle(distractors=2, **_pairs(20)),
        panels=_asked(_pair_token, ": k a key, v a value, · filler"),
        legend=_ASKED,
    ),
    "quantifiers": Drawing(
        write=lambda _: Quantifiers(),
        small=lambda _: Quantifiers(points=6, evaluation=_SMALL_LENGTHS),
        panels=_quantified,
        legend=_IN_LOSS,
    ),
    "selective_copy": Drawing(
        write=lambda _: SelectiveCopy(),
        small=lambda _: SelectiveCopy(context=20, copied=4, evaluation=AskedLengths(lengths=(20,))),
        panels=_asked(_letter, ": letters are contents, · noise, ? the mark"),
        legend=_ASKED,
    ),
    "text": Drawing(
        write=lambda folder: Text(source=str(folder / "text.jsonl")),
        small=small_text,
        panels=text_panels,
        legend={"mark": "scored: every next token that is shown here"},
    ),
}


def drawing_of(kind: str) -> Drawing:
    """How a kind of task is shown.

    Raises:
        SpecError: nobody has said.
    """
    if kind not in TASKS:
        raise SpecError(f"every task has a picture; describe that of {kind!r} in runners/catalogue/task_drawings.py")
    return TASKS[kind]


def task_picture(kind: str, folder: Path) -> str:
    """The SVG of a kind of task; `materials` are in the folder."""
    drawing = drawing_of(kind)
    small = drawing.small(folder)
    return picture(f"{kind}: {drawing.title}", drawing.panels(small), drawing.legend)
