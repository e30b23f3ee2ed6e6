"""Replacements of choices of earlier releases that left, by kind and by class."""

from collections.abc import Mapping
from typing import Final

REPLACEMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("multiple_choice", "MultipleChoice"),
        'it left; LmEval(tasks=("mine",), include="tasks") asks the same questions from a YAML file',
    ),
    **dict.fromkeys(
        ("long_context", "LongContext"),
        'it left; LmEval(tasks=("longbench_qasper",), context=8192) asks LongBench, and scaling stretches positions',
    ),
}
