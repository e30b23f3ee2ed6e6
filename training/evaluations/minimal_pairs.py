"""Minimal pairs: whether a model prefers the grammatical one of two sentences that differ in one point.

    holistic   -1/(n+2) sum_i log p(w_i | the whole sentence)      over all n tokens and both ends, nothing masked; less
    masked     sum_i log p(w_i | all others, w_i masked)           over the n tokens, one pass each; more is better
    causal     sum_i log p(w_i | those before)                     over the n tokens; more is better
    accuracy = share of pairs whose grammatical sentence is strictly better

Source: Zorro (Huebner et al. 2021) and its scoring code UnMasked. Scaled Signed Averaging (paper 003) uses it in table
3; its "MLM metric" is `masked`, the pseudo-log-likelihood of Salazar et al. (2020). The file format is Zorro's: odd
lines are ungrammatical and even ones grammatical. UnMasked keeps copies in the other order (`first`). Zorro tosses a
coin at a tie and UnMasked counts it as wrong. Here it is wrong, and ties have their own row. UnMasked's page says that
holistic scores are sums; its code takes means. The holistic score shows the model the token that it scores. The model
has learned to use that only if training put another token in its place.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, final

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from ablate.grid.errors import SpecError
from ablate.grid.spec import OutsideKey
from ablate.training.evaluations.evaluation import Evaluation, Evaluator, over_sets, slug
from ablate.training.evaluations.likelihood import costs, encoding
from ablate.training.tasks.task import UNSCORED, Batch, Items, Measurements, Predict, Task, over_items
from ablate.training.tasks.text.corpus import content_hash, decode
from ablate.training.tasks.text.encoder import Encoder, Encodes, require_spelled
from ablate.training.tasks.text.masked_text import Sentences, inside
from ablate.training.tasks.user_files import absolute_path, cache_by_file, require_hash
from ablate.variants.model.foreign import AnyBackbone

_TOKENS = 1 << 14
"""Tokens per forward pass."""


Name = Annotated[str, Field(pattern="^[^\\W_A-Z]+(_[^\\W_A-Z]+)*$")]


class Pairs(NamedTuple):
    """The content of one file; each pair is an odd line and the following even line."""

    content_hash: str
    pairs: tuple[tuple[str, str], ...]


@cache_by_file(entries=256)
def read_pairs(path: Path) -> Pairs:
    """Read the pairs of a file, once per process; SpecError if it is not UTF-8, or its lines are no pairs."""
    data = path.read_bytes()
    text = decode(data, path)
    lines = [line.strip() for line in text.strip().split("\n")] if text.strip() else []
    if not lines or len(lines) % 2:
        raise SpecError(
            f"{path} has {len(lines)} lines, and minimal pairs are two lines each; complete or remove the last"
        )
    for number, line in enumerate(lines, start=1):
        if not line:
            raise SpecError(f"{path}, line {number} is empty, and each line of minimal pairs is a sentence; remove it")
    pairs = tuple(zip(lines[::2], lines[1::2], strict=True))
    for number, (odd, even) in enumerate(pairs, start=1):
        if odd.lower() == even.lower():
            raise SpecError(f"{path}, pair {number} has {odd!r} twice, or with other capitals; remove it")
    return Pairs(content_hash(data), pairs)


def read_paradigms(source: Path, names: Sequence[str]) -> Mapping[str, Pairs]:
    """Read the pairs of the paradigms `names`, else of all; SpecError if one is missing or two have one name."""
    files: dict[str, Path] = {}
    for path in _list_files(source):
        name = slug(path.stem)
        if not name:
            raise SpecError(f"{path} has no letter or digit in its name, which names a paradigm; rename it")
        if name in files:
            raise SpecError(f"{files[name]} and {path} are both the paradigm {name!r}; rename one")
        files[name] = path
    for name in names:
        if name not in files:
            raise SpecError(f"there is no paradigm {name!r} in {source}; there are {', '.join(sorted(files))}")
    return {name: read_pairs(files[name]) for name in names or sorted(files)}


def _list_files(source: Path) -> list[Path]:
    """List a .txt file, or those of a folder; SpecError if there are none."""
    if not source.exists():
        raise SpecError(f"there are no minimal pairs {source}; give a .txt file or a folder of these")
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    files = [path for path in files if path.suffix.lower() == ".txt" and path.is_file()]
    if not files:
        raise SpecError(f"{source} has no minimal pairs; give a .txt file or a folder of these")
    return files


class MinimalPairs(Evaluation):
    """Accuracy on every paradigm of a file or a folder of files, and the mean over them.

    A spec with the hash of the files works without them until it runs.
    """

    units: ClassVar[Mapping[str, str]] = dict.fromkeys(("minimal_pairs", "minimal_pairs_ties"), "share of 1")
    needs: ClassVar[tuple[type, str]] = (Encodes, "a task of text")
    kind: Literal["minimal_pairs"] = "minimal_pairs"
    source: Annotated[str, OutsideKey()]
    """A .txt file or a folder of these; a file is a paradigm."""
    content_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{32}$")] = None
    """Hash of all files; filled in when the spec is built."""
    paradigms: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    """Paradigms, in lower case with `_` between words; None is all, by name once the spec is built."""
    first: Literal["ungrammatical", "grammatical"] = "ungrammatical"
    """The kind of the first line of a pair; it is ungrammatical in Zorro's files."""
    scoring: Literal["masked", "holistic", "causal"] = "masked"
    """The score of a sentence: "masked" or "holistic" for encoders, "causal" for causal models."""
    lower_case: bool = False
    """True shows sentences in lower case, for models of text without capitals."""
    longest: Annotated[int, Field(ge=3)] = 128
    """Most positions of a sentence, with both ends for an encoder. Longer sentences are refused."""

    @model_validator(mode="after")
    def _matches_the_files(self) -> Self:
        object.__setattr__(self, "source", absolute_path("source", self.source))
        if self.paradigms is not None:
            self.set_normal_form(paradigms=tuple(sorted(set(self.paradigms))))
            if self.content_hash is not None and not Path(self.source).exists():
                return self
        try:
            files = self.read()
            self.set_normal_form(content_hash=_hash(files), paradigms=tuple(files))
        except SpecError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return self.paradigms or ()

    def read(self) -> Mapping[str, Pairs]:
        """Read all paradigms by name; SpecError if the files have another hash."""
        files = read_paradigms(Path(self.source), self.names)
        if self.content_hash is not None:
            require_hash(self.content_hash, _hash(files), self.source)
        return files

    @property
    def length(self) -> int:
        return self.longest

    def check(self, task: Task, model: AnyBackbone) -> None:
        super().check(task, model)
        require_spelled(task, self.label)
        if model.causal != (self.scoring == "causal"):
            fits = "'causal'" if model.causal else "'masked' or 'holistic'"
            raise ValueError(f"scoring={self.scoring!r} does not fit such a model; minimal_pairs needs scoring={fits}")
        if self.scoring == "causal" and task.unscored:
            raise ValueError(
                f"{task.label!r} leaves {task.unscored} tokens out of its loss, and minimal_pairs scores all; leave it "
                "out of evaluations"
            )

    def measures(self) -> Mapping[str, Sequence[Mapping[str, float]]]:
        kinds = ("minimal_pairs", "minimal_pairs_ties")
        by_paradigm = [f"{kind}.{name}" for kind in kinds for name in self.names]
        return {name: [{}] for name in (*kinds, "chance.minimal_pairs", *by_paradigm)}

    def open(self, task: Task) -> "MinimalPairsEvaluator":
        assert isinstance(task, Encodes)
        return MinimalPairsEvaluator(self, task.encoder(), self.read())


