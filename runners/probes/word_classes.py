"""Four classes of words, after "Integral Transformer" (paper 002, figure 3), and the class of each token.

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
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal

from grid.errors import EnvironmentProblem
from runners.tasks.text.encoder import Encoder

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
_INTERJECTIONS: Final = frozenset(
    [
        *("ah", "aha", "alas", "bye", "eh", "goodbye", "hello", "hey", "hi", "hm"),
        *("hmm", "oh", "ok", "okay", "oops", "ouch", "uh", "um", "wow", "yes"),
    ]
)
_WORD: Final = re.compile(
    r"[^\W\d_]+?(?=n['’]t\b)|n['’]t\b|(?<=\w)['’](?:s|re|ve|ll|d|m)\b|[^\W\d_]+|\d+(?:[.,]\d+)*", re.IGNORECASE
)


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
                f"token_classes by='spacy' needs spaCy with its English model, and {package} is not installed; pip "
                f"install spacy, python -m spacy download {MODEL}, or use by='closed_class'"
            )


@cache
def _spacy() -> Any:
    require_spacy()
    return import_module("spacy").load(MODEL)
