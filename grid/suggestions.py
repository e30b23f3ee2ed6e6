"""Suggestions for misspelt names."""

import inspect
from collections.abc import Callable
from difflib import SequenceMatcher

SYNONYMS = {
    "learning_rate": "lr",
    "max_steps": "steps",
    "num_steps": "steps",
    "batch_size": "batch",
    "n_layers": "layers",
    "num_layers": "layers",
    "n_heads": "heads",
    "num_heads": "heads",
    "d_model": "width",
    "hidden_size": "width",
    "grad_clip": "clip",
}
"""Names of other libraries and ours."""


MAKERS: dict[str, list[str]] = {}
"""By class of a spec, the functions that make one and that `ablate` lists."""


def suggest_name(name: str, known: list[str]) -> str:
    """Return `"; did you mean 'x'?"` for the synonym or the nearest of `known`, or ""."""
    near = nearest(name, known)
    return f"; did you mean {near!r}?" if near is not None else ""


def not_an_argument(name: str, function: Callable[..., object]) -> str:
    """Describe an argument that `function` lacks, with the existing arguments and the nearest name."""
    known = list(inspect.signature(function).parameters)
    has = f"it has {', '.join(known)}" if known else "it takes none"
    return f"{function.__name__}() has no argument {name!r}; {has}{suggest_name(name, known)}"


def nearest(name: str, known: list[str]) -> str | None:
    """Return the synonym or the nearest of `known`; None if none is near.

    Similarity is the share of common letters, raised for each of the first four that agree (Winkler 1990). So 'epsilon'
    is nearer to 'eps' than to 'positions'. Where no whole name is near, one that shares a word is: 'recall' means
    'associative_recall'.
    """
    if (synonym := SYNONYMS.get(name.lower())) in known:
        return synonym
    near = max(((_nearness(name.lower(), each.lower()), each) for each in known), default=(0.0, ""))
    if near[0] >= 0.65:
        return near[1]
    words = {each for each in name.lower().split("_") if len(each) > 2}
    return next((each for each in known if words & set(each.lower().split("_"))), None)


def _nearness(name: str, other: str) -> float:
    share = SequenceMatcher(None, name, other).ratio()
    agree = next((at for at in range(4) if name[at : at + 1] != other[at : at + 1] or not name[at:]), 4)
    return share + 0.1 * agree * (1 - share)
