"""Initial weights that depend on the seed and on a parameter's own path, and on nothing else.

Adding a component, a layer or a head never shifts the weights of the others, so runs with the same seed stay paired.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch


def generator(seed: int, *path: object) -> torch.Generator:
    """Make a CPU generator use_seed from hash(seed, path)."""
    text = "/".join(map(str, (seed, *path)))
    return torch.Generator().manual_seed(int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big"))


@contextmanager
def use_seed(seed: int, *path: object) -> Iterator[None]:
    """Let code draw from PyTorch's global generator on the CPU, seeded from hash(seed, path); its state comes back."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(generator(seed, *path).initial_seed())
    try:
        yield
    finally:
        torch.set_rng_state(before)
