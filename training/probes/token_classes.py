"""Attention by class of the key token, as shares of all classes.

    a_c = mean over queries of sum_(j of class c) w_ij,  then over sequences
    share_c = a_c / sum_c a_c            normalise="shares"
    share_c = e^a_c / sum_c e^a_c        normalise="softmax"

"Integral Transformer", figure 3, whose text says both: the softmax of four shares is flatter than they are. Weights are
signed; if they sum to 0 or less, there are no shares. Sink tokens of the model count neither as queries nor as keys.
Tokens without a class do not count as keys. The class of a token comes from the task (`Classified`), from its byte, or
from its word. Rows name the source; rows of the softmax are named `token_class_softmax`.

The four classes of words, after figure 3:

    special_punctuation   special tokens and PUNCT
    content               NOUN, VERB, ADJ, ADV, PROPN
    function              DET, ADP, CCONJ, SCONJ, PART, AUX, PRON
    other                 NUM, SYM, X, SPACE, INTJ

"closed_class" uses our list of English function words, after the classes of Universal Dependencies. A word that is
mostly a content word ("like", "need") stands in none of them. Every other word is content; punctuation and digits are
recognised by their characters. It is no tagger: "that" is always a function word, so is the "can" of beans, and words
of other languages are content. "spacy" uses spaCy's English model, as the paper did.

A token has the class of the word with its last visible character. So parts of a word have the class of the word, and
the blank before it does not count. A token of white space is other. If a sequence begins inside a word, the rest of the
word is looked up.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from ablate.grid.errors import EnvironmentProblem
from ablate.training.probes.attention_rows import AttentionRows, by_head, mean
from ablate.training.probes.probe import NOWHERE, Found, Probe, ProbeInput, RowInfo
from ablate.training.tasks.task import Task
from ablate.training.tasks.text.encoder import Encoder, Encodes, require_spelled
from ablate.variants import Operator, Tokens
from ablate.variants.axes import Ids
from ablate.variants.model.foreign import AnyBackbone
from ablate.variants.model.transformer import LayerTrace

_WORDS: Final = {
    "DET": """
        a an the this that these those each every either neither some any no all both half what which whatever
        whichever another
    """,
    "PRON": """
        i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
        we us our ours ourselves they them their theirs themselves themself one oneself who whom whose whoever whomever
        somebody someone something anybody
        anyone anything nobody none nothing everybody everyone everything there thee thou thy thine ye naught
        aught thyself whoso whosoever whomsoever whatsoever ourself
    """,
    "ADP": """
        aboard about above across after against along alongside amid amidst among amongst around as astride at atop
        before behind below beneath beside besides between beyond by concerning despite down during except for from in
        inside into near notwithstanding of off on onto opposite out outside over past per regarding since through
        throughout till to toward towards under underneath until up upon versus via with within without worth vs
        aft anent apropos barring betwixt circa excluding including minus nigh pro qua sans unlike unto
    """,
    "CCONJ": "and or but nor yet plus",
    "SCONJ": """
        because although though if unless whereas while whilst whether than lest provided supposing albeit when whenever
        where wherever how however why so once whereby wherein whereof whereon whereupon whereat whence
        whither insofar inasmuch
    """,
    "PART": "not n't n’t 's ’s",
    "AUX": """
        am is are was were be been being do does did have has had having can could may might must shall should will
        would ought cannot 'm 're 've 'd 'll ’m ’re ’ve ’d ’ll ca wo sha ai
        hath hast doth dost shalt wilt canst couldst wouldst shouldst wast wert gonna gotta
    """,
}

CLASS_OF: Final = {word: name for name, words in _WORDS.items() for word in words.split()}
"""The class of each word, in lower case."""

CLASSES: Final = ("special_punctuation", "content", "function", "other")
SPECIAL, CONTENT, FUNCTION, OTHER = range(4)
MODEL: Final = "en_core_web_sm"

Backend = Literal["closed_class", "spacy"]

_TAGS: Final = {
    **dict.fromkeys(("PUNCT",), SPECIAL),
    **dict.fromkeys(("NOUN", "VERB", "ADJ", "ADV", "PROPN"), CONTENT),
    **dict.fromkeys(("DET", "ADP", "CCONJ", "SCONJ", "PART", "AUX", "PRON"), FUNCTION),
}
_SAID = "ah aha alas bye eh goodbye hello hey hi hm hmm oh ok okay oops ouch uh um wow yes"
_INTERJECTIONS: Final = frozenset(_SAID.split())
_WORD: Final = re.compile(
    r"[^\W\d_]+?(?=n['’]t\b)|n['’]t\b|(?<=\w)['’](?:s|re|ve|ll|d|m)\b|[^\W\d_]+|\d+(?:[.,]\d+)*", re.IGNORECASE
)


@runtime_checkable
class Classified(Protocol):
    """A task that knows the classes of its tokens."""

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes, lower-case words joined by `_`, by their numbers."""

    def token_classes(self, inputs: Ids) -> Int[Tensor, "batch tokens"]:
        """Return the class of each token of ids, int64 on their device; -1 for no class."""


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

    def check(self, task: Task, model: AnyBackbone, operators: Sequence[Operator]) -> None:  # noqa: ARG002
        if self.by == "task" and not isinstance(task, Classified):
            raise ValueError(f"{task.label!r} has no classes of tokens; use by='closed_class' or 'spacy' for text")
        if self.by == "bytes" and task.inputs != Tokens(256):
            raise ValueError(
                f"{task.label!r} has {task.inputs}, and by='bytes' takes tokens that are bytes; use another"
            )
        if self.by in BACKENDS and not isinstance(task, Encodes):
            raise ValueError(f"the tokens of {task.label!r} are no text, which by={self.by!r} takes; use by='task'")
        if self.by in BACKENDS:
            require_spelled(task, f"by={self.by!r}")
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

    def _classes(self, seen: ProbeInput) -> tuple[Sequence[str], Int[Tensor, "batch tokens"]]:
        inputs = seen.batch.inputs
        if self.by == "bytes":
            ascii_classes = [_byte_class(chr(byte)) for byte in range(128)]
            of_bytes = torch.tensor([*ascii_classes, *[BYTES.index("beyond_ascii")] * 128], device=inputs.device)
            return BYTES, of_bytes[inputs]
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


