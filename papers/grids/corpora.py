"""Texts, tokenizers, sentences and teachers of the papers, in one directory: $ABLATE_CORPORA, else ./corpora.

A file that is missing has a hash of zeros. Its grids can be planned and counted; `ablate plan` says what is missing,
and no trial starts. Once the file is there, its own hash is part of the keys.
"""

import os
from pathlib import Path
from typing import Any

from ablate import HuggingFaceModel, MinimalPairs, TokenizerFile

_ABSENT = "0" * 32


def _place(name: str) -> Path:
    return Path(os.environ.get("ABLATE_CORPORA") or "corpora", name)


def _unless_there(path: Path, **known: Any) -> dict[str, Any]:
    """Return nothing for what is there, else `known` and a hash of zeros."""
    return {} if path.exists() else {"content_hash": _ABSENT, **known}


def corpus(name: str) -> dict[str, Any]:
    """Return the fields `source` and `content_hash` of a task of text."""
    return {"source": str(_place(name)), **_unless_there(_place(name))}


def tokenizer(name: str, vocabulary: int, *, end: str, mask: str | None = None) -> TokenizerFile:
    """Return the tokenizer of `<name>.json` with as many rows as the paper's embedding has."""
    path = _place(f"{name}.json")
    return TokenizerFile(path=str(path), vocabulary=vocabulary, end=end, mask=mask, **_unless_there(path))


def teacher(name: str, vocabulary: int, positions: int) -> HuggingFaceModel:
    """Return a model of Hugging Face in a directory."""
    path = _place(name)
    known = _unless_there(path, vocabulary=vocabulary, positions=positions)
    return HuggingFaceModel(directory=str(path), precision="bfloat16", **known)


def zorro(*paradigms: str) -> MinimalPairs:
    """Return paradigms of Zorro in `zorro/<paradigm>.txt`."""
    path = _place("zorro")
    return MinimalPairs(source=str(path), paradigms=paradigms, lower_case=True, **_unless_there(path))
