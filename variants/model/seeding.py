"""Initial weights that depend on the seed and on a parameter's own path, and on nothing else.

Adding a component, a layer or a head never shifts the weights of the others, so runs with the same seed stay paired.
"""

from hashlib import blake2b

import torch


def generator(seed: int, *path: object) -> torch.Generator:
    """Make a CPU generator seeded from hash(seed, path)."""
    text = "/".join(map(str, (seed, *path)))
    return torch.Generator().manual_seed(int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "big"))
