"""Effects in unions of grids: planted ones are found exactly, and with noise statsmodels' OLS with dummies agrees."""

import math
from itertools import count, islice, pairwise, product

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from statsmodels.regression.linear_model import OLS

from ablate.store.statistics import Factorial, factorial, seed_contrasts

LEVELS = {"a": ["a0", "a1", "a2"], "b": ["b0", "b1"], "c": ["c0", "c1", "c2"], "d": ["d0", "d1"], "n": ["n0", "n1"]}
pytestmark = pytest.mark.filterwarnings("ignore:The design matrix is rank-deficient")

RULE = {"scale": "linear", "better": "lower", "rope": 0.0}
Cell = dict[str, str | None]


class Union:
    """A random union of two to four grids; `n` is an axis of the first one that hangs on a level of `a` there."""

    def __init__(self, seed: int, *, crossed: bool = False) -> None:
        rng = self.rng = np.random.default_rng(seed)
        most = 2 if crossed else 4
        free = [
            list(rng.choice(list("abcd"), size=rng.integers(1, most), replace=False)) for _ in range(rng.integers(1, 4))
        ]
        grids = [["a", "b"] if crossed else ["a", *rng.choice(["b", "c"], size=rng.integers(0, 2))], *free]
        cells: list[Cell] = []
        for number, axes in enumerate(grids):
            whole = crossed and not number
            kept = {x: LEVELS[x] if whole else self._some(LEVELS[x]) for x in axes}
            for levels in product(*kept.values()):
                cell: Cell = {**dict.fromkeys(LEVELS), **dict(zip(kept, levels, strict=True))}
                nested = not number and not crossed and cell["a"] == "a1"
                cells += [{**cell, "n": level} for level in LEVELS["n"]] if nested else [cell]
        self.cells = [cell for at, cell in enumerate(cells) if cell not in cells[:at]]
        present = {
            x: [level for level in of if any(cell[x] == level for cell in self.cells)] for x, of in LEVELS.items()
        }
        self.levels = {x: of for x, of in present.items() if of}
        self.effect = {level: rng.normal() for of in LEVELS.values() for level in of}
        self.effect["n1"] = -self.effect["n0"]  # so that the mean over `n` is that of its level of `a`
        drawn = rng.normal(size=(3, 2)) * crossed
        drawn = drawn - drawn.mean(0) - drawn.mean(1, keepdims=True) + drawn.mean()  # sums to zero over a and over b
        self.both = dict(zip(product(LEVELS["a"], LEVELS["b"]), drawn.ravel(), strict=True))
        self.intercept = {axes: 3 * rng.normal() for axes in dict.fromkeys(map(self.pattern, self.cells))}

    def _some(self, levels: list[str]) -> list[str]:
        return sorted(self.rng.choice(levels, size=self.rng.integers(1, len(levels) + 1), replace=False).tolist())

    @staticmethod
    def pattern(cell: Cell) -> frozenset[str]:
        """The axes of a cell but for the nested one, which is planted without an intercept of its own."""
        return frozenset(x for x, level in cell.items() if level is not None and x != "n")

    def truth(self, cell: Cell) -> float:
        known = [level for level in cell.values() if level is not None]
        return (
            self.intercept[self.pattern(cell)]
            + sum(map(self.effect.__getitem__, known))
            + self.both.get((cell["a"], cell["b"]), 0.0)
        )

    def runs(self, noise: float, seeds: int, lost: float) -> pl.DataFrame:
        rows = []
        for seed, (at, cell) in product(range(seeds), enumerate(self.cells)):
            value = self.truth(cell) + 3 * seed**1.5 + noise * self.rng.normal()
            rows.append({"seed": seed, "cell": str(at), **cell, "value": None if self.rng.random() < lost else value})
        return pl.DataFrame(
            rows, schema={"seed": pl.Int64, "cell": pl.String, **dict.fromkeys(LEVELS, pl.String), "value": pl.Float64}
        )

    def hangs(self, axis: str = "n") -> bool:
        """Whether levels tell where `axis` applies, among the cells with all axes that every cell with `axis` has."""
        having = [cell for cell in self.cells if cell[axis] is not None]
        always = [x for x in LEVELS if x != axis and having and all(cell[x] is not None for cell in having)]
        near = [cell for cell in self.cells if all(cell[x] is not None for x in always)]
        there: dict[tuple[str | None, ...], set[bool]] = {}
        for cell in near if always else ():
            there.setdefault(tuple(cell[x] for x in always), set()).add(cell[axis] is not None)
        return len(set().union(*there.values())) == 2 and all(len(of) == 1 for of in there.values())


def unions(how_many: int, *, crossed: bool = False) -> list[Union]:
    """Unions in which no axis but `n` hangs on another by accident, which would hide the intercept of its pattern."""
    drawn = (Union(seed, crossed=crossed) for seed in count())
    return list(islice((union for union in drawn if not any(map(union.hangs, "abcd"))), how_many))


