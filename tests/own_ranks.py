"""An experiment of a user's own on several processes, as a spec file."""

from pathlib import Path
from typing import Literal

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from ablate import Experiment, Run


class Shared(Experiment):
    """Fits a line in data-parallel processes; each has a part of the batches, and random numbers of its own."""

    kind: Literal["tests_shared"] = "tests_shared"
    steps: int = 9
    fate: str = ""
    notes: str = ""

    def train(self, run: Run) -> None:
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        data = [torch.tensor([float(number)]) for number in range(12)]
        sampler = DistributedSampler(data, run.world_size, run.rank, seed=self.seed)
        loader = DataLoader(data, batch_size=2, sampler=sampler)
        torch.manual_seed(100 * self.seed + run.rank)
        for step, batch in run.steps(self.steps, run.batches(loader), state={"model": model, "optimiser": optimiser}):
            noise = torch.rand(2, 1)
            loss = (model(batch) - 2 * batch + noise).square().mean() / 100
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            run.log(loss=loss, noise=noise.sum())
            if self.notes:
                with Path(self.notes, f"rank-{run.rank}").open("a", encoding="utf-8") as file:
                    file.write(f"{step} {noise.sum().item()} {batch.flatten().tolist()}\n")
            if self.fate == "apart" and run.rank:
                return
        run.evaluate("val_loss", model.module.weight)
