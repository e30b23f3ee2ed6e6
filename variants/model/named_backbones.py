"""The papers' models with their sizes, and a tiny one of each family.

A backbone has no vocabulary, which is the task's; each docstring says the one its parameters are counted with.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from ablate.grid.errors import SpecError
from ablate.variants.model.backbone import Backbone, babyberta, gpt2, llama2, llama3, pythia, qwen2


def icl() -> Backbone:
    """Paper 003, in-context learning: 9,609,473 parameters on scalars (22.5 M with GPT-2's unused token table)."""
    return gpt2(layers=12, heads=8, width=256).changed(initialisation="gpt2_scalars")


def gpt2_small() -> Backbone:
    """Paper 003, language: 124,439,808 parameters with 50,257 tokens; context 1024."""
    return gpt2(layers=12, heads=12, width=768, max_positions=1024)


def babyberta_8m() -> Backbone:
    """Paper 003, BabyBERTa: 8,524,032 parameters with 8,192 tokens, as released."""
    return babyberta(layers=8, heads=8, width=256, feedforward_width=1024)


def llama2_125m() -> Backbone:
    """Paper 002, small: 125,015,808 parameters with 32,000 tokens; context 2048."""
    return llama2(layers=20, heads=8, width=768, feedforward_width=1155)


def llama2_1b2() -> Backbone:
    """Paper 002, large: 1,195,993,088 parameters with 32,000 tokens. TinyLlama's sizes without its grouped queries."""
    return llama2(layers=22, heads=32, width=2048, feedforward_width=5632)


def pythia_125m() -> Backbone:
    """Paper 002, Pythia: 125,020,416 parameters with 32,000 tokens.

    The paper gives neither the feedforward width nor the tying; tied, a width of 1728 comes nearest to its Llama-2.
    """
    return pythia(layers=20, heads=8, width=768, feedforward_width=1728).changed(tied=True)


def qwen2_125m() -> Backbone:
    """Paper 002, Qwen2: 125,015,808 parameters with 32,000 tokens, exactly those of its Llama-2."""
    return qwen2(layers=20, heads=8, width=768, feedforward_width=1154)


def sink_60m() -> Backbone:
    """Paper 004's default: 58,998,528 parameters without the two embeddings of 50,432 tokens; context 2048.

    The paper says nothing of the initial weights; "fan_in" is the released code's. There, only the SwiGLU feedforward's
    last projection shrinks with depth, and that of its comparisons with other feedforwards does not; here all do.
    """
    return llama2(layers=10, heads=8, width=768, feedforward_width=1536).changed(tied=False, initialisation="fan_in")


def sink_1b() -> Backbone:
    """Paper 004's large model: 1,130,457,088 parameters without the two embeddings of 50,432 tokens.

    Initial weights as in `sink_60m`.
    """
    return llama2(layers=22, heads=16, width=2048, feedforward_width=5632).changed(tied=False, initialisation="fan_in")


def qwen1_5_0b5() -> Backbone:
    """Paper 000, 0.5B: 463,987,712 parameters with 151,936 tokens."""
    return qwen2(layers=24, heads=16, width=1024, feedforward_width=2816)


def llama3_1b() -> Backbone:
    """Paper 000, 1B: the sizes of Llama-3.2-1B, 1,235,814,400 parameters with 128,256 tokens."""
    return llama3(layers=16, heads=32, kv_heads=8, width=2048, feedforward_width=8192)


def llama3_3b() -> Backbone:
    """Paper 000, 3B: the sizes of Llama-3.2-3B, 3,212,749,824 parameters with 128,256 tokens."""
    return llama3(layers=28, heads=24, kv_heads=8, width=3072, feedforward_width=8192)


Family = Literal["gpt2", "llama2", "llama3", "qwen2", "pythia", "babyberta"]

_TINY: Mapping[Family, Callable[[], Backbone]] = {
    "gpt2": lambda: gpt2(layers=2, heads=4, width=64, max_positions=128),
    "llama2": lambda: llama2(layers=2, heads=4, width=64, feedforward_width=96),
    "llama3": lambda: llama3(layers=2, heads=4, kv_heads=2, width=64, feedforward_width=96),
    "qwen2": lambda: qwen2(layers=2, heads=4, width=64, feedforward_width=96),
    "pythia": lambda: pythia(layers=2, heads=4, width=64, feedforward_width=128),
    "babyberta": lambda: babyberta(layers=2, heads=4, width=64, feedforward_width=128),
}

FAMILIES: tuple[Family, ...] = tuple(_TINY)


def tiny(family: Family) -> Backbone:
    """2 layers, 4 heads of 16 channels, in the shape of `family`, for a CPU; SpecError if there is no such family."""
    if family not in _TINY:
        raise SpecError(f"{family!r} is no family of backbones; there are {', '.join(_TINY)}")
    return _TINY[family]()
