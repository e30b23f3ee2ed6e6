"""Tokenizers of text tasks."""

from runners.tasks.text.tokenizers.byte_pairs import BytePairs as BytePairs
from runners.tasks.text.tokenizers.tokenizer import Bytes as Bytes, Tokenizer as Tokenizer
from runners.tasks.text.tokenizers.tokenizer_file import TokenizerFile as TokenizerFile
