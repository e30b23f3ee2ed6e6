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
    """Name the checks that stand in the way of judged rows: 'checks of 4 cells: failed tuned (4)'.

    Empty if none does.
    """
    listed = _list_checks(rows)
    return f"checks{f' of {rows.height} cells' if rows.height > 1 else ''}: {listed}" if listed else ""


def _list_checks(rows: pl.DataFrame) -> str:
    """'failed tuned (4), noise (1); unknown finished (1)', with the numbers of rows if there are several."""
    parts = []
    for word, answer in (("failed", "no"), ("unknown", "unknown")):
        counts = [(name, n) for name in CHECK_NAMES if (n := rows[name].to_list().count(answer))]
        names = ", ".join(f"{name} ({n})" if rows.height > 1 else name for name, n in counts)
        parts += [f"{word} {names}"] if names else []
    return "; ".join(parts)


def count_headlines(rows: pl.DataFrame) -> str:
    """Say how many claims of judged rows pass all checks, and which checks stand in the way of the others."""
    claims = rows.filter(pl.col("verdict").is_in([*CLAIMS, "equivalent"]))
    if claims.is_empty():
        return ""
    passed = claims["headline"].sum()
    if passed == claims.height:
        return f"{'the claim passes' if passed == 1 else f'all {passed} claims pass'} every check"
    some = f"{passed or 'none'} of {claims.height} claims pass" if claims.height > 1 else "the claim does not pass"
    return f"{some} every check; {_list_checks(claims)}"
