"""Half-normal plot data: closed forms of two-level designs, Lenth's own numbers, its margins on noise alone."""

from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy import stats

from grid.errors import SpecError
from store.statistics.half_normal import half_normal, lenth
from store.statistics.scales import Scale

AXES = {name: ["-", "+"] for name in "abcd"}


def grid(y: np.ndarray) -> pl.DataFrame:
    rows = [dict(zip("abcd", levels, strict=True)) for levels in product("-+", repeat=4)]
    return pl.DataFrame(rows).with_columns(seed=pl.lit(0), value=pl.Series(y))


def signs(values: pl.DataFrame, names: str) -> np.ndarray:
    return np.prod([np.where(values[name].to_numpy() == "+", 1.0, -1.0) for name in names], axis=0)


def test_with_two_levels_an_effect_is_half_the_difference_of_means() -> None:
    values = grid(np.random.default_rng(0).normal(size=16))
    found = half_normal(values, AXES, scale="linear").contrasts
    y = values["value"].to_numpy()
    for names in ("a", "d", "ab", "cd", "abc"):
        expected = (y[signs(values, names) > 0].mean() - y[signs(values, names) < 0].mean()) / 2
        row = found.row(by_predicate=pl.col("contrast") == " × ".join(f"{name}[+]" for name in names), named=True)
        assert (row["effect"], row["order"]) == (pytest.approx(expected), len(names))
    assert found.height == 4 + 6 + 4


def test_contrasts_of_a_complete_grid_share_its_sum_of_squares() -> None:
    axes = {"gate": ["no", "head", "query"], "sink": ["off", "on"], "norm": ["l1", "l2", "sum", "max"]}
    rows = [dict(zip(axes, levels, strict=True)) for levels in product(*axes.values())]
    y = np.random.default_rng(1).normal(size=24)
    values = pl.DataFrame(rows).with_columns(seed=pl.lit(0), value=pl.Series(y))
    found = half_normal(values, axes, scale="linear")
    assert found.contrasts.height == 23
    assert (found.contrasts["effect"] ** 2).sum() == pytest.approx(y.var())
    head = found.contrasts.row(by_predicate=pl.col("contrast") == "gate[query]", named=True)["effect"]
    means = {gate: values.filter(gate=gate)["value"].mean() for gate in axes["gate"]}
    weights = np.array([-0.5, -0.5, 1.0])
    assert head == pytest.approx(np.array(list(means.values())) @ weights / np.sqrt(3 * (weights**2).sum()))


def test_quantiles_are_those_of_the_half_normal_distribution_by_rank() -> None:
    found = half_normal(grid(np.random.default_rng(0).normal(size=16)), AXES, scale="linear").contrasts
    m = found.height
    expected = stats.halfnorm.ppf((np.arange(m, 0, -1) - 0.5) / m)
    assert found["quantile"].to_numpy() == pytest.approx(expected)
    assert found["size"].is_sorted(descending=True)


def test_lenth_is_computed_as_he_says() -> None:
    """Two passes of the median, by hand: 1.5 * 3 = 4.5, so 20 (beyond 11.25) is left out; then 1.5 * 2.5 = 3.75."""
    found = lenth(np.array([1.0, -2.0, 3.0, 4.0, -20.0]))
    assert found.pseudo_error == pytest.approx(3.75)
    assert lenth(np.zeros(5)) == (0, 0, 0)


@pytest.mark.parametrize("m", [3, 7, 8, 31])
def test_noise_passes_a_margin_as_often_as_it_says(m: int) -> None:
    """In 6,000 grids without effects, one effect in twenty and one grid in twenty pass the margins."""
    noise = np.random.default_rng([3, m]).normal(size=(6000, m))
    found = [lenth(each) for each in noise]
    single = np.mean([np.abs(each) > of.margin for each, of in zip(noise, found, strict=True)])
    passed = np.mean([(np.abs(each) > of.simultaneous).any() for each, of in zip(noise, found, strict=True)])
    assert single == pytest.approx(0.05, abs=0.006)
    assert passed == pytest.approx(0.05, abs=0.01)


def test_the_factors_of_few_effects_are_those_of_ye_and_hamada() -> None:
    """Their table of 2000 for 7 effects; Lenth's own, of 7 / 3 degrees of freedom, would be 3.76 and 9.01."""
    found = lenth(np.random.default_rng(0).normal(size=7))
    factors = found.margin / found.pseudo_error, found.simultaneous / found.pseudo_error
    assert factors == pytest.approx((2.297, 4.867), rel=0.01)


def test_a_planted_effect_passes_both_margins() -> None:
    values = grid(np.random.default_rng(4).normal(size=16))
    values = values.with_columns(value=pl.col("value") + pl.Series(5 * signs(values, "bc")))
    first = half_normal(values, AXES, scale="linear").contrasts.row(0, named=True)
    assert (first["contrast"], first["beyond"]) == ("b[+] × c[+]", "simultaneous margin")


def test_in_a_half_fraction_what_cannot_be_told_apart_is_named() -> None:
    values = grid(np.random.default_rng(5).normal(size=16))
    half = values.filter(pl.Series(signs(values, "abcd") > 0))
    found = half_normal(half, AXES, scale="linear")
    aliased = dict(found.contrasts.filter(pl.col("effect").is_null()).select("contrast", "aliased_with").iter_rows())
    assert aliased["c[+] × d[+]"] == ["a[+] × b[+]"]
    assert aliased["b[+] × c[+] × d[+]"] == ["a[+]"]
    assert len(aliased) == 14 - 7
    assert found.contrasts["quantile"].drop_nulls().len() == 7


def test_an_axis_that_does_not_apply_and_missing_cells_leave_orthogonal_parts() -> None:
    values = grid(np.random.default_rng(6).normal(size=16)).with_columns(
        d=pl.when(pl.col("a") == "+").then("d"),
        value=pl.when(pl.int_range(pl.len()) == 3).then(None).otherwise("value"),
    )
    found = half_normal(values, AXES, scale="linear")
    known = found.contrasts["effect"].drop_nulls()
    assert (known**2).sum() <= values["value"].drop_nulls().var(ddof=0) + 1e-12
    assert found.runs == 15


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_effects_of_which_most_are_zero_tell_of_no_noise(scale: Scale) -> None:
    """Else anything beyond rounding would be beyond both margins."""
    found = half_normal(grid(1000.0 + (np.arange(16) % 2)), AXES, scale=scale)
    assert (found.pseudo_error, found.margin, found.simultaneous) == (None, None, None)
    assert found.contrasts["beyond"].drop_nulls().is_empty()


def test_several_seeds_and_too_few_effects_are_told() -> None:
    values = grid(np.arange(16.0))
    with pytest.raises(SpecError, match="a half-normal plot is for one seed; there are 2"):
        half_normal(pl.concat([values, values.with_columns(seed=pl.lit(1))]), AXES, scale="linear")
    few = half_normal(values.filter(b="-", c="-", d="-"), AXES, scale="linear")
    assert (few.pseudo_error, few.contrasts["beyond"].to_list()) == (None, [None])
    assert half_normal(values.clear(), AXES, scale="linear").contrasts.is_empty()
