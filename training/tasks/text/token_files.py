"""Token files: the ids of a text on disk, mapped into memory and never read whole.

A .bin file holds ids one after another, as nanoGPT writes them; a .npy file is an array of one dimension. Each file is
read through once, for its hash and its range of ids. The cache of the machine keeps what a large one showed, until the
file changes.
"""

import time
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor

from ablate.grid.errors import AblateError, EnvironmentProblem, SpecError
from ablate.store.files.atomic import read_json, write_json
from ablate.training.tasks.text.corpus import Origin, content_hash
from ablate.training.tasks.user_files import cache_by_file, cache_folder

SUFFIXES: Final = (".bin", ".npy")
Dtype = Literal["uint16", "uint32"]

_LARGE = 1 << 28
"""Bytes of a file that is not read again by every process; a smaller one takes about a second."""
_SETTLED_NS: Final = 2 * 10**9
"""Age of a file from which its time of change is trusted: clocks of file systems are coarse."""
_CHUNK: Final = 1 << 22
"""Ids that are read at a time; even, so that every chunk begins at an even place."""


class _Ids(NamedTuple):
    """Hash and range of the ids of a file; `odd` is the greatest at places 1, 3, 5, ..."""

    content_hash: str
    least: int
    greatest: int
    odd: int


def is_token_file(path: str) -> bool:
    """Return True if the name is that of a token file."""
    return path.lower().endswith(SUFFIXES)


def token_file(path: Path, dtype: Dtype) -> Origin:
    """Read through a file once; SpecError if it holds no ids, EnvironmentProblem if it cannot be read."""
    return Origin(str(path), {path.name: _content(path, dtype).content_hash}, tuple)


def map_tokens(path: Path, dtype: Dtype, vocabulary: int) -> Integer[Tensor, " tokens"]:
    """Map a file of ids, in its integer type; SpecError unless they are ids of the vocabulary."""
    content = _content(path, dtype)
    outside = content.least if content.least < 0 else content.greatest
    if not 0 <= outside < vocabulary:
        raise SpecError(
            f"{path} has the id {outside}, and those of the tokenizer are 0 to {vocabulary - 1}; give the tokenizer "
            "that made them, such as tokenizer=TokenIds(vocabulary=...), and check dtype"
        )
    if path.suffix.lower() == ".bin" and dtype == "uint16" and content.odd == 0 < content.greatest:
        raise SpecError(f"every second id of {path} is 0 as uint16, so ids take four bytes; set dtype='uint32'")
    return torch.from_numpy(_map(path, dtype))


def _map(path: Path, dtype: str) -> np.memmap:
    if not path.is_file():
        raise SpecError(f"there is no token file {path}; it is a .bin or .npy file of ids")
    if path.suffix.lower() == ".npy":
        rule = "a .npy token file is an array of whole numbers with one dimension"
        try:
            ids = np.lib.format.open_memmap(path, mode="c")
        except ValueError as error:
            raise SpecError(
                f"{path} cannot be read: {str(error).splitlines()[0]}; {rule}, write it with numpy.save"
            ) from error
        if ids.dtype.kind not in "iu" or ids.ndim != 1 or not ids.dtype.isnative:
            raise SpecError(f"{path} has {ids.dtype.str} of shape {ids.shape}; {rule}, convert it")
        return ids
    if not is_token_file(path.name):
        raise SpecError(
            f"{path} is no token file, .bin or .npy, and texts and token files are not mixed; leave one out"
        )
    size, width = path.stat().st_size, np.dtype(dtype).itemsize
    if not size or size % width:
        raise SpecError(f"{path} has {size} bytes, and an id of {dtype} has {width}; write it again, or set dtype")
    return np.memmap(path, np.dtype(dtype), mode="c")


def _content(path: Path, dtype: Dtype) -> _Ids:
    if not path.is_file():
        _map(path, dtype)
    return _CONTENTS[dtype](path)


def _recall(dtype: str, path: Path) -> _Ids:
    """Return the content of a file, of a large one from the cache of the machine, unless it changed."""
    status = path.stat()
    if status.st_size < _LARGE:
        return _read_through(dtype, path)
    state = content_hash(str(path), dtype, *map(str, (status.st_size, status.st_mtime_ns, status.st_ctime_ns)))
    kept = cache_folder() / "tokens" / f"{state}.json"
    with suppress(AblateError, TypeError):
        return _Ids(**read_json(kept))
    content = _read_through(dtype, path)
    if time.time_ns() - status.st_ctime_ns > _SETTLED_NS:
        with suppress(EnvironmentProblem):  # without a place for it the file is read again
            write_json(kept, content._asdict(), durable="nothing")
    return content


_CONTENTS: Final = {dtype: cache_by_file(entries=256)(partial(_recall, dtype)) for dtype in get_args(Dtype)}


def _read_through(dtype: str, path: Path) -> _Ids:
    ids, digest = _map(path, dtype), blake2b(path.suffix.lower().encode(), digest_size=16)
    least, greatest, odd = 0, 0, 0
    with path.open("rb") as file:
        digest.update(file.read(ids.offset))
        while (part := np.fromfile(file, ids.dtype, _CHUNK)).size:
            digest.update(part.tobytes())
            least, greatest = min(least, int(part.min())), max(greatest, int(part.max()))
            odd = max(odd, int(part[1::2].max(initial=0)))
    return _Ids(digest.hexdigest(), least, greatest, odd)
