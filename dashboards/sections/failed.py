"""The failures of a grid: every kind with its reason, message and traceback, and the failure rates."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl

from dashboards.blocks import Picture
from dashboards.figures.failures import draw_rates, failures, rates
from dashboards.html import details, tag, text
from dashboards.sections.charts import named
from dashboards.sections.guard import drawn
from dashboards.subject import Subject
from dashboards.words import count

_WORDS: Final = {"diverged": "diverged", "out_of_memory": "ran out of memory", "killed": "killed", "error": "error"}
_MOST_LABELS: Final = 6


def failed(about: Subject, key: str) -> str:
    """The section, or nothing where nothing failed."""
    found = failures(about.store, about.grid)
    if found.is_empty():
        return ""
    total = int(found["n"].sum())
    words = f"{count(total, 'failed trial')} of {count(found.height, 'kind')}. Averages leave failed trials out."
    heading = tag("h3", "Failures") + tag("p", text(words), class_="caption")
    kinds = "".join(_kind(row, about) for row in found.iter_rows(named=True))
    return tag("div", heading + kinds, class_="block failures") + drawn("Failure rates", _rates(about, key))


def _kind(row: Mapping[str, Any], about: Subject) -> str:
    reason = _WORDS.get(row["reason"], str(row["reason"] or "unknown"))
    labels = _names(row["labels"], about)
    more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
    where = ", ".join(labels[:_MOST_LABELS]) + more
    first = tag("p", tag("strong", text(f"{count(row['n'], 'trial')}: {reason}")) + text(f" · {where}"))
    message = tag("p", text(row["message"]), class_="note") if row["message"] else ""
    trace = details("Traceback", tag("pre", text(row["traceback"]))) if row["traceback"] else ""
    example = tag("p", text(f"Example: trial {row['example']}"), class_="note")
    return tag("div", first + message + example + trace, class_="state alarm")


def _names(labels: Sequence[str], about: Subject) -> list[str]:
    """The names that the rest of the report uses, in its order."""
    return [about.look.names[cell.cell] for cell in about.cells if cell.label in labels]


def _rates(about: Subject, key: str) -> Iterator[Picture]:
    if about.measure is None or about.baseline is None:
        return
    found = rates(about.store, about.grid, [cell.cell for cell in about.cells])
    if found.filter(pl.col("failed") > 0).is_empty():
        return
    caption = "Share of the ended trials of each variant that failed. Bar: 95 % Wilson interval."
    figure = draw_rates(found, about.look)
    yield Picture(f"{key}-rates", "Failure rates", caption, [(None, figure)], named(found, about))
