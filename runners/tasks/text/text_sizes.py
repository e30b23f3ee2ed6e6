"""How much text a token stands for, in bytes and in words: what a loss per token is turned into losses per byte and
per word with, so that tokenizers can be compared.

Over a whole document, bytes are `len(text.encode())` and words `len(re.split(r"\\s+", text))`, as lm-eval counts them
(`lm_eval.api.task`, `count_bytes` and `count_words`: white space at either end of a document counts as one word more).
A word counts with the token in which the white space after it begins, the last one with the end of its document. The
end of a document is one byte more, as between the documents of a corpus, which lm-eval does not ask for.
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
    """Bytes and words of the tokens at `places` of a stream, int64 in the shape of `places`.

    `texts` are the documents of the stream. Only those that `places` touch are cut into tokens again.
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
    """Bytes and words [2, tokens] of a document; one token more than it has is its end."""
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
