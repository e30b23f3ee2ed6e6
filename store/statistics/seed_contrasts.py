"""Differences between levels of axes, one value per seed: the intervals hold for new seeds.

Each seed that has all cells is fitted alone, by least squares. The effect of a level is its difference from the
reference level of its axis, averaged over the other axes. If all axes have two levels, two of them also have an
interaction: the difference of the differences. Effects of one kind share their alpha (Holm). All variants together are
compared with their baselines, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ablate.grid.names import some
from ablate.store.state import ENDED
from ablate.store.statistics.arms import Baseline, match_cells, widen_by_choice
from ablate.store.statistics.design import (
    CROSS,
    NAMED,
    ONE_LEVEL,
    SEED,
    Design,
    Factor,
    Term,
    build,
    check,
    contrasts,
    read_factors,
    usable,
)
from ablate.store.statistics.least_squares import fit
from ablate.store.statistics.level_means import EQUAL, level_means, name_apart, name_levels, name_own_axes
from ablate.store.statistics.paired_differences import Floats, or_null, summarise, t_interval
from ablate.store.statistics.power import detectable
from ablate.store.statistics.scales import Scale, back, margin, percent, response, varies
from ablate.store.statistics.verdict import CLAIMS, ROBUST_PAIRS, Better, decide, few

EFFECTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("factor", "level", "against"), pl.String),
    **dict.fromkeys(("order", "n"), pl.Int64),
    **dict.fromkeys(("effect", "low", "high", "corrected_low", "corrected_high", "percent"), pl.Float64),
    **dict.fromkeys(("p", "p_holm", "detectable"), pl.Float64),
    "family": pl.Int64,
    **dict.fromkeys(("verdict", "note"), pl.String),
}
ALL: Final = "all variants"
"""The axis of the row that compares all variants together with their baselines."""
NO_VALUE: Final = "no run has a value"
"""The note of a level that no comparison has."""
_EMPTY: Final = "{} of {} cells have no value on any seed, so differences between levels are those of the others: {}"
_SAMPLE: Final = "{} of {} seeds have a value of all {} cells; only these count for differences between levels, not {}"
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
    With the column chosen, of `select_then_report`, errors have what choosing adds, as those of verdicts.
    Raises SpecError: a column is missing, or a value does not fit the scale.
    """
    check(values, [*factors, "cell"])
    sample = _complete(values)
    notes = [*sample.notes]
    if not sample.seeds:
        return SeedContrasts(pl.DataFrame(schema=EFFECTS), [], notes)
    first = sample.kept.head(sample.cells)
    read = read_factors(values, factors, first)
    y, chosen = sample.units(scale), sample.chosen(scale)
    rule = _Rule(scale, better, margin(rope, scale), alpha, mixed=sample.codes > 1)
    varying = [factor for factor in read if factor.varies]
    crossed = len(varying) > 1 and all(len(factor.levels) == 2 for factor in varying)
    rows: list[tuple[object, ...]] = []
    for order in (1, 2) if crossed else (1,):
        design = build(values, read, order=order, kept=first)
        estimates = list(_estimate(design, y, chosen, order))
        rows += _judge(estimates, y, rule)
        notes += [note for note in design.notes if note not in notes]
        if order == 1:
            rows += _left_out(read, len(estimates))
    effects = pl.DataFrame(rows, schema=EFFECTS, orient="row")
    notes += _say_notes(effects)
    return SeedContrasts(effects, sample.seeds, [*notes, *_caution(effects, sample.seeds)])