def _hash(files: Mapping[str, Pairs]) -> str:
    return content_hash(*(each.content_hash for each in files.values()))


@final
class MinimalPairsEvaluator(Evaluator):
    def __init__(self, spec: MinimalPairs, encoder: Encoder, files: Mapping[str, Pairs]) -> None:
        if spec.scoring == "masked" and encoder.mask is None:
            raise SpecError("the task's tokenizer has no mask token, which scoring='masked' needs; use 'holistic'")
        self._spec, self._encoder, self._files = spec, encoder, files
        order = (1, 0) if spec.first == "ungrammatical" else (0, 1)
        self._paradigms = {
            name: [[self._ids(name, pair[place], at) for at, pair in enumerate(each.pairs, 1)] for place in order]
            for name, each in files.items()
        }
        """The grammatical sentences of each paradigm, and the others, as token ids."""

    @property
    def record(self) -> Mapping[str, Any]:
        return {
            "source": self._spec.source,
            "content_hash": self._spec.content_hash,
            "files": {name: each.content_hash for name, each in self._files.items()},
            "pairs": {name: len(each.pairs) for name, each in self._files.items()},
        }

    def evaluate(self, predict: Predict) -> Iterator[Measurements | Items]:
        """Yield `minimal_pairs.<paradigm>`, the accuracy, and `minimal_pairs_ties.<paradigm>`, the share of ties.

        Names without a paradigm are the mean over paradigms, whatever their sizes. Items are pairs, named by their
        numbers in the file. `chance.minimal_pairs` is 0.5.
        """
        right, ties = [], []
        for name, (grammatical, other) in self._paradigms.items():
            both = self.scores(predict, [*grammatical, *other])
            good, bad = both.tensor_split(2)
            better = (good > bad).double()  # NaN is never better
            right.append(over_items(f"minimal_pairs.{name}", better))
            ties.append(over_items(f"minimal_pairs_ties.{name}", (good == bad).double()))
            yield right[-1]
            yield ties[-1]
            numbers = [str(number) for number in range(1, len(better) + 1)]
            yield Items(right[-1].name, {}, numbers, better.tolist())
        yield over_sets("minimal_pairs", right)
        yield over_sets("minimal_pairs_ties", ties)
        yield Measurements("chance.minimal_pairs", 0.5, {}, sum(each.items for each in right), None)

    def scores(self, predict: Predict, sentences: Sequence[Sequence[int]]) -> Float[Tensor, " sentences"]:
        """Score sentences, more is better: float64 on the CPU."""
        padded = Sentences([np.array(each) for each in sentences])
        scores = torch.zeros(len(sentences), dtype=torch.float64)
        for group in self._groups([len(each) for each in sentences]):
            batch, owner = self._make_question(padded, group)
            losses = costs(predict, batch, self._encoder.vocabulary).sum(1)
            scores.index_add_(0, group[owner], -losses)
        return scores / (padded.sizes + 2) if self._spec.scoring == "holistic" else scores

    def _ids(self, name: str, sentence: str, pair: int) -> Sequence[int]:
        where = f"{name} in {self._spec.source}, pair {pair}"
        with encoding(f"{where}, {sentence!r},"):
            ids = self._encoder.encode(sentence.lower() if self._spec.lower_case else sentence).ids
        if not ids:
            raise SpecError(f"{where} has {sentence!r} without tokens; remove it")
        taken = len(ids) + (0 if self._spec.scoring == "causal" else 2)
        if taken > self._spec.longest:
            raise SpecError(
                f"minimal_pairs.longest={self._spec.longest} is less than the {taken} positions of {where}, "
                f"{sentence!r}; raise longest, and the model's positions with it, or remove the pair"
            )
        return ids

    def _groups(self, sizes: Sequence[int]) -> Iterator[Tensor]:
        """Yield groups of sentences of one size, hence without padding, of about `_TOKENS` tokens in all rows."""
        group: list[int] = []
        rows = 0
        for sentence in sorted(range(len(sizes)), key=sizes.__getitem__):
            more = sizes[sentence] if self._spec.scoring == "masked" else 1
            full = (rows + more) * (sizes[sentence] + 2) > _TOKENS
            if group and (full or sizes[sentence] != sizes[group[0]]):
                yield torch.tensor(group)
                group, rows = [], 0
            group.append(sentence)
            rows += more
        if group:
            yield torch.tensor(group)

    def _make_question(
        self, sentences: Sentences, group: Int[Tensor, " sentences"]
    ) -> tuple[Batch, Int[Tensor, " rows"]]:
        """Make the input of a model; return also the place in `group` of the sentence of each sequence."""
        ids, sizes = sentences.frame(group, self._encoder.end, int(sentences.sizes[group[0]]) + 2)
        column, each = torch.arange(ids.shape[1]), torch.arange(len(group))
        if self._spec.scoring == "causal":
            follows = torch.where(column < sizes, ids.roll(-1, 1), UNSCORED)
            return Batch(ids[:, :-2], follows[:, :-2]), each
        visible = column < sizes + 2
        if self._spec.scoring == "holistic":
            return Batch(ids, torch.where(visible, ids, UNSCORED), visible[:, None]), each
        assert self._encoder.mask is not None
        owner, place = inside(column, sizes).nonzero(as_tuple=True)
        hidden = column == place[:, None]
        inputs, targets = ids[owner].masked_fill(hidden, self._encoder.mask), torch.where(hidden, ids[owner], UNSCORED)
        return Batch(inputs, targets, visible[owner][:, None]), owner
