"""Seconds and bytes of grouped training curves over 1,000 runs of 10,000 points.

python benchmarks/grouped_curves.py [--trials 1000] [--points 10000] [--repeat 5] [--campaign DIRECTORY]

A campaign that is there is used again. The page has 1.5 seconds and a million bytes.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from big_campaign import judged, write_attempt, write_plan, write_rows
from measurement import machine, report, tell, took

from dashboards.app.address import read
from dashboards.app.campaigns import Campaigns
from dashboards.app.engine import Engine
from dashboards.app.frame import Looks, figure_of
from dashboards.app.pages.curves import CURVES, CurvesAddress
from store.files.layout import Layout
from store.ingest.ingest import ingest

STATES = ("", "?show=*", "?by=seed", "?show=*&band=seeds", "?logx=1", "?smooth=exponential")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--campaign", type=Path, default=None)
    options = parser.parse_args()
    tell({**machine(), "trials": options.trials, "points": options.points})
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(options.campaign or Path(folder) / "campaign")
        if not layout.exists():
            write(layout, options.trials, options.points)
            report("ingest", [took(lambda: ingest(layout))])
        engine = Engine(Campaigns([layout.root]), [CURVES])
        for state in STATES:
            sizes: list[int] = []
            seconds = [took(lambda: sizes.append(page(engine, state))) for _ in range(options.repeat)]  # noqa: B023
            report(f"curves{state}", seconds, target_s=1.5)
            tell({"state": state, "bytes": sizes[0]})


def write(layout: Layout, trials: int, points: int) -> None:
    """Finished trials with one metric each."""
    batch = list[dict[str, Any]]()
    for number, key in enumerate(write_plan(layout, trials)):
        write_attempt(layout, key, 1)
        at = np.arange(points)
        noise = np.random.default_rng(number).normal(0, 0.1, points)
        rows = {
            "trial": [key] * points,
            "attempt": np.ones(points, np.int32),
            "step": at,
            "name": ["loss"] * points,
            "value": (0.5 + np.exp(-at / points * 8)) * np.exp(noise + int(key[:2], 16) / 256),
            "wall_s": 1e-2 * at,
        }
        write_rows(layout, "metric", rows, 10 * number)
        batch.append(judged(key, 1))
    together = {name: [value for each in batch for value in each[name]] for name in batch[0]}
    write_rows(layout, "evaluation", together, 10 * trials)


def page(engine: Engine, state: str) -> int:
    """Bytes of the figure that goes to the browser."""
    import json

    campaign = engine.campaigns.names[0]
    with engine.campaigns.reading(campaign) as store:
        view = engine.view(store, campaign, CURVES, read(CurvesAddress, state))
        shown = CURVES.slots[0].make(view)
    return len(json.dumps(figure_of(shown, Looks(None, ()))))


if __name__ == "__main__":
    main()
