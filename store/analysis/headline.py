"""Words for checks: marks of a row, and which claim of a grid no check speaks against."""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from ablate.store.statistics.check import CHECK_NAMES, Answer
from ablate.store.statistics.verdict import CLAIMS

MARKS: Final[Mapping[Answer, str]] = {"yes": "+", "no": "!", "unknown": "?", "-": "-"}
LEGEND: Final = f"checks, in this order: {', '.join(CHECK_NAMES)}; + yes, ! no, ? unknown, - does not arise"


def mark_checks(row: Mapping[str, Any]) -> str:
    """Mark the five checks of a row, in their order: '+??+!'."""
    return "".join(MARKS[row[name]] for name in CHECK_NAMES)


def tell_doubts(rows: pl.DataFrame) -> str:
    """Say which checks of judged rows answer no or unknown: 'checks of 4 cells: tuned no in 4, finished unknown in 1'.

    Empty if none does.
    """
    told = [
        f"{name} {answer}{f' in {n}' if rows.height > 1 else ''}"
        for answer in ("no", "unknown")
        for name in CHECK_NAMES
        if (n := rows[name].to_list().count(answer))
    ]
    of = f" of {rows.height} cells" if rows.height > 1 else ""
    return f"checks{of}: {', '.join(told)}" if told else ""


def count_headlines(rows: pl.DataFrame) -> str:
    """Say how many claims of judged rows pass all checks, and which checks stand in the way of the others."""
    claims = rows.filter(pl.col("verdict").is_in([*CLAIMS, "equivalent"]))
    if claims.is_empty():
        return ""
    passed = claims["headline"].sum()
    if passed == claims.height:
        return f"{'the claim passes' if passed == 1 else f'all {passed} claims pass'} every check"
    parts = []
    for word, answer in (("failed", "no"), ("unknown", "unknown")):
        counts = [f"{name} ({n})" for name in CHECK_NAMES if (n := claims[name].to_list().count(answer))]
        parts += [f"{word}: {', '.join(counts)}"] if counts else []
    some = f"{passed} of {claims.height} claims pass" if passed else "no claim passes"
    return f"{some} every check; {'; '.join(parts)}"
