"""Half-normal plot data of a grid with one seed: which effects stand out if the size of the noise is unknown.

The plot shows contrasts of main effects and of interactions of up to three axes, all with the same standard error. If
there is no effect, their sizes lie on a straight line against half-normal quantiles. Lenth's pseudo standard error
estimates the noise from the smaller ones. Its margins mislead if many effects are real or the noise is not normal.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from scipy import special
from scipy.linalg import solve_triangular

from grid.errors import SpecError
from store.statistics.design import CROSS, SEED, Factor, check, read_factors, usable
from store.statistics.paired_differences import Floats
from store.statistics.scales import ROUNDING, Scale, response

CONTRASTS: Final[dict[str, Any]] = {
    "contrast": pl.String,
    "order": pl.Int64,
    "effect": pl.Float64,
    "size": pl.Float64,
    "quantile": pl.Float64,
    "beyond": pl.String,
    "aliased_with": pl.List(pl.String),
}
"""Columns of `HalfNormal.contrasts`, in order."""

_HIGHEST_ORDER: Final = 3
_DEPENDENT: Final = 1e-8
_SIMULATED: Final = 1_000_000
"""Effects, in all, that the margins are simulated with."""


class HalfNormal(NamedTuple):
    """Contrasts by size, the largest first, those that are aliased last."""

    contrasts: pl.DataFrame
    pseudo_error: float | None
    """Lenth's estimate of the standard error of every effect; null below three effects, and where most are zero but
    for rounding, so that nothing tells of noise."""
    margin: float | None
    """An effect without truth is larger with probability alpha."""
    simultaneous: float | None
    """Any of all effects without truth is larger with probability alpha."""
    runs: int


class Lenth(NamedTuple):
    """Pseudo standard error, margin and simultaneous margin of effects; NaN below three effects."""

    pseudo_error: float
    margin: float
    simultaneous: float


def lenth(effects: Floats, alpha: float = 0.05) -> Lenth:
    """Lenth's (1989) pseudo standard error of contrasts of one variance, [m], and its margins.

    Lenth's own factors, of a t distribution with m / 3 degrees of freedom, are too large for few effects: 1.6 times at
    m = 7. These are quantiles of a simulation of fixed seed (as Ye and Hamada 2000), right to one in a hundred.
    """
    m = effects.size
    if m < 3:
        return Lenth(math.nan, math.nan, math.nan)
    error = float(_pseudo_errors(effects[None])[0])
    single, every = _factors(m, alpha)
    return Lenth(error, single * error, every * error)


def _pseudo_errors(effects: Floats) -> Floats:
    """Return for each row of `effects` [n, m] 1.5 medians of the sizes, without sizes beyond 2.5 times as much."""
    sizes = np.sort(np.abs(effects))
    first = 1.5 * np.median(sizes, axis=1)
    small = np.maximum((sizes < 2.5 * first[:, None]).sum(1), 1)
    rows = np.arange(len(sizes))
    return np.asarray(0.75 * (sizes[rows, (small - 1) // 2] + sizes[rows, small // 2]))


@lru_cache(maxsize=16)
def _factors(m: int, alpha: float) -> tuple[float, float]:
    """In pseudo standard errors, what one of m effects without truth exceeds with chance alpha, and what any does."""
    noise = np.random.default_rng(m).normal(size=(max(_SIMULATED // m, 4000), m))
    ratios = np.abs(noise) / _pseudo_errors(noise)[:, None]
    return float(np.quantile(ratios, 1 - alpha)), float(np.quantile(ratios.max(1), 1 - alpha))


def half_normal(
    values: pl.DataFrame, factors: Mapping[str, Sequence[str]], *, scale: Scale, alpha: float = 0.05
) -> HalfNormal:
    """The contrasts of a grid whose cells ran once; `values` and `factors` as `factorial` takes them.

    `gate[head]` compares a level with the mean of those before it. `effect` is in analysis units, the root mean square
    of what the contrast changes over the runs (half of the difference between two levels). In a grid without gaps the
    contrasts are orthogonal. Otherwise each is adjusted for those of lower order and those before it. A contrast that
    is a combination of them is listed with their names. Raises SpecError if cells have several seeds.
    """
    check(values, list(factors))
    kept = usable(values)
    if kept[SEED].n_unique() > 1:
        raise SpecError(
            f"a half-normal plot is for one seed; there are {kept[SEED].n_unique()}, which tell the noise: use F tests"
        )
    y = response(kept["value"].cast(pl.Float64).to_numpy(), scale)
    contrasts = _orthogonal(read_factors(values, factors), y)
    known = np.array([each.effect for each in contrasts if each.effect is not None])
    found = lenth(known, alpha)
    largest = float(np.abs(y).max(initial=0.0 if scale == "linear" else 1.0))
    if found.pseudo_error <= ROUNDING * largest:
        found = Lenth(math.nan, math.nan, math.nan)
    ranked = np.sort(np.abs(known))
    rows: list[tuple[object, ...]] = []
    for name, order, effect, of in contrasts:
        if effect is None:
            rows.append((name, order, None, None, None, None, of))
            continue
        place = (np.searchsorted(ranked, abs(effect)) + 0.5) / len(known)
        quantile = float(special.ndtri(0.5 + 0.5 * place))
        rows.append((name, order, effect, abs(effect), quantile, _beyond(abs(effect), found), of))
    frame = pl.DataFrame(rows, schema=CONTRASTS, orient="row").sort("size", descending=True, nulls_last=True)
    error, margin, simultaneous = (x if math.isfinite(x) else None for x in found)
    return HalfNormal(frame, error, margin, simultaneous, len(y))


def _beyond(size: float, found: Lenth) -> str | None:
    if not math.isfinite(found.margin):
        return None
    if size > found.simultaneous:
        return "simultaneous margin"
    return "margin" if size > found.margin else ""


class _Contrast(NamedTuple):
    name: str
    order: int
    effect: float | None
    aliased: list[str]


def _orthogonal(axes: Sequence[Factor], y: Floats) -> list[_Contrast]:
    """Contrasts made orthogonal in turn; one that those before it span has no effect, and their names."""
    n = len(y)
    basis, triangle = np.zeros((n, n)), np.zeros((n, n))
    basis[:, :1], triangle[:1, :1] = 1 / math.sqrt(max(n, 1)), math.sqrt(n)
    rank = min(n, 1)
    found: list[_Contrast] = []
    taken: list[str] = []
    for name, order, column in _columns(axes, n):
        inside, rest = _split(column, basis[:, :rank])
        length = float(np.linalg.norm(rest))
        if length <= _DEPENDENT * float(np.linalg.norm(column)):
            made_of = solve_triangular(triangle[:rank, :rank], inside)[1:]
            aliased = [of for of, share in zip(taken, made_of, strict=True) if abs(share) > _DEPENDENT]
            found.append(_Contrast(name, order, None, aliased))
            continue
        basis[:, rank], triangle[:rank, rank], triangle[rank, rank] = rest / length, inside, length
        found.append(_Contrast(name, order, float(basis[:, rank] @ y) / math.sqrt(n), []))
        taken.append(name)
        rank += 1
    return found


def _split(column: Floats, basis: Floats) -> tuple[Floats, Floats]:
    """Coordinates of `column` in the orthonormal `basis`, and what is left of it; twice, for the digits."""
    inside = basis.T @ column
    rest = column - basis @ inside
    again = basis.T @ rest
    return inside + again, rest - basis @ again


def _columns(axes: Sequence[Factor], runs: int) -> Iterator[tuple[str, int, Floats]]:
    """Name, order and column [runs] of every contrast, those of low order first."""
    singles = [[(f"{axis.name}[{level}]", column) for level, column in _helmert(axis)] for axis in axes]
    for order in range(1, _HIGHEST_ORDER + 1):
        for group in combinations(singles, order):
            parts: list[tuple[str, Floats]] = [("", np.ones(runs))]
            for axis in group:
                parts = [
                    (f"{name}{CROSS}{own}" if name else own, column * values)
                    for name, column in parts
                    for own, values in axis
                ]
            yield from ((name, order, column) for name, column in parts)


def _helmert(axis: Factor) -> list[tuple[str, Floats]]:
    """Each level against the mean of the levels before it; null codes as zero."""
    found = []
    for place in range(1, len(axis.levels)):
        weights = np.zeros(len(axis.levels) + 1)
        weights[:place], weights[place] = -1 / place, 1.0
        found.append((axis.levels[place], weights[axis.codes]))
    return found
