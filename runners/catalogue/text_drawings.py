"""What is drawn of tasks that read text: the windows and sentences that they make of a few lines, token by token."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from runners.catalogue.panels import Cell, Columns, Map, Panel, Row, Strip, number
from runners.tasks import Batch, Task, Text
from runners.tasks.distillation.distillation import Distillation, divergence
from runners.tasks.distillation.finished_trial import Architecture, FinishedTrial
from runners.tasks.synthetic.query_task import UNASKED
from runners.tasks.text.encoder import Encoder, Encodes
from runners.tasks.text.interventions import FixedToken
from runners.tasks.text.masked_text import MaskedText
from variants import Operator, Placement, gpt2

WINDOW = 20
"""Tokens of a window that is drawn."""

_SIGNS = {"0x20": "␣", "0x0a": "⏎", "<end>": "⊣", "<mask>": "▢"}


def piece(encoder: Encoder, token: int) -> str:
    """A token in a cell."""
    found = encoder.piece(token)
    return _SIGNS.get(found, found)


def small_text(folder: Path) -> Text:
    """The text that is drawn."""
    return Text(source=str(folder / "text.jsonl"), context=WINDOW, validation_windows=1)


def small_sentences(folder: Path) -> MaskedText:
    """The sentences that are drawn."""
    return MaskedText(source=str(folder / "text.jsonl"), context=WINDOW, validation_share=0.8, validation_sentences=3)


def text_panels(task: Task) -> list[Panel]:
    """A window as it is, with a prefix, with a token that is fixed, and with borders between documents."""
    assert isinstance(task, Text)
    shown: Mapping[str, Text] = {
        "as it is": task,
        "prefix=8: the loss begins with the token after them": task.changed(prefix=8),
        "intervention=FixedToken(position=3), the token that hides others": task.changed(
            intervention=FixedToken(position=3)
        ),
        'packing="documents": a query sees its own document only (the map below)': task.changed(packing="documents"),
    }
    return [panel for heading, one in shown.items() for panel in window_panels(heading, one, one.open().examples(1))]


def window_panels(heading: str, task: Task, batch: Batch) -> list[Panel]:
    """The first sequence of a batch: what is read, what is wanted where, and what is hidden where something is."""
    assert isinstance(task, Encodes)
    encoder = task.encoder()
    targets, real = batch.targets[0].tolist(), _real(batch)
    read = [
        Cell(piece(encoder, token), "" if there else "dim")
        for token, there in zip(batch.inputs[0].tolist(), real, strict=True)
    ]
    wanted = [None if target == UNASKED else Cell(piece(encoder, target), "mark") for target in targets]
    found: list[Panel] = [Strip(heading, [Row("input", read), Row("target", wanted)], size=27)]
    if batch.visible is not None and batch.visible.shape[-2] > 1:
        seen = batch.visible[0] & torch.ones_like(batch.visible[0]).tril()
        found.append(Columns("", [Map("visible: query down, key across", seen.float().tolist())]))
    return found


def _real(batch: Batch) -> list[bool]:
    """Which tokens are no padding: keys that are hidden from every query are."""
    length = batch.inputs.shape[1]
    if batch.visible is None:
        return [True] * length
    return batch.visible[0].expand(length, length).any(0).tolist()


def sentence_panels(task: Task) -> list[Panel]:
    """Sentences with what is hidden of them."""
    batch = task.open().examples(3)
    found: list[Panel] = []
    for at in range(len(batch.inputs)):
        visible = None if batch.visible is None else batch.visible[at : at + 1]
        one = Batch(batch.inputs[at : at + 1], batch.targets[at : at + 1], visible)
        found += window_panels(f"sentence {at + 1}", task, one)
    return found


def taught(folder: Path) -> Distillation:
    """A spec of distillation whose teacher need not be there."""
    known = Architecture(
        model=gpt2(layers=2, heads=4, width=64), operator=Operator(), placement=Placement(), vocabulary=256
    )
    teacher = FinishedTrial(
        campaign=str(folder / "campaigns/teachers"),
        trial="0123456789abcdef" * 2,
        content_hash="0" * 32,
        architecture=known,
    )
    return Distillation(task=Text(source=str(folder / "text.jsonl")), teacher=teacher, temperature=2.0)


_TEACHER = (3.0, 2.0, 1.0, 0.0, -1.0, -2.0)
_STUDENT = (1.0, 2.0, 2.0, 0.0, 0.0, -1.0)


def teaching_panels(task: Task) -> list[Panel]:
    """The divergence of one token's predictions, over a vocabulary of six, at two temperatures."""
    del task
    teacher, student = (torch.tensor([[logits]], dtype=torch.float64) for logits in (_TEACHER, _STUDENT))
    found: list[Panel] = []
    for tau in (1.0, 4.0):
        p, q = ((each / tau).softmax(-1)[0, 0] for each in (teacher, student))
        kl, entropy = (float(each[0, 0]) for each in divergence(student, teacher, tau))
        rows = [
            Row("", [Cell(f"token {at + 1}", "dim") for at in range(len(p))]),
            Row("teacher p", _cells(p, "odd")),
            Row("student q", _cells(q, "mark")),
            Row("p log(p/q)", _cells(p * (p / q).log(), "")),
        ]
        told = f"temperature {tau:g}: kl, the sum, {number(kl)} nats; soft cross-entropy {number(kl + entropy)} nats"
        found.append(Strip(told, rows, size=64, left=88))
    return found


def _cells(values: Tensor, style: str) -> Sequence[Cell]:
    return [Cell(f"{value:.3f}", style) for value in values.tolist()]