def _byte_class(character: str) -> int:
    if character.isspace():
        return BYTES.index("space")
    if not character.isprintable():
        return -1
    return BYTES.index("letter" if character.isalpha() else "digit" if character.isdigit() else "punctuation")


def classes(encoder: Encoder, ids: Sequence[int], backend: Backend) -> list[int]:
    """Find the class of each token of a sequence, as its place in `CLASSES`."""
    token_classes = [SPECIAL] * len(ids)
    for start, end in _between_special(encoder, ids):
        written = encoder.token_bytes(ids[start:end])
        text, owner = _characters(b"".join(written))
        character_classes, begin = BACKENDS[backend](text), 0
        for at, part in enumerate(written, start):
            visible = [place for place in owner[begin : begin + len(part)] if not text[place].isspace()]
            token_classes[at] = character_classes[visible[-1]] if visible else OTHER
            begin += len(part)
    return token_classes


def _characters(data: bytes) -> tuple[str, list[int]]:
    """Decode bytes, with U+FFFD for each invalid byte, and return the character of each byte."""
    text = data.decode(errors="surrogateescape")
    broken = [0xDC80 <= ord(character) <= 0xDCFF for character in text]
    sizes = [1 if lone else len(character.encode()) for character, lone in zip(text, broken, strict=True)]
    owner = [place for place, size in enumerate(sizes) for _ in range(size)]
    return "".join("\ufffd" if lone else each for each, lone in zip(text, broken, strict=True)), owner


def _between_special(encoder: Encoder, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for at, token in enumerate([*ids, encoder.end]):
        if token in encoder.special:
            if at > start:
                yield start, at
            start = at + 1


def by_closed_class(text: str) -> list[int]:
    """Find the class of each character of a text by our list."""
    numbers = [SPECIAL if unicodedata.category(character).startswith("P") else OTHER for character in text]
    for word in _WORD.finditer(text):
        lower = word.group().lower()
        numbers[word.start() : word.end()] = [_word_class(lower)] * len(word.group())
    return numbers


def _word_class(lower: str) -> int:
    if lower in CLASS_OF:
        return FUNCTION
    return OTHER if lower[0].isdigit() or lower in _INTERJECTIONS else CONTENT


def by_spacy(text: str) -> list[int]:
    """Find the class of each character of a text by spaCy's English model. White space between words is other."""
    numbers = [OTHER] * len(text)
    for token in _spacy()(text):
        numbers[token.idx : token.idx + len(token)] = [_TAGS.get(token.pos_, OTHER)] * len(token)
    return numbers


BACKENDS: Final[dict[str, Callable[[str], list[int]]]] = {"closed_class": by_closed_class, "spacy": by_spacy}


def require_spacy() -> None:
    """Raise EnvironmentProblem if spaCy or its English model is not installed."""
    for package in ("spacy", MODEL):
        if find_spec(package) is None:
            raise EnvironmentProblem(
                f"{package} is not installed, which token_classes by='spacy' needs; pip install spacy, python -m spacy "
                f"download {MODEL}, or use by='closed_class'"
            )


@cache
def _spacy() -> Any:
    require_spacy()
    return import_module("spacy").load(MODEL)
