"""How a task cuts text into tokens: one choice, one file, named like its `kind`."""

from runners.tasks.tokenizers.byte_pairs import BytePairs
from runners.tasks.tokenizers.bytes import Bytes
from runners.tasks.tokenizers.tokenizer import Tokenizer
from runners.tasks.tokenizers.tokenizer_file import TokenizerFile

__all__ = ["BytePairs", "Bytes", "Tokenizer", "TokenizerFile"]
