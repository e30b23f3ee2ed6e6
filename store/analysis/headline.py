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


def count_headlines(rows: pl.DataFrame) -> str:
    """Say how many claims of judged rows pass all checks, and which checks stand in the way of the others."""
    claims = rows.filter(pl.col("verdict").is_in([*CLAIMS, "equivalent"]))
    if claims.is_empty():
        return ""
    passed = claims["headline"].sum()
    if passed == claims.height:
        return f"every check holds for {'the claim' if passed == 1 else f'all {passed} claims'}"
    open_ = [
        f"{name} ({', '.join(f'{n} {answer}' for answer in ('no', 'unknown') if (n := answers.count(answer)))})"
        for name in CHECK_NAMES
        if {"no", "unknown"} & {*(answers := claims[name].to_list())}
    ]
    some = (
        f"{passed} of {claims.height} claims" if passed else "none of the claims" if claims.height > 1 else "no claim"
    )
    return f"every check holds for {some}; open are {', '.join(open_)}"