def cells_with_runs(union: Union, frame: pd.DataFrame) -> list[Cell]:
    """The planned cells whose pattern and whose levels all have a run."""
    rows = {tuple(x if isinstance(x, str) else None for x in row) for row in frame[[*LEVELS]].itertuples(index=False)}
    seen, known = {tuple(map(bool, row)) for row in rows}, {level for row in rows for level in row}
    return [
        cell for cell in union.cells if {*cell.values()} - {None} <= known and tuple(map(bool, cell.values())) in seen
    ]


def pattern_of(cell: Cell, merged: bool) -> str:
    return "".join(x for x, level in cell.items() if level is not None and not (merged and x == "n"))


def is_merged(union: Union, frame: pd.DataFrame, term: str | None) -> bool:
    """Whether `n` hangs on `a`, and no chain of patterns with several levels of `a` links all of these."""
    if term != "a" or not union.hangs():
        return False
    cells = [cell for cell in cells_with_runs(union, frame) if cell["a"]]
    linked, near = {cell["a"]: cell["a"] for cell in cells}, dict[str, str | None]()
    for cell in cells:
        one, other = linked[cell["a"]], linked[near.setdefault(pattern_of(cell, merged=False), cell["a"])]
        linked = {level: other if of == one else of for level, of in linked.items()}
    return len(set(linked.values())) > 1


def exog(
    union: Union, frame: pd.DataFrame, rows: pd.DataFrame, term: str | None, leave: str = "", pairs: bool = False
) -> pd.DataFrame:
    """For `rows` a column per pattern, then per seed and level but the first, and per pair of levels of a and b.

    `frame` has the runs that are fitted. Beside `a` a cell with `n` may have the pattern of the cell without it; `n`
    sums to zero then.
    """
    merged = is_merged(union, frame, term)
    kinds = [
        pattern_of({x: row[x] if isinstance(row[x], str) else None for x in LEVELS}, merged)
        for row in rows.to_dict("records")
    ]
    every = dict.fromkeys(pattern_of(cell, merged) for cell in union.cells)
    columns = {f"pattern {each}": np.array([float(kind == each) for kind in kinds]) for each in every}
    columns |= {f"seed {each}": (rows["seed"] == each).astype(float) for each in range(1, 9)}
    for x in union.levels:
        if x != leave:
            columns |= {level: (rows[x] == level).astype(float) for level in union.levels[x][1:]}
    if "n1" in columns:
        columns["n1"] = columns["n1"] - (rows["n"] == "n0")
    if pairs and leave != "pairs":  # sums to zero over each axis: a level does in other grids what it does on average
        signs = {
            x: [(rows[x] == each).astype(float) - (rows[x] == of[-1]) for each in of[:-1]] for x, of in LEVELS.items()
        }
        columns |= {
            f"pair {i} {j}": one * other for i, one in enumerate(signs["a"]) for j, other in enumerate(signs["b"])
        }
    return pd.DataFrame(columns)


def reference(union: Union, frame: pd.DataFrame, term: str, level: str) -> pd.DataFrame:
    """The planned cells of the patterns in which `term` has several levels, with `level`, on every seed."""
    merged = is_merged(union, frame, term)
    cells = [cell for cell in cells_with_runs(union, frame) if cell[term] is not None]
    kinds = [pattern_of(cell, merged) for cell in cells]
    several = [
        cell
        for cell, kind in zip(cells, kinds, strict=True)
        if len({other[term] for other, its in zip(cells, kinds, strict=True) if its == kind}) > 1
    ]
    rows = [{**cell, term: level, "seed": seed} for cell in several or cells for seed in sorted({*frame["seed"]})]
    if merged:  # n sums to zero over the cells of a level
        rows = [{**row, "n": None} for row in rows]
    return pd.DataFrame(rows, columns=[*LEVELS, "seed"])


def estimable(matrix: np.ndarray, row: np.ndarray) -> bool:
    return int(np.linalg.matrix_rank(np.vstack([matrix, row]), tol=1e-6)) == int(
        np.linalg.matrix_rank(matrix, tol=1e-6)
    )


def mean(found: Factorial, term: str, level: str) -> dict[str, object]:
    return found.means.row(by_predicate=(pl.col("term") == term) & (pl.col("level") == level), named=True)


def mains(found: Factorial) -> dict[str, list[str]]:
    rows = found.means.filter(~pl.col("term").str.contains("×")).select("term", "level").rows()
    return {term: [level for of, level in rows if of == term] for term, _ in rows}


@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_planted_effects_of_random_unions_are_found_exactly_or_not_claimed(lost: float) -> None:
    compared = 0
    for seed, union in enumerate(unions(30)):
        values = union.runs(0.0, seeds=3, lost=lost)
        found = factorial(values, union.levels, scale="linear", order=1)
        frame = values.drop_nulls("value").to_pandas()
        for term, levels in mains(found).items():
            matrix = exog(union, frame, frame, term).to_numpy()
            rows = {
                level: exog(union, frame, reference(union, frame, term, level), term).to_numpy().mean(0)
                for level in levels
            }
            for level in levels:
                row = mean(found, term, level)
                assert (row["mean"] is not None) == estimable(matrix, rows[level]), (seed, term, level)
                if row["mean"] is not None:
                    assert row["own_mean"] == pytest.approx(frame[frame[term] == level]["value"].mean(), abs=1e-9)
                    assert (row["note"] == "adjusted") == (abs(row["mean"] - row["own_mean"]) > 1e-9), (
                        seed,
                        term,
                        level,
                    )
            known = [level for level in levels if mean(found, term, level)["mean"] is not None]
            for one, other in pairwise(known):
                difference = mean(found, term, one)["mean"] - mean(found, term, other)["mean"]
                assert difference == pytest.approx(union.effect[one] - union.effect[other], abs=1e-9), (seed, term)
                compared += 1
    assert compared > 30


