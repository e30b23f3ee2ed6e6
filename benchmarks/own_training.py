"""A training loop and programs of a user's own, for `overhead.py`; worker processes import the loop by name."""

import sys
import time
from typing import Literal

from ablate import Command, Experiment, Grid, Measure, Run


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


PROGRAM = ("sh", "-c", "echo loss 1")
"""A program that does nothing else."""


def program_grid(trials: int) -> Grid:
    """`trials` replicates of the program."""
    base = Command(argv=PROGRAM, metrics=r"loss (?P<loss>\S+)")
    return Grid(name="program", base=base, seeds=range(trials), measure=Measure(name="loss"))


LOGGING = """
import time
from ablate import current_run
run, began = current_run(), time.perf_counter()
for step in range(1, {steps} + 1):
    run.log(step, loss=0.5, a=step, b=0.25, c=1.0, d=2.0)
run.evaluate(step, "log_us", (time.perf_counter() - began) / step * 1e6)
"""


def logging_grid(trials: int, steps: int) -> Grid:
    """`trials` replicates of a program that logs as `Steps` does."""
    base = Command(argv=(sys.executable, "-c", "{text}"), fields={"text": LOGGING.format(steps=steps)})
    return Grid(name="logging", base=base, seeds=range(trials), measure=Measure(name="log_us"))
