"""Language modelling on bytes: a model reads text and predicts the next byte, vocabulary 256.

    loss = -mean log p(next byte)        nats per byte, over every position

The text is the documentation inside Python, or files of the user's own. Its content hash is part of the spec, so a
trial's key says what was read and not where it lay: the hash is filled in when the spec is built, a spec that names
another hash than the text has is refused, and the path is outside the key.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, final

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from torch.nn import functional as F

from grid.errors import SpecError
from grid.spec import OutsideKey
from runners.tasks.corpus import Corpus, Origin, split
from runners.tasks.draws import CPU, Draws
from runners.tasks.local_files import local_files
from runners.tasks.python_documentation import python_documentation
from runners.tasks.task import Batch, Data, Measured, Predict, Task, in_chunks, over_items, spread_evenly
from variants import Tokens

VOCABULARY = 256
_ROWS = 32
"""Windows per forward pass of an evaluation."""


class Text(Task):
    """Bytes of text, cut into windows of `context` predictions.

    `source` is a .txt or .jsonl file or a folder of these; None is the documentation of the Python that runs. About
    `validation_share` of it, whole documents, is only validated on: `validation_windows` windows, evenly spread, the
    same for all models and seeds (fewer where they would overlap).
    """

    kind: Literal["text"] = "text"
    batch: PositiveInt = 32
    context: PositiveInt = 128
    source: Annotated[str | None, OutsideKey()] = None
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    validation_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    validation_windows: PositiveInt = 256

    @model_validator(mode="after")
    def _is_what_lies_there(self) -> Self:
        """A spec that names its content can be read where the text is not; one that does not, looks."""
        if self.source is not None:
            object.__setattr__(self, "source", str(Path(self.source).expanduser().resolve()))
        if self.content_hash is not None and self.source is not None and not Path(self.source).exists():
            return self
        try:
            found = self._origin().content_hash
            if self.content_hash is None:
                object.__setattr__(self, "content_hash", found)
            self._require(found)
            if self.source is not None:
                self._corpus()
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def inputs(self) -> Tokens:
        return Tokens(VOCABULARY)

    @property
    def length(self) -> int:
        return self.context

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        return {"validation_loss": [{}], "bits_per_byte": [{}]}

    def open(self) -> "TextData":
        origin = self._origin()
        self._require(origin.content_hash)
        return TextData(self, origin, self._corpus())

    def windows(self, length: int, count: int) -> Batch:
        """At most `count` windows of `length` predictions of the validation text, evenly spread, on the CPU.

        Raises:
            SpecError: the validation text is shorter than that.
        """
        return self.open().windows(length, count)

    def _origin(self) -> Origin:
        return python_documentation() if self.source is None else local_files(Path(self.source))

    def _require(self, found: str) -> None:
        if self.content_hash != found:
            raise SpecError(
                f"content_hash names the text a trial learns from; it is {self.content_hash} and "
                f"{self._origin().name} has {found}; restore that text, or leave content_hash out to take it as it is"
            )

    def _corpus(self) -> Corpus:
        corpus = _corpus(self.source, str(self.content_hash), self.validation_share)
        for part, text in corpus._asdict().items():
            if len(text) <= self.context:
                raise SpecError(
                    f"a window is {self.context} predictions and one byte more; the {part} part of "
                    f"{self._origin().name} has {len(text)} bytes; shorten context or give more text"
                )
        return corpus


@lru_cache(maxsize=2)
def _corpus(source: str | None, content_hash: str, share: float) -> Corpus:
    del content_hash  # other content is another entry
    origin = python_documentation() if source is None else local_files(Path(source))
    return split(origin.documents(), share)


@final
class TextData(Data):
    """Windows into a corpus."""

    def __init__(self, task: Text, origin: Origin, corpus: Corpus) -> None:
        self._task, self._origin, self._corpus = task, origin, corpus
        self._train = torch.frombuffer(bytearray(corpus.train), dtype=torch.uint8)
        self._window = torch.arange(task.context + 1)

    @property
    def record(self) -> Mapping[str, Any]:
        return {
            "source": self._origin.name,
            "content_hash": self._origin.content_hash,
            "train_bytes": len(self._corpus.train),
            "validation_bytes": len(self._corpus.validation),
            "files": dict(self._origin.files),
        }

    @property
    def constant_loss(self) -> float:
        """Every byte equally likely."""
        return math.log(VOCABULARY)

    def batch(self, seed: int, step: int, device: torch.device = CPU) -> Batch:
        """Windows at random places of the training text: ids [B, T] and the ids that follow them, int64."""
        if self._train.device != device:
            self._train, self._window = self._train.to(device), self._window.to(device)
        places = len(self._train) - len(self._window) + 1
        starts = Draws(seed, "data", step, device=device).below(places, self._task.batch, 1)
        return _predictions(self._train[starts + self._window])

    def examples(self, count: int) -> Batch:
        """The first windows that are validated on."""
        return self._validated().first(count)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Nats per byte; outputs [B, T, 256], targets [B, T]."""
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def evaluate(self, predict: Predict) -> Iterator[Measured]:
        """`validation_loss` (nats per byte) and `bits_per_byte`; items are windows."""
        inputs, targets, _ = self._validated()
        losses = torch.empty(len(inputs), dtype=torch.float64)
        for rows, outputs in in_chunks(predict, inputs, _ROWS):
            wanted = targets[rows].to(outputs.device)
            each = F.cross_entropy(outputs.float().transpose(1, 2), wanted, reduction="none")
            losses[rows] = each.to("cpu", torch.float64).mean(1)
        yield over_items("validation_loss", losses)
        yield over_items("bits_per_byte", losses / math.log(2))

    def _validated(self) -> Batch:
        return self.windows(self._task.context, self._task.validation_windows)

    def windows(self, length: int, count: int) -> Batch:
        """As `Text.windows`."""
        text = torch.frombuffer(bytearray(self._corpus.validation), dtype=torch.uint8)
        if len(text) <= length:
            raise SpecError(
                f"a window is {length} predictions and one byte more; the validation part of {self._origin.name} has "
                f"{len(text)} bytes; shorten the window or give more text"
            )
        starts = spread_evenly(min(count, (len(text) - 1) // length), len(text) - length - 1)
        return _predictions(text[starts[:, None] + torch.arange(length + 1)])


def _predictions(windows: Tensor) -> Batch:
    ids = windows.long()
    return Batch(ids[:, :-1], ids[:, 1:])
