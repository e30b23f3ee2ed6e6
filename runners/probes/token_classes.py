"""Attention by class of the key token, as shares of all classes.

    a_c = mean over queries of sum_(j of class c) w_ij,  then over sequences
    share_c = a_c / sum_c a_c            normalise="shares"
    share_c = e^a_c / sum_c e^a_c        normalise="softmax"

"Integral Transformer", figure 3, whose text says both: the softmax of four shares is flatter than they are. Weights are
signed; if they sum to 0 or less, there are no shares. Sink tokens of the model count neither as queries nor as keys.
Tokens without a class do not count as keys. The class of a token comes from the task (`Classified`), from its byte, or
from its word (`word_classes`). Rows name the source; rows of the softmax are named `token_class_softmax`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from runners.probes.attention_rows import AttentionRows, by_head, mean
from runners.probes.probe import NOWHERE, Found, Probe, ProbeInput, RowInfo
from runners.probes.word_classes import BACKENDS, CLASSES, Backend, classes, require_spacy
from runners.tasks.task import Task
from runners.tasks.text.encoder import Encodes
from variants import Backbone, Operator, Tokens
from variants.model.transformer import LayerTrace


@runtime_checkable
class Classified(Protocol):
    """A task that knows the classes of its tokens."""

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes, lower-case words joined by `_`, by their numbers."""

    def token_classes(self, inputs: Tensor) -> Tensor:
        """Return the class of each token of ids [B, T], int64 on their device; -1 for no class."""


BYTES = ("letter", "digit", "space", "punctuation", "beyond_ascii")
"""Classes of bytes. Control characters that are no white space have none."""


class TokenClasses(Probe):
    """`token_class.<by>.<class>` by head: the share of its attention that goes to keys of a class.

    `token_class_softmax.<by>.<class>` with normalise="softmax".
    """

    rows: ClassVar[tuple[RowInfo, ...]] = (
        RowInfo("token_class.BY.CLASS", "share of 1"),
        RowInfo("token_class_softmax.BY.CLASS", "share of 1"),
    )

    kind: Literal["token_classes"] = "token_classes"
    by: Literal["task", "bytes", "closed_class", "spacy"] = "task"
    """The source of the classes: the task, the byte, our list of English function words, or spaCy's tags."""
    normalise: Literal["shares", "softmax"] = "shares"
    """How weights per class become shares."""

    def check(self, task: Task, model: Backbone, operators: Sequence[Operator]) -> None:  # noqa: ARG002
        if self.by == "task" and not isinstance(task, Classified):
            raise ValueError(f"{task.label!r} has no classes of tokens; use by='closed_class' or 'spacy' for text")
        if self.by == "bytes" and task.inputs != Tokens(256):
            raise ValueError(f"by='bytes' takes tokens that are bytes; {task.label!r} has {task.inputs}")
        if self.by in BACKENDS and not isinstance(task, Encodes):
            raise ValueError(
                f"by={self.by!r} takes tokens that are text; those of {task.label!r} are not; use by='task'"
            )
        if self.by == "spacy":
            require_spacy()

    def records(self) -> Sequence[tuple[str, Mapping[str, float]]]:
        return [(f"{self._family}.{self.by}", NOWHERE)]

    @property
    def _family(self) -> str:
        return "token_class" if self.normalise == "shares" else "token_class_softmax"

    def of_layer(self, layer: LayerTrace, seen: ProbeInput) -> Found:
        names, classes = self._classes(seen)
        rows = AttentionRows(layer)
        own = slice(rows.weights.shape[-1] - classes.shape[-1], None)  # without sink tokens
        keys, queries = rows.weights[..., own, own], rows.real[..., own]
        means = []
        for number in range(len(names)):
            weight = (keys * (classes == number)[:, None, None]).sum(-1)
            of_sequence, there = mean(weight, queries, (2,))
            means.append(mean(of_sequence, there, (0,)))
        scores, there = (torch.stack(each) for each in zip(*means, strict=True))
        if self.normalise == "softmax":
            shared = scores.softmax(0)
        else:
            total = scores.sum(0)
            there = there & ~(total <= 0)
            shared = scores / total.masked_fill(total == 0, 1)
        for name, value, is_there in zip(names, shared, there, strict=True):
            yield from by_head(f"{self._family}.{self.by}.{name}", layer.layer, (value, is_there))

    def _classes(self, seen: ProbeInput) -> tuple[Sequence[str], Tensor]:
        inputs = seen.batch.inputs
        if self.by == "bytes":
            return BYTES, _byte_classes(inputs.device)[inputs]
        if self.by != "task":
            numbers = _word_classes(seen.task, self.by, tuple(map(tuple, inputs.tolist())))
            return CLASSES, torch.tensor(numbers, device=inputs.device)
        assert isinstance(seen.task, Classified)
        return seen.task.class_names, seen.task.token_classes(inputs)


@lru_cache(maxsize=4)  # every layer has the same sequences
def _word_classes(task: Task, by: Backend, sequences: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    assert isinstance(task, Encodes)
    encoder = task.encoder()
    return [classes(encoder, ids, by) for ids in sequences]


def _byte_classes(device: torch.device) -> Tensor:
    numbers = [_byte_class(chr(byte)) for byte in range(128)] + [BYTES.index("beyond_ascii")] * 128
    return torch.tensor(numbers, device=device)


def _byte_class(character: str) -> int:
    if character.isspace():
        return BYTES.index("space")
    if not character.isprintable():
        return -1
    return BYTES.index("letter" if character.isalpha() else "digit" if character.isdigit() else "punctuation")
