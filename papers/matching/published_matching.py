"""In words: which operator and point a published cell is of, and how its experiment differs from one's own."""

import re
from collections.abc import Mapping
from typing import Final

from ablate.papers.grids.sizes import format_size
from ablate.papers.matching.our_results import Own
from ablate.store.published.tables import PublishedCell

OF_MEASUREMENT: Final = frozenset({"shots", "layer from the end", "biases"})
"""Facts of a printed cell that its measurement, its point or its operator says already."""

_ALIKE = 1.1  # sizes whose ratio is below this count as the same: papers round
_PROBED = 64  # tokens of the sequences whose sink shares 004 prints (section 4)


def named(cell: PublishedCell) -> str:
    """`ssa`, `temperature with tau=5`."""
    return f"{cell.operator} with {format_point(cell.arguments)}" if cell.arguments else f"{cell.operator}"


def format_point(point: Mapping[str, float] | Mapping[str, str]) -> str:
    """Format a point, such as `sigma_f=5, sigma_x=1`."""
    return ", ".join(f"{name}={at:g}" if isinstance(at, float | int) else f"{name}={at}" for name, at in point.items())


def differs(cell: PublishedCell, own: Own) -> str:
    """List the differences: size, training, data, layers, other settings of the paper; each with your own value."""
    known = [
        _amounts("parameters", cell.parameters, own.parameters)
        or (f"{cell.model} there" if cell.parameters is None else ""),
        _amounts("steps", cell.steps, own.steps),
        _amounts("tokens", cell.tokens, own.tokens),
    ]
    if cell.data is not None and cell.task != "linear_functions":  # data that a formula draws are the same
        source = own.task.get("source") or own.task.get("text") or {}
        kind = source.get("kind") if isinstance(source, Mapping) else source
        known.append(f"{cell.data}, here {kind or own.task.get('kind')}")
    if cell.placement not in (None, own.placement):
        known.append(f"in {cell.placement}, here {own.placement}")
    for name, text in cell.setup.items():
        here = own.said.get(name)
        if name not in OF_MEASUREMENT and (here is None or not agrees(here, text)):
            known.append(f"{name} {text} there" if here is None else f"{name} {text}, here {here}")
    return "; ".join(filter(None, known))


def another(cell: PublishedCell, own: Own) -> str:
    """Why a cell of the grid is not what is printed at `cell`, whatever its operator; empty where it may be.

    Other scales, data and budgets are told by `differs`; another task, other layers or a probe of another length are
    another quantity.
    """
    kind = own.task.get("kind")
    if cell.task is not None and kind != cell.task:
        return f"another task: the grid learns {kind or 'nothing yet'}, the paper's is {cell.task}"
    if cell.placement is not None and own.placement != cell.placement:
        return f"no cell of the grid has it in {cell.placement}"
    if cell.measurement == "sink_share" and own.probed not in (None, _PROBED):
        return f"sink shares of other lengths are not comparable: of {_PROBED} tokens there, of {own.probed} here"
    return ""


def agrees(here: str, there: str) -> bool:
    """Whether a word of a spec or a level of an axis is what a paper writes, and nothing else.

    The same number ("0.10" is "0.1"), or the same text but for capitals, and for signs between words ("GPT-2 XL" is
    "gpt-2_xl").
    """
    one, other = (re.sub(r"[\s_-]+(?=[a-z])", " ", text.strip().casefold()) for text in (here, there))
    if one == other:
        return True
    try:
        return float(one) == float(other)
    except ValueError:
        return False


def _amounts(what: str, theirs: float | None, ours: float | None) -> str:
    if theirs is None or (ours and max(theirs / ours, ours / theirs) < _ALIKE):
        return ""
    return f"{format_size(theirs)} {what}, here {format_size(ours) if ours is not None else 'unknown'}"