def variants_together(
    values: pl.DataFrame, baseline: Baseline, *, scale: Scale, better: Better, rope: float, alpha: float = 0.05
) -> SeedContrasts:
    """Compare the mean of all variants with that of their baselines: a row of order 0, or none for a single variant.

    `values` has the columns seed, value, cell, label. Raises as `seed_contrasts` does, and NotFoundError for a baseline
    that is no cell.
    """
    check(values, ["cell", "label"])
    bases, sample = match_cells(values["cell"].unique(maintain_order=True).to_list(), baseline), _complete(values)
    place = {cell: at for at, cell in enumerate(sample.kept["cell"].head(sample.cells))}
    pairs = [(place[cell], place[base]) for cell, base in bases.items() if cell in place and base in place]
    notes = [*sample.notes]
    if len(bases) < 2 or len(pairs) < 2 or not sample.seeds:
        return SeedContrasts(pl.DataFrame(schema=EFFECTS), sample.seeds, notes)
    y, (ours, theirs) = sample.units(scale), zip(*pairs, strict=True)
    labels = dict(values.select("cell", "label").iter_rows())
    named = sorted({labels[base] for base in bases.values()})
    names = (ALL, f"{len(pairs)} cells", named[0] if len(named) == 1 else "their baselines", 0)
    differences, of_all = (
        None if each is None else (each[:, ours] - each[:, theirs]).mean(1) for each in (y, sample.chosen(scale))
    )
    assert differences is not None
    estimate = _Estimate(names, differences, float(y[:, theirs].mean()), "", of_all)
    barriers = [*_barriers(values, bases, sample.kept)]
    rule = _Rule(scale, better, margin(rope, scale), alpha, mixed=sample.codes > 1 or bool(barriers))
    effects = pl.DataFrame([*_judge([estimate], y, rule)], schema=EFFECTS, orient="row")
    return SeedContrasts(effects, sample.seeds, [*notes, *barriers, *_caution(effects, sample.seeds)])


def _barriers(values: pl.DataFrame, bases: Mapping[str, str], kept: pl.DataFrame) -> Iterator[str]:
    """Say why no verdict stands over the variants together: what `compare` refuses for one of them."""
    if "state" in values.columns:
        ended = values.filter(pl.col("state").is_in(ENDED))
        lost = ended.height - usable(ended).height
        if lost:
            yield f"no verdict on {ALL}: runs that ended without a finite value: {lost}; the rest is no fair sample"
    if "budget" in kept.columns:
        budgets = {(cell, seed): each for cell, seed, each in kept.select("cell", SEED, "budget").iter_rows()}
        unequal = {cell for cell, seed in budgets if budgets[cell, seed] != budgets.get((bases.get(cell, cell), seed))}
        if unequal:
            yield f"no verdict on {ALL}: {len(unequal)} of them have other budgets than their baseline"


class _Sample(NamedTuple):
    """The runs of the seeds that have a value of every cell that has any, by seed and cell."""

    kept: pl.DataFrame
    cells: int
    seeds: list[int]
    codes: int  # versions of the code
    notes: list[str]

    def units(self, scale: Scale) -> Floats:
        """The values in analysis units, [seeds, cells]."""
        values = self.kept["value"].cast(pl.Float64).to_numpy()
        return response(values, scale).reshape(len(self.seeds), self.cells)

    def chosen(self, scale: Scale) -> Floats | None:
        """The same of the levels that all seeds choose, on seeds where each has a value; None if nothing was chosen."""
        if "chosen" not in self.kept.columns:
            return None
        values = self.kept["chosen"].cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, self.cells)
        return response(values[np.isfinite(values).all(1)], scale)


def _complete(values: pl.DataFrame) -> _Sample:
    known, every = usable(values), values["cell"].unique(maintain_order=True).to_list()
    present, planned = set(known["cell"]), values[SEED].unique(maintain_order=True).to_list()
    kept = known.filter(pl.col("cell").n_unique().over(SEED) == len(present)).sort(SEED, "cell")
    seeds, notes = kept[SEED].unique(maintain_order=True).to_list(), []
    if len(present) < len(every):
        labels = dict(zip(values["cell"], values["label" if "label" in values.columns else "cell"], strict=True))
        lost = [str(labels[cell]) for cell in every if cell not in present]
        notes.append(_EMPTY.format(len(lost), len(every), some(lost, NAMED)))
    if len(seeds) < len(planned):
        lost = [str(seed) for seed in planned if seed not in seeds]
        notes.append(_SAMPLE.format(len(seeds), len(planned), len(present), some(lost, NAMED)))
    codes = set(kept["code"]) if "code" in kept.columns else set()
    notes += [_MIXED.format(len(codes))] if len(codes) > 1 else []
    return _Sample(kept, len(present), seeds, len(codes), notes)


def _caution(effects: pl.DataFrame, seeds: Sequence[int]) -> list[str]:
    claims = effects["verdict"].is_in(CLAIMS).any()
    return [few("seeds")] if claims and len(seeds) < ROBUST_PAIRS else []


class _Estimate(NamedTuple):
    names: tuple[str, str, str, int]  # names of the axis, the level and the reference level; the order of the term
    effects: Floats  # one per seed; NaN if the cells cannot tell
    base: float  # mean in analysis units of the cells at the reference level
    note: str
    chosen: Floats | None = None  # the effects of the levels that all seeds choose, of tuned cells


