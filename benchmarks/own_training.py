"""A training loop of a user's own, for `overhead.py`; worker processes import it by name."""

import time
from typing import Literal

from ablate import Experiment, Grid, Measure, Run


class Steps(Experiment):
    """Logs five metrics in each of its steps, which do nothing else; records what that took."""

    kind: Literal["benchmark_steps"] = "benchmark_steps"
    steps: int = 60

    def train(self, run: Run) -> None:
        """Log."""
        began = time.perf_counter()
        for step in run.steps(self.steps, state={}):
            run.log(loss=0.5, a=step, b=0.25, c=1.0, d=2.0)
        took = time.perf_counter() - began
        run.evaluate("log_us", took / self.steps * 1e6)


def grid(trials: int, steps: int = 60) -> Grid:
    """`trials` replicates of one cell."""
    return Grid(name="own", base=Steps(steps=steps), seeds=range(trials), measure=Measure(name="log_us"))
