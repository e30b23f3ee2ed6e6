"""Was what a cell changes of its baseline on: the check of a verdict that knock-outs answer.

Each arm is measured without the stages in which the two differ. They are on if that matters in one arm, and off if it
matters in neither.

The stages that go together are in `variants/model/knockout.py`. Knock-outs are planned in
`training/evaluations/knockout.py` and `knockout_plan.py`, measured in `training/loop/knockout.py`, read in
`knockout_rows.py` and put into words in `store/statistics/knockout_words.py`; `judge.py` calls this check.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from ablate.store.analysis.knockout_rows import (
    Change,
    Operators,
    Rows,
    differing,
    is_blank,
    is_finer,
    name_levels,
    read_changes,
    read_operators,
)
from ablate.store.analysis.once import once
from ablate.store.analysis.two_part import runs_that_learned
from ablate.store.analysis.verdicts import GridMeasure, compared_runs, measure_of, runs
from ablate.store.statistics.arms import match_cells
from ablate.store.statistics.check import Check
from ablate.store.statistics.knockout_words import OFF, KnockoutResult, describe_removal
from ablate.store.statistics.scales import forward, margin
from ablate.store.store import Store

_FOREIGN: Final = "not measured: a mixer or a model of your own has no stages that can be left out"
_HOW: Final = "`ablate evaluate --knockout` measures trials that kept their weights, and a new run all"
NONE_LEARNED: Final = "no run learned"
_HOW_OWN: Final = "run.knockout in the training code measures it"


@once
def on_checks(
    store: Store, grid: str, *, baseline: str | None = None, measure: Mapping[str, Any] | None = None
) -> dict[str, Check]:
    """Return the check of each cell that has a baseline. Raises as `verdicts` does."""
    by = measure_of(store, grid, measure)
    learned = runs_that_learned(store, grid, by, baseline)
    changes = read_changes(store, grid, by)
    if learned is not None:
        changes = {
            cell: {
                name: {seed: change for seed, change in rows.items() if (cell, seed) in learned}
                for name, rows in own.items()
            }
            for cell, own in changes.items()
        }
    done = runs(store, grid, by).filter(pl.col("value").is_finite()).select("cell", "seed").iter_rows()
    seeds: dict[str, set[int]] = {}
    for cell, seed in done:
        if learned is None or (cell, seed) in learned:
            seeds.setdefault(cell, set()).add(seed)
    removals = KnockedOut(by, changes, read_operators(store, grid), seeds, of_learners=learned is not None)
    compared = compared_runs(store, grid, by, baseline=baseline)
    pairs = match_cells(compared.values["cell"].unique(maintain_order=True).to_list(), compared.baseline)
    return {cell: removals.compare(cell, base) for cell, base in pairs.items()}


class KnockedOut(NamedTuple):
    """The knock-outs of a grid's cells."""

    by: GridMeasure
    rows: Mapping[str, Rows]
    operators: Mapping[str, Operators]
    seeds: Mapping[str, Set[int]] = {}
    """Seeds of each cell that count."""
    of_learners: bool = False
    """Only runs that learned count."""

    @property
    def band(self) -> float:
        return margin(self.by.rope, self.by.scale)

    def compare(self, cell: str, base: str) -> Check:
        """Judge the stages in which a cell differs from its baseline."""
        ours, theirs = self.operators.get(cell), self.operators.get(base)
        if ours is None or theirs is None or ours.has_stages != theirs.has_stages:
            return Check("on", "unknown", "not measured: these runs have nothing in common that can be left out")
        stages = differing(ours, theirs)
        if not stages:
            return Check("on", "-", "both have the same operator")
        if not self.band:
            return Check("on", "unknown", "the measure has no band (rope=0), so no change of it is small")
        if not ours.has_stages:
            return self._compare_fields(cell, base, stages)
        if ours.foreign or theirs.foreign:
            return Check("on", "unknown", _FOREIGN)
        if lack := self._find_lack({cell: "here", base: "in the baseline"}, _HOW):
            return lack
        if self._use_no_attention(cell, base):
            return Check("on", "unknown", "uniform attention changes both by less than the band: the task uses none")
        if is_finer(ours, theirs, stages):
            return self._vary(cell, base, stages)
        return self._are_on(cell, base, stages)

    def _compare_fields(self, cell: str, base: str, paths: Set[str]) -> Check:
        """Judge fields of an experiment; those that are blank in an arm need not be left out there."""
        places = {cell: "here", base: "in the baseline"}
        told = {arm: frozenset[str]().union(*self._parts(arm, paths)) for arm in places}
        for arm, where in places.items():
            fields, wanted = self.operators[arm].operator, (told[cell] | told[base] or paths) - told[arm]
            if missing := [path for path in wanted if not is_blank(fields, path)]:
                names = " and ".join(sorted(missing))
                return Check("on", "unknown", f"not measured without {names} {where}; {_HOW_OWN}")
        arms = {arm: where for arm, where in places.items() if told[arm]}
        return self._find_lack(arms, _HOW_OWN) or self._are_on(cell, base, paths)

    def _parts(self, arm: str, stages: Set[str]) -> list[frozenset[str]]:
        """The smallest sets that were left out of an arm and touch `stages`; of fields, those among them."""
        sets = _by_stages(self.rows.get(arm, {}))
        smallest = [part for part in sets if not any(other < part for other in sets)]
        if self.operators[arm].has_stages:
            return [part for part in smallest if not part.isdisjoint(stages)]
        return [part for part in smallest if part <= stages]

    def _find_lack(self, arms: Mapping[str, str], how: str) -> Check | None:
        """Say why the knock-outs of `arms`, given with their places in words, do not tell; None if they do."""
        for arm, where in arms.items():
            if arm not in self.rows:
                return Check("on", "unknown", f"not measured {where}; {how}")
            if self.of_learners and not any(self.rows[arm].values()):
                return Check("on", "unknown", f"{NONE_LEARNED} {where}")
            wanted = self.seeds.get(arm, frozenset())
            if lacking := len(wanted - self.rows[arm].get("none", {}).keys()):
                return Check("on", "unknown", f"not measured in {lacking} of {len(wanted)} runs {where}; {how}")
        return None

    def _use_no_attention(self, cell: str, base: str) -> bool:
        uniform = [self.rows[arm].get("uniform", {}) for arm in (cell, base)]
        return all(uniform) and all(
            abs(change) < self.band for rows in uniform for change in self._scaled(rows.values())[0]
        )

    def _scaled(self, rows: Iterable[Change]) -> tuple[list[float], list[float | None]]:
        """Changes for the worse and their standard errors over items, on the measure's scale."""
        listed, scale = list(rows), self.by.scale
        own, left = (np.array([each.own + more * each.change for each in listed]) for more in (0, 1))
        sign = 1 if self.by.better == "lower" else -1
        slope = {"linear": np.ones_like(left), "log": left, "logit": left * (1 - left)}[scale]
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = [
                None if each.se_items is None else float(each.se_items / at)
                for each, at in zip(listed, slope, strict=True)
            ]
        return (sign * (forward(left, scale) - forward(own, scale))).tolist(), errors

    def _describe(self, arm: str, rows: Mapping[int, Change]) -> KnockoutResult:
        if not self.seeds.get(arm, frozenset()) <= rows.keys():
            return _UNKNOWN  # other runs have none
        changes, errors = self._scaled(rows.values())
        return describe_removal(changes, errors, self.band, items=[each.items or 0 for each in rows.values()])

    def _vary(self, cell: str, base: str, stages: Collection[str]) -> Check:
        named = [
            (arm, f"mean-{stage}-{level}")
            for arm, other in ((cell, base), (base, cell))
            for stage in stages
            for level in name_levels(self.operators[other], stage)
        ]
        results = [self._describe(arm, self.rows[arm][name]) for arm, name in named if name in self.rows[arm]]
        if not results or _UNKNOWN in results:
            return Check("on", "unknown", f"not measured whether the numbers of the {_list(stages)} vary; {_HOW}")
        result = _strongest(results)
        told = f"putting the numbers of the {_list(stages)} at their mean {self._size(result)}"
        if result.word == "off":
            return Check("on", "no", f"{told}: they do not vary", result.high, "does not vary")
        varies = result.word.startswith("on")
        word = "varies" if varies else result.word
        return Check("on", "yes" if varies else "unknown", f"{told}: {_tell(result, word)}", result.low, word)

    def _are_on(self, cell: str, base: str, stages: Set[str]) -> Check:
        results, refits, gone, alone = [], [], set[str](), list[str]()
        for arm in (cell, base):
            rows = self.rows.get(arm, {})
            sets, refitted = _by_stages(rows), _by_refit(rows)
            parts = self._parts(arm, stages)
            if parts:
                touched = frozenset[str]().union(*parts)
                gone |= touched
                results.append(self._describe(arm, sets[touched]) if touched in sets else _UNKNOWN)
                alone += self._tell_each(arm, parts)
                if touched in refitted:
                    refits.append(self._left_by_refit(arm, refitted[touched]))
        if not results or _UNKNOWN in results:
            how = _HOW if self.operators[cell].has_stages else _HOW_OWN
            return Check("on", "unknown", f"not measured without the {_list(stages)}; {how}")
        if any(math.isnan(each.low) for each in results):
            return Check("on", "unknown", f"a value is not on the {self.by.scale} scale, so its change is unknown")
        result, each_alone = _strongest(results), f"; alone: {', '.join(alone)}" if alone else ""
        told = f"leaving the {_list(gone)} out of the trained models {self._size(result)}{each_alone}"
        if result.word == "off":
            if others := self._find_others(cell, base, stages - gone):
                words = f"{told}: off, so the difference is one of {' and '.join(others)}"
                return Check("on", "no", words, result.high, "off, beside other changes")
            return Check("on", "no", f"{told}: off, so this comparison says nothing about it", result.high, "off")
        if not result.word.startswith("on"):
            return Check("on", "unknown", f"{told}: {_tell(result, result.word)}", result.low, result.word)
        if len(refits) == len(results) and all(most < self.band for _, most in refits):
            left, word = max(refits)[0], f"{result.word}, {_A_SCALE}"
            words = f"{told}; one temperature and one size per head, fitted, leave {left:.2g} of it: {word}"
            return Check("on", "yes", words, left, word)
        return Check("on", "yes", f"{told}: {result.word}", result.low, result.word)

    def _find_others(self, cell: str, base: str, left: Set[str]) -> list[str]:
        """Name the fields in which two cells differ, apart from those that were left out."""
        ours, theirs = self.operators[cell], self.operators[base]
        if not ours.has_stages:
            return sorted(left)
        names = sorted({*ours.others, *theirs.others})
        return [name for name in names if ours.others.get(name) != theirs.others.get(name)]

    def _tell_each(self, arm: str, parts: Sequence[frozenset[str]]) -> list[str]:
        """Each of several components alone, with what a refit leaves of it if all runs have one."""
        sets, refitted = _by_stages(self.rows[arm]), _by_refit(self.rows[arm])
        told = []
        for part in parts if len(parts) > 1 else ():
            word: str = self._describe(arm, sets[part]).word
            left, most = self._left_by_refit(arm, refitted[part]) if part in refitted else (math.inf, math.inf)
            if math.isfinite(left) and word.startswith("on"):
                word += f", {_A_SCALE} ({left:.2g} left)" if most < self.band else f" ({left:.2g} left by a refit)"
            told.append(f"{_list(part)} {word}")
        return told

    def _left_by_refit(self, arm: str, rows: Mapping[int, Change]) -> tuple[float, float]:
        """The largest change that a refit leaves, and that with two standard errors over items; inf if unknown."""
        if not self.seeds.get(arm, frozenset()) <= rows.keys():
            return math.inf, math.inf
        changes, errors = self._scaled(rows.values())
        doubts = [math.inf if error is None else 2 * error for error in errors]
        return max(map(abs, changes)), max(abs(each) + doubt for each, doubt in zip(changes, doubts, strict=True))

    def _size(self, result: KnockoutResult) -> str:
        """'makes loss worse by 0.42 to 0.61 in 5 runs (...)'; of logarithms unless the scale is linear."""
        unit = "" if self.by.scale == "linear" else {"log": " in its logarithm", "logit": " in log odds"}[self.by.scale]
        low, high = (-result.high, -result.low) if result.high < 0 else (result.low, result.high)
        ends = f"{low + 0:.2g} to {high + 0:.2g}" if low != high else f"{low + 0:.2g}"
        runs = f"{result.runs} run{'s' * (result.runs != 1)}{' that learned' if self.of_learners else ''}"
        way = "makes {} worse by" if result.low > 0 else "makes {} better by" if result.high < 0 else "changes {} by"
        return f"{way.format(self.by.name + unit)} {ends} in {runs} (a tenth of the band is {OFF * self.band:.2g})"


