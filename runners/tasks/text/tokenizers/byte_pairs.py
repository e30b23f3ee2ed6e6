"""Byte pairs: tokens that are joined from bytes, the most frequent pair first, learned from the training part alone.

A text is cut into words, numbers, marks and blanks as GPT-2 cuts it, and no pair crosses these; every text is some
sequence of tokens, and comes back exactly. Ids: 0 ends a document, 1 hides a token, then the 256 bytes, then pairs in
the order in which they were joined. The same text gives the same tokens.

Source: Sennrich, Haddow and Birch, Neural machine translation of rare words with subword units (2016); on bytes,
Radford et al., Language models are unsupervised multitask learners (2019). Learned by the package `tokenizers`.
"""

from typing import Annotated, ClassVar, Literal, final

from pydantic import Field

from grid.errors import SpecError
from runners.tasks.text.corpus import content_hash
from runners.tasks.text.tokenizers.library_encoder import LibraryEncoder, Special, library
from runners.tasks.text.tokenizers.tokenizer import Texts, Tokenizer

END, MASK = "<end>", "<mask>"


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
        learned.train_from_iterator(training(), trainer)
        size = learned.get_vocab_size()
        if size < self.vocabulary:
            raise SpecError(f"the training text has pairs for {size} of {self.vocabulary} tokens; lower vocabulary")
        return LibraryEncoder(learned, Special(0, 1), {"kind": self.kind, "hash": content_hash(learned.to_str())})
