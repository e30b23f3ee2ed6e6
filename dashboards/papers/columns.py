"""Name the quantity of the columns of a printed table whose headings are bare numbers."""

from collections.abc import Sequence

from store.published.tables import PublishedCell


def columns_of(table: Sequence[PublishedCell]) -> str:
    """ "sigma_f", "weight decay": the coordinate, fact or argument that is the heading of every cell; else nothing.

    Some cells may lack it: softmax, among others that sum to alpha, has none.
    """
    for name in dict.fromkeys(name for cell in table for name in _facts(cell)):
        told = [_is(_facts(cell)[name], cell.column_label) for cell in table if name in _facts(cell)]
        if all(told) and 2 * len(told) > len(table):
            return name
    return ""


def _facts(cell: PublishedCell) -> dict[str, object]:
    return {**cell.point, **cell.setup, **cell.arguments}


def _is(level: object, heading: str) -> bool:
    try:
        return float(str(level)) == float(heading)
    except ValueError:
        return False
