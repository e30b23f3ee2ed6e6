"""A sentence of caution from the noise of a grid's runs, and what so few runs cannot show."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ablate.store.analysis.once import once
from ablate.store.analysis.verdicts import GridMeasure, compared_runs, measure_of, verdicts
from ablate.store.statistics.noise import UNSEEN, NoiseShape, detect, unseen_share
from ablate.store.store import Store


class NoiseCaution(NamedTuple):
    """The findings of the detectors, and sentences; each is empty if there is nothing to say."""

    shape: NoiseShape
    caution: str
    standing: str  # below a claim from fewer than 29 runs

    @property
    def sentences(self) -> list[str]:
        return [each for each in (self.caution, self.standing) if each]


def noise_caution(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> NoiseCaution:
    """Examine the runs that `verdicts` compares; arguments and errors are its own."""
    return _caution(store, grid, measure_of(store, grid, measure), baseline)


@once
def _caution(store: Store, grid: str, by: GridMeasure, baseline: str | None) -> NoiseCaution:
    compared = compared_runs(store, grid, by, baseline=baseline)
    shape = detect(compared.values, baseline=compared.baseline, scale=by.scale)
    judged = verdicts(store, grid, baseline=baseline, measure=by._asdict())
    claims = [row for row in judged.iter_rows(named=True) if row["verdict"] not in ("undecided", "no verdict")]
    fewest = min((min(row["runs"], row["baseline_runs"]) for row in claims), default=0)
    return NoiseCaution(shape, _describe(shape), _stand(fewest) if fewest else "")


def _describe(shape: NoiseShape) -> str:
    fired = shape.fired
    if "split" in fired:
        what = "two groups, or a long tail, divided" if "tail" in fired else "two groups"
        where = f"at {shape.between:.3g} ({shape.above} of {shape.runs} above)"
        return f"runs of this grid fall into {what} {where}: the mean compares how often as much as how well"
    if "tail" in fired:
        return "on a log scale these values are more regular; the claims are about the mean, which few large runs carry"
    if "skew" in fired:
        return "the noise is skewed and its spread differs from the baseline's: few large runs carry the means"
    return ""


def _stand(runs: int) -> str:
    share = unseen_share(runs)
    if share < UNSEEN:
        return ""
    return (
        f"these claims are about runs like those seen: with {runs} runs per cell, an outcome of fewer than "
        f"{100 * share:.0f} % of a cell's runs may be unseen"
    )
