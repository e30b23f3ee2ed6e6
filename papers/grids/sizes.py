"""Sizes in words: counts in three digits, and the papers' names of models beside what smaller ones have."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablate import PaperScale, Trial


def format_size(number: float) -> str:
    """Format a count with three digits: `362`, `3.62k`, `22.5M`, `20B`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:g}"


def name_size(size: str, trial: "Trial", scale: "PaperScale") -> str:
    """Return the name of a size in a paper; below its scale with the parameters of `trial`: "1B (181k here)"."""
    return size if scale == "paper" else f"{size} ({format_size(trial.parameters())} here)"