class _Rule(NamedTuple):
    scale: Scale
    better: Better
    rope: float
    alpha: float
    mixed: bool


def _estimate(design: Design, y: Floats, chosen: Floats | None, order: int) -> Iterator[_Estimate]:
    for term in design.tested:
        if len(term.factors) != order:
            continue
        beside = design.merge_beside(term)
        inverse, model = np.linalg.pinv(beside.matrix), fit(beside.matrix, y[0])
        reference = np.logical_and.reduce([factor.codes == 0 for factor in term.factors])
        base = float(y[:, reference].mean()) if reference.any() else np.nan
        for places, weights, note in _contrast(beside, term):
            level, against = (CROSS.join(name_levels(term, each)) for each in (places, (0,) * order))
            known, why = model.estimable(weights[None]), note
            if not known:
                why = "; ".join(name_apart(beside, term)) or "the cells cannot tell it from other axes"
            by_cell = weights @ inverse if known else np.full(y.shape[1], np.nan)
            of_all = None if chosen is None else chosen @ by_cell
            yield _Estimate((term.name, level, against, order), y @ by_cell, base, why, of_all)


def _contrast(design: Design, term: Term) -> Iterator[tuple[tuple[int, ...], Floats, str]]:
    """The places of each level but the reference, its difference from that in coefficients, and what is to be said."""
    if len(term.factors) == 1:
        told, means = name_own_axes(design, term), [*level_means(design, term)]
        for each in means[1:]:
            row = each.row - means[0].row
            own = each.own - means[0].own
            adjusted = [] if np.allclose(row, own, rtol=0, atol=EQUAL) else ["adjusted"]
            yield each.places, row, "; ".join([*adjusted, *told])
        return
    steps = [contrasts(len(factor.levels)) for factor in term.factors]
    for places in product(*(range(1, len(factor.levels)) for factor in term.factors)):
        row = np.zeros(design.matrix.shape[1])
        row[term.columns] = reduce(np.kron, [step[at] - step[0] for step, at in zip(steps, places, strict=True)])
        yield places, row, ""


def _left_out(factors: Sequence[Factor], family: int) -> Iterator[tuple[object, ...]]:
    """Rows of EFFECTS for levels without a value, and for axes with one level."""
    for factor in factors:
        reasons = [(level, NO_VALUE) for level in factor.lost]
        if not factor.varies:
            reasons = [(level, ONE_LEVEL) for level in (*factor.levels, *factor.lost)]
        for level, why in reasons:
            against = factor.levels[0] if factor.varies and factor.levels else None
            yield factor.name, level, against, 1, 0, *[None] * 9, family, "no verdict", why


def _say_notes(effects: pl.DataFrame) -> list[str]:
    """Say which levels have no effect, and why; and of others what is to be said."""
    rows = effects.filter(~pl.col("note").is_in(["", ONE_LEVEL]))
    groups = rows.group_by("factor", pl.col("effect").is_null(), "note", maintain_order=True).agg("level")
    return [
        f"{factor} {some(levels, NAMED)}{' left out' if lost else ''}: {why}"
        for factor, lost, why, levels in groups.iter_rows()
    ]


def _judge(estimates: Sequence[_Estimate], y: Floats, rule: _Rule) -> Iterator[tuple[object, ...]]:
    """Judge effects that share their alpha; rows of EFFECTS."""
    if not estimates:
        return
    summary = summarise(np.array([each.effects for each in estimates]))
    if estimates[0].chosen is not None:
        summary = widen_by_choice(summary, np.array([each.chosen for each in estimates]))
    spread = [varies(each.effects, [y], rule.scale) for each in estimates]
    summary = summary._replace(sd=np.where(spread, summary.sd, np.nan))
    words, p, p_holm, level = decide(summary, rope=rule.rope, alpha=rule.alpha, better=rule.better)
    words = np.where(rule.mixed, "no verdict", words)
    intervals = *t_interval(summary, rule.alpha), *t_interval(summary, np.where(rule.mixed, np.nan, level))
    sizes = detectable(summary.sd, summary.n, alpha=rule.alpha / len(estimates))
    for at, each in enumerate(estimates):
        numbers = [summary.mean[at], *(end[at] for end in intervals)]
        numbers += [percent(summary.mean[at], back(each.base, rule.scale), rule.scale), p[at], p_holm[at], sizes[at]]
        yield *each.names, each.effects.size, *map(or_null, numbers), len(estimates), str(words[at]), each.note
