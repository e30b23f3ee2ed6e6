"""Suggestions for misspelt names."""

from difflib import SequenceMatcher


def suggest_name(name: str, known: list[str]) -> str:
    """Return `"; did you mean 'x'?"` for the nearest of `known`, or "".

    Similarity is the share of common letters, raised for each of the first four that agree (Winkler 1990). So 'epsilon'
    is nearer to 'eps' than to 'positions'.
    """
    near = max(((_nearness(name.lower(), each.lower()), each) for each in known), default=(0.0, ""))
    return f"; did you mean {near[1]!r}?" if near[0] >= 0.65 else ""


def _nearness(name: str, other: str) -> float:
    share = SequenceMatcher(None, name, other).ratio()
    agree = next((at for at in range(4) if name[at : at + 1] != other[at : at + 1] or not name[at:]), 4)
    return share + 0.1 * agree * (1 - share)
