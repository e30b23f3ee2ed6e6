"""Which published cells somebody means by a paper, a table and a metric."""

from collections.abc import Sequence

from grid.errors import NotFoundError
from grid.suggestions import suggest_name
from store.published.tables import PublishedCell, cells, papers


def chosen(paper: str | None = None, table: str | None = None, metric: str | None = None) -> tuple[PublishedCell, ...]:
    """The cells of a paper ("003" or "3"), a table ("T1", "1", "T5" for both its halves) and a metric.

    `metric` is the name of a measurement, such as "mse", or part of the paper's own words.

    Raises:
        NotFoundError: nothing is so called; says what there is.
    """
    found: Sequence[PublishedCell] = cells()
    if paper is not None:
        number = _number(paper)
        found = [each for each in found if each.paper == number]
        if not found:
            raise NotFoundError(f"paper {number} has no table of values: {papers()[number]} publishes no results")
    if table is not None:
        wanted = table.upper() if table[:1].upper() == "T" else f"T{table.upper()}"
        known = list(dict.fromkeys(each.paper_table for each in found))
        found = [each for each in found if wanted in (each.paper_table.upper(), each.paper_table.partition("-")[0])]
        if not found:
            of = "the papers have" if paper is None else f"paper {_number(paper)} has"
            raise NotFoundError(f"{of} no table {table!r} of values; there are {', '.join(known) or 'none'}")
    if metric is not None:
        found = _of_metric(found, metric)
    return tuple(found)


def _number(paper: str) -> str:
    number = paper.zfill(3)
    if number not in papers():
        known = "; ".join(f"{each} {title}" for each, title in papers().items())
        raise NotFoundError(f"there is no paper {paper!r}; there are {known}")
    return number


def _of_metric(found: Sequence[PublishedCell], metric: str) -> list[PublishedCell]:
    named = [each for each in found if each.measurement == metric]
    of_metric = named or [each for each in found if metric.casefold() in each.metric.casefold()]
    if not of_metric:
        known = list(dict.fromkeys(each.measurement or each.metric for each in found))
        listed = f"{', '.join(known[:8])} and {len(known) - 8} more" if len(known) > 8 else ", ".join(known)
        raise NotFoundError(f"no table asked for has {metric!r}; they have {listed}{suggest_name(metric, known)}")
    return of_metric
