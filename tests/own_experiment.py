"""An experiment of a user's own, as a spec file: it has everything random, and a state of every sort."""

import os
import random
import signal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ablate import Experiment, Grid, Measure, Run, over


class Line(Experiment):
    """Fits a line; `deaths` is a file of signals that hit its process, one line "step signal" each."""

    kind: Literal["tests_line"] = "tests_line"
    lr: float = 0.1
    steps: int = 12
    deaths: str = ""

    def train(self, run: Run) -> None:
        """Everything that a resumed run must have again changes from step to step."""
        model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))
        optimiser = torch.optim.Adam(model.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        generator = torch.Generator().manual_seed(self.seed)
        inputs = torch.linspace(-1, 1, 20)[:, None]
        data = torch.utils.data.TensorDataset(inputs, 3 * inputs)
        loader = torch.utils.data.DataLoader(data, batch_size=6, shuffle=True)
        best, seen, mean = float("inf"), list[float](), torch.zeros(())

        def state() -> dict[str, Any]:
            return {
                "model": model,
                "optimiser": optimiser,
                "schedule": schedule,
                "generator": generator,
                "best": best,
                "seen": seen,
                "mean": mean,
            }

        run.evaluate("start", float(model[0].weight.detach().sum()))
        for step, (batch, target) in run.steps(self.steps, run.batches(loader), state=state):
            noise = torch.randn((), generator=generator) + random.random() + np.random.rand()
            loss = (model(batch) - target).square().mean() + 0.01 * noise
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            if loss.item() < best:
                best = loss.item()
                run.keep("best", {"model": model})
            seen.append(best)
            mean = 0.9 * mean + loss.detach()
            run.log(loss=loss, noise=noise, best=best)
            if step % 5 == 0:
                run.evaluate("val_loss", self._loss(model, inputs), point={"at": step})
            self._meet(step)
        run.evaluate("val_loss", self._loss(model, inputs), items={"a": 1.0, "b": 3.0} if self.seed < 0 else 1)
        run.evaluate("mean", mean)
        run.evaluate("seen", sum(seen))
        run.probe("kept", run.load_kept("best")["model"]["0.weight"].sum(), layer=0)

    def _loss(self, model: torch.nn.Module, inputs: torch.Tensor) -> float:
        model.eval()
        with torch.no_grad():
            loss = (model(inputs) - 3 * inputs).square().mean().item()
        model.train()
        return loss

    def _meet(self, step: int) -> None:
        """Take the first line of the file if it is of this step."""
        if not self.deaths or not (lines := Path(self.deaths).read_text(encoding="utf-8").splitlines()):
            return
        at, name = lines[0].split()
        if int(at) == step:
            Path(self.deaths).write_text("\n".join(lines[1:]), encoding="utf-8")
            os.kill(os.getpid(), signal.Signals[name])


def line_grid(name: str = "line", seeds: range = range(2), **fields: Any) -> Grid:
    """Two learning rates."""
    return Grid(
        name=name,
        base=Line(**fields),
        axes=[over("lr", [0.1, 0.03])],
        seeds=seeds,
        baseline={"lr": 0.1},
        measure=Measure(name="val_loss", point={"at": 10}),
    )


grid = line_grid()
