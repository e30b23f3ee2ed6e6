"""Pictures of many numbers: what as a heat map would be megabytes is a small PNG."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def png(places: npt.NDArray[np.uint8], palette: Sequence[tuple[int, int, int, int]]) -> bytes:
    """A PNG of indexed colours (W3C PNG, third edition, colour type 3).

    Args:
        places: [height, width], places in the palette.
        palette: red, green, blue, opacity, each 0 to 255; at most 256.
    """
    height, width = places.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with its filter, 0: none
    rows[:, 1:] = places
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(part for color in palette for part in color[:3])),
        (b"tRNS", bytes(color[3] for color in palette)),
        (b"IDAT", zlib.compress(rows.tobytes(), 6)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def uri(data: bytes) -> str:
    """The picture as an address that holds it."""
    return f"data:image/png;base64,{b64encode(data).decode()}"


def shrunk(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """[..., n, n] as means of blocks, [..., m, m] with m <= size; blocks at the end may be smaller."""
    n = values.shape[-1]
    if n <= size:
        return values
    edges = np.arange(0, n, -(-n // size))
    counts = np.diff(np.append(edges, n))
    summed = np.add.reduceat(np.add.reduceat(values, edges, axis=-2), edges, axis=-1)
    means: npt.NDArray[Any] = summed / (counts[:, None] * counts[None, :])
    return means
