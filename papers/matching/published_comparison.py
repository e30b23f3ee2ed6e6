"""Compares published differences with your own: one word each, and the differences between the experiments.

No word says that a result was reproduced: a claim and a grid are experiments of different scale, data and budget. The
question is whether the printed difference has the same sign as your own, given the noise.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from ablate.papers.matching.our_results import Own, Point, Results, read_arms, results
from ablate.papers.matching.published_matching import another, differs, format_point, named
from ablate.store.published.tables import PublishedClaim, chosen, claims, trust_of
from ablate.store.statistics import holm, p_zero, t_interval
from ablate.store.statistics.arms import pair
from ablate.store.statistics.paired_differences import Paired
from ablate.store.statistics.verdict import holm_levels
from ablate.store.store import Store

Word = Literal["same direction", "within noise", "differs", "not comparable"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)
ALPHA: Final = 0.05  # family-wise error rate over all claims that a table of comparisons judges


class _Tried(NamedTuple):
    """A claim and what the grid has for it; `why` is the reason where nothing can be judged."""

    claim: PublishedClaim
    own: Own | None = None
    base: Own | None = None
    point: Point = ()
    summary: Paired | None = None
    tested: bool = False  # whether it counts in the family: values on both sides, whatever they look like
    why: str = ""


def compare_published(
    store: Store, grid: str, *, paper: str | None = None, table: str | None = None, metric: str | None = None
) -> pl.DataFrame:
    """One row per claim of the papers, cell of `grid` beside it and own baseline; or one row that says why none can.

    Differences are in `unit`: % on the log scale, else as printed. `published_noise` is half of a 95 % interval over
    test items. `low` and `high` are of the own difference, at Holm's level over all claims with values. Raises
    NotFoundError: there is no such grid, paper, table or metric.
    """
    wanted = claims(chosen(paper, table, metric))
    measured = results(store, grid, {each.cell.measurement for each in wanted if each.cell.measurement})
    measured = measured._replace(arms=read_arms(store, grid))
    tried = [each for claim in wanted for each in _compare_claim(claim, measured)]
    judged = _decide([each.summary for each in tried if each.summary is not None], sum(each.tested for each in tried))
    rows = [_row(each, next(judged) if each.summary is not None else None) for each in tried]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def _compare_claim(claim: PublishedClaim, measured: Results) -> list[_Tried]:
    """Every cell of the grid that the claim can stand beside."""
    why = _never(claim, measured)
    if why:
        return [_Tried(claim, why=why)]
    cell, base = claim.cell, claim.base
    assert cell.operator is not None
    assert base.operator is not None
    ours = measured.of_operator(cell.operator, cell.arguments, cell.task)
    theirs: dict[str, list[Own | None]] = {}
    for other in measured.of_operator(base.operator, base.arguments, base.task):
        theirs.setdefault(other.rest, []).append(other)
    if not ours:
        return [_Tried(claim, why=f"no cell of the grid is {named(cell)}")]
    same = [own for own in ours if not another(cell, own)]
    if not same:
        return [_Tried(claim, why=another(cell, ours[0]))]
    if not theirs:
        return [_Tried(claim, why=f"no cell of the grid is its baseline, {named(base)}")]
    alone: list[Own | None] = [None]
    pairs = [(own, other) for own in same for other in theirs.get(own.rest, alone)]
    return [each for own, other in pairs for each in _with(claim, own, other, measured)]


def _never(claim: PublishedClaim, measured: Results) -> str:
    """Why no cell of the grid can stand beside the claim, whatever its operator."""
    cell, base = claim.cell, claim.base
    if cell.value is None or base.value is None:
        return f"the paper prints a dash: {cell.mark if cell.value is None else base.mark}"
    if cell.unusable or base.unusable:
        return f"the paper contradicts itself; {cell.trust if cell.unusable else base.trust}"
    if claim.difference is None:
        return "a published value is zero, which has no ratio"
    if cell.measurement is None:
        return f"nothing here measures it: {cell.metric}"
    if not any(own.task.get("kind") == cell.task for own in measured.cells.values()):
        kinds = ", ".join(sorted({str(own.task.get("kind")) for own in measured.cells.values()}))
        return f"another task: the grid learns {kinds or 'nothing yet'}, the paper's is {cell.task}"
    return ""


def _with(claim: PublishedClaim, own: Own, base: Own | None, measured: Results) -> Iterator[_Tried]:
    cell = claim.cell
    assert cell.measurement is not None
    if base is None:
        yield _Tried(claim, own, why=f"no cell of {named(claim.base)} differs from {own.label} in the operator only")
        return
    points = measured.points(own.cell, cell.measurement, cell.point)
    if not points or not measured.arms:
        where = f" at {format_point(cell.point)}" if cell.point else ""
        yield _Tried(claim, own, base, why=f"no finished run of {own.label} measured {cell.measurement}{where}")
    for point in points if measured.arms else ():
        arms = [measured.arm(each.cell, cell.measurement, point) for each in (own, base)]
        pairing = pair(arms[0], arms[1], cell.scale)
        summary = None if pairing.problem else pairing.summary
        yield _Tried(claim, own, base, point, summary, tested=True, why=pairing.problem or "")


class _Decided(NamedTuple):
    pairs: int
    mean: float
    low: float
    high: float
    p_holm: float


def _decide(summaries: Sequence[Paired], family: int) -> Iterator[_Decided]:
    """Return mean, interval and p of each comparison; `family` also counts comparisons without a p.

    Each interval has the level that Holm gives its comparison, so it excludes zero if p is at most ALPHA.
    """
    if not summaries:
        return
    both = Paired(*(np.array([float(part) for part in parts]) for parts in zip(*summaries, strict=True)))
    tested = len(summaries)
    p = np.append(p_zero(both), np.full(family - tested, np.nan))
    low, high = t_interval(both, holm_levels(p, ALPHA)[:tested])
    for n, *numbers in zip(both.n, both.mean, low, high, holm(p)[:tested], strict=True):
        yield _Decided(round(float(n)), *map(float, numbers))


def _row(tried: _Tried, judged: _Decided | None) -> tuple[Any, ...]:
    cell, base = tried.claim.cell, tried.claim.base
    word, reason = _word(tried.claim, judged) if judged else ("not comparable", tried.why)
    shown = (judged.mean, judged.low, judged.high) if judged else (None, None, None)
    arm = tried.base.label if tried.base else None
    doubts = sorted({*cell.notes, *base.notes})
    return (
        *(cell.paper, cell.paper_table, cell.row_label, cell.column_label, tried.claim.words, cell.metric),
        *(cell.operator, format_point(cell.arguments), named(base), "%" if cell.scale == "log" else cell.unit),
        *(_printed_value(tried.claim.difference, cell.scale, 1.0), tried.claim.noise),
        *(tried.own.label if tried.own else None, arm, cell.measurement, format_point(dict(tried.point))),
        *(judged.pairs if judged else None, *(_printed_value(each, cell.scale, cell.factor) for each in shown)),
        *(judged.p_holm if judged else None, word, reason),
        *(differs(cell, tried.own) if tried.own else None, doubts, trust_of(doubts)),
    )


def _word(claim: PublishedClaim, judged: _Decided) -> tuple[Word, str]:
    """Compare the two differences. The published one counts as a sign only."""
    published, noise = claim.difference, claim.noise
    assert published is not None
    if not judged.p_holm <= ALPHA:
        return "within noise", "the interval here contains zero"
    if published == 0:
        return "not comparable", "the paper prints equal values, which have no direction"
    if noise is not None and abs(published) <= noise:
        return "within noise", f"the published difference is within the noise of its test items, {noise:.2g}"
    if math.copysign(1, published) == math.copysign(1, judged.mean):
        return "same direction", "both differences have the same sign"
    return "differs", "the difference here has the other sign"


def _printed_value(difference: float | None, scale: str, factor: float) -> float | None:
    """A difference as it is shown: per cent of the baseline on the log scale, else in the printed unit."""
    if difference is None:
        return None
    return difference / factor if scale == "linear" else math.expm1(min(difference, 700.0)) * 100


_SCHEMA: Final[dict[str, Any]] = {
    **dict.fromkeys(("paper", "paper_table", "row_label", "column_label", "claim", "metric"), pl.String),
    **dict.fromkeys(("operator", "arguments", "baseline", "unit"), pl.String),
    **dict.fromkeys(("published", "published_noise"), pl.Float64),
    **dict.fromkeys(("label", "base", "name", "point"), pl.String),
    "pairs": pl.Int64,
    **dict.fromkeys(("own", "low", "high", "p_holm"), pl.Float64),
    **dict.fromkeys(("word", "reason", "differs"), pl.String),
    "notes": pl.List(pl.Int64),
    "trust": pl.String,
}
