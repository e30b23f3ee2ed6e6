"""An experiment whose loader outlives its training, as a spec file."""

from typing import Any, Literal

import torch

from ablate import Experiment, Grid, Run, over

kept: list[Any] = []


class Loading(Experiment):
    """Draws from a loader with persistent workers, to which a global variable may refer afterwards."""

    kind: Literal["tests_loading"] = "tests_loading"
    keeps: bool = False

    def train(self, run: Run) -> None:
        """Log a batch."""
        batches = iter(torch.utils.data.DataLoader(range(4), num_workers=1, persistent_workers=True))
        run.log(0, loss=float(next(batches)[0]))
        if self.keeps:
            kept.append(batches)


grid = Grid(name="g", base=Loading(), axes=[over("keeps", [True, False])], seeds=range(2))
