"""Byte pairs: tokens that are joined from bytes, the most frequent pair first, learned from the training part alone.

A text is cut into words, numbers, marks and blanks as GPT-2 cuts it, and no pair crosses these; every text is some
sequence of tokens, and comes back exactly. Ids: 0 ends a document, 1 hides a token, then the 256 bytes, then pairs in
the order in which they were joined. The same text gives the same tokens.

Learning takes time with the square of the longest word, so words beyond `LONGEST` are refused.

Source: Sennrich, Haddow and Birch, Neural machine translation of rare words with subword units (2016); on bytes,
Radford et al., Language models are unsupervised multitask learners (2019). Learned by the package `tokenizers`.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, final

from pydantic import Field

from grid.errors import SpecError
from runners.tasks.text.corpus import content_hash
from runners.tasks.text.tokenizers.library_encoder import LibraryEncoder, Special, library
from runners.tasks.text.tokenizers.tokenizer import Texts, Tokenizer

END, MASK = "<end>", "<mask>"
LONGEST: Final = 16_384
"""Most characters of a word, or of blanks after one another: about a quarter of a second each."""
_RUN: Final = re.compile(rf"\S{{{LONGEST + 1},}}|\s{{{LONGEST + 1},}}")


@final
class BytePairs(Tokenizer):
    """Byte pairs learned from the training part of the text."""

    learned: ClassVar[bool] = True

    kind: Literal["byte_pairs"] = "byte_pairs"
    vocabulary: Annotated[int, Field(ge=258)] = 1024
    """Number of tokens: 2 special ones, 256 bytes, and pairs."""

    @property
    def size(self) -> int:
        return self.vocabulary

    def encoder(self, training: Texts) -> LibraryEncoder:
        tokenizers = library(self.kind)
        learned = tokenizers.Tokenizer(tokenizers.models.BPE())
        learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        learned.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=self.vocabulary,
            special_tokens=[END, MASK],
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        texts = training()
        _require_words(learned.pre_tokenizer, texts)
        learned.train_from_iterator(texts, trainer)
        found = learned.get_vocab_size()
        if found < self.vocabulary:
            raise SpecError(f"the training text has pairs for {found} of {self.vocabulary} tokens; lower vocabulary")
        return LibraryEncoder(learned, Special(0, 1), {"kind": self.kind, "hash": content_hash(learned.to_str())})


def _require_words(cut: Any, texts: Sequence[str]) -> None:
    """Raise SpecError where a word is longer than `LONGEST`."""
    for text in texts:
        for run in _RUN.finditer(text):
            for _, (start, end) in cut.pre_tokenize_str(run.group()):
                if end - start > LONGEST:
                    word = run.group()[start : start + 20]
                    raise SpecError(f"words have at most {LONGEST} characters; one of {end - start} begins {word!r}")