@pytest.mark.parametrize("lost", [0.0, 0.2])
def test_with_noise_the_oracle_of_statsmodels_gives_the_same_means_errors_f_and_p(lost: float) -> None:
    compared = 0
    for union in unions(15):
        values = union.runs(0.5, seeds=4, lost=lost)
        frame = values.drop_nulls("value").to_pandas()
        found = factorial(values, union.levels, scale="linear", order=1)
        whole = OLS(frame["value"], exog(union, frame, frame, None)).fit()
        if whole.df_resid < 1:
            continue
        for term, levels in mains(found).items():
            model = OLS(frame["value"], exog(union, frame, frame, term)).fit()
            without = OLS(frame["value"], exog(union, frame, frame, term, leave=term)).fit()
            row = found.terms.row(by_predicate=pl.col("term") == term, named=True)
            df = int(model.model.rank - without.model.rank)
            assert (row["df"], row["df_error"]) == (df, whole.df_resid)
            if df:
                f = (without.ssr - model.ssr) / df / (whole.ssr / whole.df_resid)
                assert row["f"] == pytest.approx(f, rel=1e-7, abs=1e-9)
                assert row["p"] == pytest.approx(stats.f.sf(f, df, whole.df_resid), rel=1e-6)
            for level in levels:
                ours = mean(found, term, level)
                if ours["mean"] is not None:
                    at = exog(union, frame, reference(union, frame, term, level), term).to_numpy().mean(0)
                    error = math.sqrt(whole.mse_resid * at @ model.normalized_cov_params @ at)
                    half = stats.t.ppf(0.975, whole.df_resid) * error
                    expected = at @ model.params
                    assert ours["mean"] == pytest.approx(expected, rel=1e-7)
                    assert (ours["low"], ours["high"]) == pytest.approx((expected - half, expected + half), rel=1e-7)
                    compared += 1
    assert compared > 30


def test_planted_differences_over_seeds_are_exact_and_what_is_left_out_has_a_reason() -> None:
    compared = 0
    for union in unions(30):
        values = union.runs(0.0, seeds=3, lost=0.0)
        found = seed_contrasts(values, union.levels, **RULE).effects.filter(order=1)  # type: ignore[arg-type]
        assert {*found["factor"]} == {x for x in union.levels if len({cell[x] for cell in union.cells}) > 1}
        for factor, level, against, effect, note in found.select("factor", "level", "against", "effect", "note").rows():
            if effect is None:
                assert note
            else:
                assert effect == pytest.approx(union.effect[level] - union.effect[against], abs=1e-9), factor
                compared += 1
    assert compared > 30


def test_without_any_run_every_term_is_left_out_with_its_reason() -> None:
    for union in unions(5):
        values = union.runs(0.0, seeds=2, lost=1.0)
        found = factorial(values, union.levels, scale="linear")
        assert found.terms["f"].null_count() == found.terms.height
        assert (found.terms["note"] != "").all()
        assert found.means.is_empty()
        assert seed_contrasts(values, union.levels, **RULE).effects.is_empty()  # type: ignore[arg-type]


def test_an_interaction_in_one_grid_of_a_union_is_found_exactly_and_has_the_f_of_comparing_models() -> None:
    for union in unions(10, crossed=True):
        found = factorial(union.runs(0.0, seeds=3, lost=0.1), union.levels, scale="linear")
        at = {
            level: mean(found, "a × b", level)["mean"] for level in map(" × ".join, product(LEVELS["a"], LEVELS["b"]))
        }
        planted = {
            f"{a} × {b}": union.effect[a] + union.effect[b] + union.both[a, b]
            for a, b in product(LEVELS["a"], LEVELS["b"])
        }
        differences = [at[level] - at["a0 × b0"] - planted[level] + planted["a0 × b0"] for level in at]
        assert differences == pytest.approx([0.0] * 6, abs=1e-9)
        noisy = union.runs(0.5, seeds=3, lost=0.1)
        frame = noisy.drop_nulls("value").to_pandas()
        model, without = (
            OLS(frame["value"], exog(union, frame, frame, None, leave=leave, pairs=True)).fit()
            for leave in ("", "pairs")
        )
        row = factorial(noisy, union.levels, scale="linear").terms.row(
            by_predicate=pl.col("term") == "a × b", named=True
        )
        f, p, df = model.compare_f_test(without)
        assert (row["f"], row["p"], row["df"]) == (pytest.approx(f, rel=1e-7), pytest.approx(p, rel=1e-6), df)
