"""Share of comparisons of tuned arms that claim a difference, by how the error is computed, as JSON.

python benchmarks/tuned_levels.py [--tables 8000] [--settings 1]

Each arm is the mean of `settings`, as in `ablate effects`, and each setting has its own choice of `levels`. The first
is `ahead` standard deviations of a run better than the others. Runs of one seed share a part of the same size. `shift`
is the true difference. Alpha is 0.05. The seed is fixed.
"""

import json
from itertools import product

import numpy as np
from measurement import read_options

from ablate.store.statistics import summarise
from ablate.store.statistics.arms import widen_by_choice
from ablate.store.statistics.paired_differences import Floats, Paired, p_zero

LEVELS, AHEAD, SEEDS, NOISE = (
    ((5, 1), (5, 2), (3, 3), (8, 8)),
    (0.0, 0.3, 0.7, 1.5, 3.0),
    (3, 5, 8, 12),
    ("normal", "t3"),
)


def choose_by_others(runs: Floats) -> Floats:
    """The value of the level that is best on the other seeds; [tables, settings, levels, seeds] to [tables, seeds]."""
    others = (runs.sum(-1, keepdims=True) - runs) / (runs.shape[-1] - 1)
    chosen: Floats = np.take_along_axis(runs, others.argmin(2)[:, :, None], 2)[:, :, 0].mean(1)
    return chosen


def choose_by_all(runs: Floats) -> Floats:
    """The values of the level that is best on all seeds."""
    chosen: Floats = np.take_along_axis(runs, runs.mean(-1).argmin(2)[:, :, None, None], 2)[:, :, 0].mean(1)
    return chosen


def claim(
    noise: str, levels: tuple[int, int], ahead: float, seeds: int, shift: float, sizes: tuple[int, int]
) -> dict[str, float]:
    """Share of tables, of `sizes` tables and settings, whose p of "no difference" is at most alpha."""
    tables, settings = sizes
    rng = np.random.default_rng([seeds, *levels, int(10 * ahead), noise == "t3", shift > 0])
    common, arms = rng.normal(size=(tables, 1, 1, seeds)), []
    for count in levels:
        shape = tables, settings, count, seeds
        own = rng.normal(size=shape) if noise == "normal" else rng.standard_t(3, size=shape)
        arms.append(own + common + np.where(np.arange(count) > 0, ahead, 0.0)[:, None])
    ours, theirs = arms[0], arms[1] + shift
    left_out, on_all = (summarise(choose(ours) - choose(theirs)) for choose in (choose_by_others, choose_by_all))
    rules: dict[str, Paired] = {"spread": left_out, "all": on_all}
    rules["rule"] = widen_by_choice(left_out, choose_by_all(ours) - choose_by_all(theirs))
    if seeds > 3:
        halves = [
            np.take_along_axis(arm[..., 1::2], arm[..., ::2].mean(-1).argmin(2)[:, :, None, None], 2)[:, :, 0].mean(1)
            for arm in (ours, theirs)
        ]
        rules["halves"] = summarise(halves[0] - halves[1])
    return {name: round(float((p_zero(found) <= 0.05).mean()), 4) for name, found in rules.items()}


def main() -> None:
    options = read_options(__doc__, tables=8000, settings=1)
    for noise, levels, ahead, seeds in product(NOISE, LEVELS, AHEAD, SEEDS):
        setting = {"noise": noise, "levels": levels, "ahead": ahead, "seeds": seeds}
        shifts = (0.0,) if noise == "t3" else (0.0, 2.0 if seeds < 8 else 1.0)
        for shift in shifts:
            claims = claim(noise, levels, ahead, seeds, shift, (options.tables, options.settings))
            sizes = {"tables": options.tables, "settings": options.settings}
            print(json.dumps({**setting, "shift": shift, **sizes, **claims}), flush=True)


if __name__ == "__main__":
    main()