_UNKNOWN: Final = KnockoutResult("unknown", 0, math.nan, math.nan)
_ORDER: Final = ("on", "on, and it hurts", "unknown", "mixed", "faint", "off")


def _strongest(results: Sequence[KnockoutResult]) -> KnockoutResult:
    """The result that decides of both arms: what is on in one of them is in the comparison."""
    return min(results, key=lambda result: _ORDER.index(result.word))


def _tell(result: KnockoutResult, word: str) -> str:
    told = {"faint": "faint, between off and on", "mixed": "mixed, off in some runs and on in others"}.get(word, word)
    return f"{told}; its items leave it open, about {result.items:,} a run would do" if result.items else told


_WORDS: Final = {"visible": "limit of visible keys", "extra": "extra keys", "merge": "merge of signals"}
_A_SCALE: Final = "but no more than a temperature and a size"
_OTHERS: Final = ("none", "all", "refit", "uniform")


def _stages(name: str) -> frozenset[str]:
    return frozenset(name.split("+"))


def _by_stages(rows: Rows) -> dict[frozenset[str], Mapping[int, Change]]:
    """The knock-outs by the stages that were left out."""
    others = ("mean-", "refit-")
    return {_stages(name): each for name, each in rows.items() if name not in _OTHERS and not name.startswith(others)}


def _by_refit(rows: Rows) -> dict[frozenset[str], Mapping[int, Change]]:
    """The refits by the stages that were left out before; that of all comes with every trial, others on request."""
    every = {frozenset[str]().union(*_by_stages(rows)): rows["refit"]} if "refit" in rows else {}
    single = {name.removeprefix("refit-"): each for name, each in rows.items() if name.startswith("refit-")}
    return every | {_stages(name): each for name, each in single.items()}


def _list(stages: Iterable[str]) -> str:
    *others, last = sorted(_WORDS.get(stage, stage.replace("_", " ")) for stage in stages)
    return f"{', '.join(others)} and {last}" if others else last
