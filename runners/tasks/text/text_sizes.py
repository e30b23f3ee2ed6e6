"""Sizes of tokens in bytes and words, which turn a loss per token into a loss per byte or word to compare tokenizers.

A document has `len(text.encode())` bytes and `len(re.split(r"\\s+", text))` words, as in `lm_eval.api.task`. So white
space at either end counts as one more word. A word counts with the token in which the white space after it begins, the
last word with the end of the document. Unlike in lm-eval, the end of a document is one more byte.
"""

import re
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from runners.tasks.text.encoder import Encoder
from runners.tasks.text.text_source import Stream

_BLANK = re.compile(r"\s+")


def sizes_at(encoder: Encoder, texts: Sequence[str], stream: Stream, places: Tensor) -> tuple[Tensor, Tensor]:
    """Count bytes and words of the tokens at `places` of a stream, int64 in the shape of `places`.

    `texts` are the documents of the stream. Only documents with `places` are encoded again.
    """
    starts = stream.starts.numpy()
    total = np.zeros((2, len(stream.ids)), np.int64)
    touched = np.unique(np.searchsorted(starts, places.numpy(), side="right") - 1)
    for number in touched.tolist():
        start = int(starts[number])
        end = int(starts[number + 1]) if number + 1 < len(starts) else len(stream.ids)
        total[:, start:end] = _sizes(encoder, texts[number], end - start)
    found = torch.from_numpy(total)
    return found[0][places], found[1][places]


def _sizes(encoder: Encoder, text: str, tokens: int) -> np.ndarray:
    """Count bytes and words [2, tokens] of a document; one extra token is its end."""
    encoded = encoder.encode(text)
    own = len(encoded.ids)
    found = np.zeros((2, own + 1), np.int64)
    found[0, :own] = encoder.sizes(text, encoded)
    found[0, own] = 1 + len(text.encode()) - found[0, :own].sum()
    ends = np.maximum.accumulate(np.array([end for _, end in encoded.spans], np.int64))
    blanks = [match.start() for match in _BLANK.finditer(text)]
    np.add.at(found[1], np.searchsorted(ends, blanks, side="right"), 1)
    found[1, own] += 1
    return found[:, :tokens]
