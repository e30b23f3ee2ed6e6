"""Tokenizers of text tasks. Each is in the file named like its `kind`."""

from runners.tasks.text.tokenizers.byte_pairs import BytePairs
from runners.tasks.text.tokenizers.bytes import Bytes
from runners.tasks.text.tokenizers.tokenizer import Tokenizer
from runners.tasks.text.tokenizers.tokenizer_file import TokenizerFile

__all__ = ["BytePairs", "Bytes", "Tokenizer", "TokenizerFile"]
