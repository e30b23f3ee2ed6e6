"""Differences between levels of axes, one value per seed: the intervals hold for new seeds.

Each seed that has all cells is fitted alone, by least squares. The effect of a level is its difference from the
reference level of its axis, averaged over the other axes. If all axes have two levels, two of them also have an
interaction: the difference of the differences. Effects of one kind share their alpha (Holm).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from store.statistics.design import CROSS, SEED, Design, build, check, contrasts, fit, read_factors, usable
from store.statistics.paired_differences import Floats, or_null, summarise, t_interval
from store.statistics.power import detectable
from store.statistics.scales import Scale, back, margin, percent, response, varies
from store.statistics.verdict import ROBUST_PAIRS, Better, few, judge

EFFECTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("factor", "level", "against"), pl.String),
    **dict.fromkeys(("order", "n"), pl.Int64),
    **dict.fromkeys(("effect", "low", "high", "corrected_low", "corrected_high", "percent"), pl.Float64),
    **dict.fromkeys(("p", "p_holm", "detectable"), pl.Float64),
    "family": pl.Int64,
    "verdict": pl.String,
}
_EMPTY: Final = "{} of {} cells have no value on any seed, so differences between levels are those of the other cells"
_SAMPLE: Final = "{} of {} seeds have a value of all {} cells; only these count for differences between levels"
_MIXED: Final = "these runs come from {} versions of the code, so differences between levels have no verdict"


class SeedContrasts(NamedTuple):
    """Effects of levels with seeds as the sample. `docs/factorial.md` explains each column."""

    effects: pl.DataFrame
    seeds: list[int]  # seeds that have a value of every cell that has any
    notes: list[str]


def seed_contrasts(
    values: pl.DataFrame,
    factors: Mapping[str, Sequence[str]],
    *,
    scale: Scale,
    better: Better,
    rope: float,
    alpha: float = 0.05,
) -> SeedContrasts:
    """Compare levels of axes over the seeds that have a finite value of every cell, but for cells without any.

    `values` is that of `factorial`, with the column cell; `factors` gives the levels of each axis, the reference first.
    Raises SpecError: a column is missing, or a value does not fit the scale.
    """
    check(values, [*factors, "cell"])
    known, every, planned = usable(values), values["cell"].n_unique(), values[SEED].n_unique()
    cells = known["cell"].n_unique()
    kept = known.filter(pl.col("cell").n_unique().over(SEED) == cells).sort(SEED, "cell")
    seeds = kept[SEED].unique(maintain_order=True).to_list()
    notes = [] if cells == every else [_EMPTY.format(every - cells, every)]
    notes += [] if len(seeds) == planned else [_SAMPLE.format(len(seeds), planned, cells)]
    first = kept.head(cells)
    read = read_factors(first, factors)
    if not read:
        return SeedContrasts(pl.DataFrame(schema=EFFECTS), seeds, notes)
    y = response(kept["value"].cast(pl.Float64).to_numpy(), scale).reshape(len(seeds), cells)
    codes = set(kept["code"]) if "code" in kept.columns else set()
    notes += [_MIXED.format(len(codes))] if len(codes) > 1 else []
    crossed = len(read) > 1 and all(len(factor.levels) == 2 for factor in read)
    rows: list[tuple[object, ...]] = []
    for order in (1, 2) if crossed else (1,):
        found = list(_estimate(build(first, read, order=order), y, order))
        rows += _judge(found, y, _Rule(scale, better, margin(rope, scale), alpha, mixed=len(codes) > 1))
    effects = pl.DataFrame(rows, schema=EFFECTS, orient="row")
    claims = not effects.filter(pl.col("verdict").is_in(["better", "worse", "real, size unproven"])).is_empty()
    return SeedContrasts(effects, seeds, [*notes, few("seeds")] if claims and len(seeds) < ROBUST_PAIRS else notes)


class _Estimate(NamedTuple):
    about: tuple[str, str, str, int]  # names of the axis, the level and the reference level; the order of the term
    effects: Floats  # one per seed; NaN if the cells cannot tell
    base: float  # mean in analysis units of the cells at the reference level


class _Rule(NamedTuple):
    scale: Scale
    better: Better
    rope: float
    alpha: float
    mixed: bool


def _estimate(design: Design, y: Floats, order: int) -> Iterator[_Estimate]:
    inverse, model = np.linalg.pinv(design.matrix), fit(design.matrix, y[0])
    for term in design.tested:
        if len(term.factors) != order:
            continue
        steps = [contrasts(len(factor.levels)) for factor in term.factors]
        reference = np.logical_and.reduce([factor.codes == 0 for factor in term.factors])
        base = float(y[:, reference].mean()) if reference.any() else np.nan
        for places in product(*(range(1, len(factor.levels)) for factor in term.factors)):
            weights = np.zeros(design.matrix.shape[1])
            changes = [step[place] - step[0] for step, place in zip(steps, places, strict=True)]
            weights[term.columns] = reduce(np.kron, changes)
            level, against = (
                CROSS.join(factor.levels[at] for factor, at in zip(term.factors, each, strict=True))
                for each in (places, [0] * order)
            )
            known = model.estimable(weights[None])
            effects = y @ (weights @ inverse) if known else np.full(len(y), np.nan)
            yield _Estimate((term.name, level, against, order), effects, base)


def _judge(found: Sequence[_Estimate], y: Floats, rule: _Rule) -> Iterator[tuple[object, ...]]:
    """Judge effects that share their alpha; rows of EFFECTS."""
    if not found:
        return
    summary = summarise(np.array([each.effects for each in found]))
    spread = [varies(each.effects, [y], rule.scale) for each in found]
    summary = summary._replace(sd=np.where(spread, summary.sd, np.nan))
    words, p, p_holm, level = judge(summary, rope=rule.rope, alpha=rule.alpha, better=rule.better)
    words = np.where(rule.mixed, "no verdict", words)
    intervals = *t_interval(summary, rule.alpha), *t_interval(summary, np.where(rule.mixed, np.nan, level))
    sizes = detectable(summary.sd, summary.n, alpha=rule.alpha / len(found))
    for at, each in enumerate(found):
        numbers = [summary.mean[at], *(end[at] for end in intervals)]
        numbers += [percent(summary.mean[at], back(each.base, rule.scale), rule.scale), p[at], p_holm[at], sizes[at]]
        yield *each.about, each.effects.size, *map(or_null, numbers), len(found), str(words[at])
