"""Peak FLOPs per second of a device: a large matrix product, timed for half a second.

Measured once per process, device, precision and number of threads, with the settings of the process (such as TF32).
"""

import math
import time
from typing import Final, Literal

import torch

Precision = Literal["float32", "bfloat16"]

MEASURE_S: Final = 0.5
"""Seconds of timing after the first product."""
_SIZE: Final = {"cpu": 1024, "cuda": 8192}
_TYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_known: dict[tuple[str, str, int], float | None] = {}


def peak_flops_per_s(device: torch.device, precision: Precision, *, measure: bool = True) -> float | None:
    """Return the best rate measured; None if memory is short, or if it is unknown and `measure` is false."""
    key = (str(device), precision, torch.get_num_threads())
    if key not in _known and measure:
        _known[key] = _measure(device, precision)
    return _known.get(key)


def _measure(device: torch.device, precision: Precision) -> float | None:
    size = _SIZE[device.type]
    try:
        drawn = torch.Generator(device).manual_seed(0)  # a device computes faster on zeros and ones
        factor = torch.randn(size, size, generator=drawn, device=device).to(_TYPES[precision])
        least, _ = math.inf, _time_product(factor, device)
        until = time.perf_counter() + MEASURE_S
        while time.perf_counter() < until:
            least = min(least, _time_product(factor, device))
    except torch.OutOfMemoryError:
        return None
    return 2.0 * size**3 / least


def _time_product(factor: torch.Tensor, device: torch.device) -> float:
    began = time.perf_counter()
    factor @ factor
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
